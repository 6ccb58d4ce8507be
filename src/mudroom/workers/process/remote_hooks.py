"""Hooks and output checks across the channel: the session's process calls what the user gave."""

from __future__ import annotations

from typing import Any

import msgspec

from ..._core.messages import ToolCallBlock
from ..._core.ports import Hooks, ToolHookDecision
from ..._core.runs import Brief, Report
from ..._core.tools import ToolResult
from ..._engine.session_context import SessionServices
from ..._engine.structured_output import OutputChecks, OutputRefusal
from .messages import CallHook
from .remote_services import SessionLink

_decode = msgspec.msgpack.decode
_FIND_REFUSAL = "find_refusal"
_ARGUMENTS: dict[str, Any] = {
    "on_prompt": tuple[Brief],
    "before_tool": tuple[Brief, ToolCallBlock],
    "after_tool": tuple[Brief, ToolCallBlock, ToolResult],
    "on_child_start": tuple[Brief, Brief],
    "on_child_end": tuple[Brief, Brief, Report[dict[str, Any]]],
    "before_finish": tuple[Brief, str],
    "before_compaction": tuple[Brief],
    _FIND_REFUSAL: tuple[str, dict[str, Any]],
}


async def call_hook(services: SessionServices, message: CallHook) -> bytes:
    """Call a hook or an output check of the session and return its encoded result."""
    arguments = _decode(message.arguments, type=_ARGUMENTS[message.name])
    target = services.output_checks if message.name == _FIND_REFUSAL else services.hooks
    return msgspec.msgpack.encode(await getattr(target, message.name)(*arguments))


class RemoteHooks(Hooks):
    """The port Hooks for a worker process."""

    def __init__(self, link: SessionLink) -> None:
        self._link = link

    async def on_prompt(self, brief: Brief) -> str:
        """Call the hook in the session's process."""
        return _decode(await self._call("on_prompt", brief), type=str)

    async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
        """Call the hook in the session's process."""
        return _decode(await self._call("before_tool", brief, call), type=ToolHookDecision | None)

    async def after_tool(
        self, brief: Brief, call: ToolCallBlock, result: ToolResult
    ) -> ToolResult | None:
        """Call the hook in the session's process."""
        return _decode(await self._call("after_tool", brief, call, result), type=ToolResult | None)

    async def on_child_start(self, parent: Brief, child: Brief) -> str:
        """Call the hook in the session's process."""
        return _decode(await self._call("on_child_start", parent, child), type=str)

    async def on_child_end(self, parent: Brief, child: Brief, report: Report) -> None:
        """Call the hook in the session's process."""
        _decode(await self._call("on_child_end", parent, child, report), type=None)

    async def before_finish(self, brief: Brief, text: str) -> str:
        """Call the hook in the session's process."""
        return _decode(await self._call("before_finish", brief, text), type=str)

    async def before_compaction(self, brief: Brief) -> str:
        """Call the hook in the session's process."""
        return _decode(await self._call("before_compaction", brief), type=str)

    async def _call(self, name: str, *arguments: object) -> bytes:
        return await _call_session(self._link, name, *arguments)


class RemoteOutputChecks(OutputChecks):
    """Output checks for a worker process."""

    def __init__(self, link: SessionLink) -> None:
        super().__init__()
        self._link = link

    async def find_refusal(self, run_id: str, values: dict[str, Any]) -> OutputRefusal | None:
        """Check the values in the session's process."""
        result = await _call_session(self._link, _FIND_REFUSAL, run_id, values)
        return _decode(result, type=OutputRefusal | None)


async def _call_session(link: SessionLink, name: str, *arguments: object) -> bytes:
    """Call a hook in the session's process and return its encoded result."""
    encoded = msgspec.msgpack.encode(arguments)
    answer = await link.request(CallHook(link.next_id(), name, encoded))
    if answer.error is not None:
        raise answer.error.to_exception()
    return answer.result
