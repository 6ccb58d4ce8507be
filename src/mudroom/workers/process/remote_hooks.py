"""Hooks across the channel: a worker process asks, the session's process calls the user's hooks."""

from __future__ import annotations

from typing import Any

import msgspec

from ..._core.messages import ToolCallBlock
from ..._core.ports import Hooks, ToolHookDecision
from ..._core.runs import Brief, Report
from ..._core.tools import ToolResult
from .messages import CallHook
from .remote_services import SessionLink

_decode = msgspec.msgpack.decode
_ARGUMENTS: dict[str, Any] = {
    "on_prompt": tuple[Brief],
    "before_tool": tuple[Brief, ToolCallBlock],
    "after_tool": tuple[Brief, ToolCallBlock, ToolResult],
    "on_child_start": tuple[Brief, Brief],
    "on_child_end": tuple[Brief, Brief, Report[dict[str, Any]]],
    "before_finish": tuple[Brief, str],
    "before_compaction": tuple[Brief],
}


async def call_hook(hooks: Hooks, message: CallHook) -> bytes:
    """Call a hook of the session and return its encoded result."""
    arguments = _decode(message.arguments, type=_ARGUMENTS[message.name])
    return msgspec.msgpack.encode(await getattr(hooks, message.name)(*arguments))


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
        """Call a hook in the session's process and return its encoded result."""
        encoded = msgspec.msgpack.encode(arguments)
        answer = await self._link.request(CallHook(self._link.next_id(), name, encoded))
        if answer.error is not None:
            raise answer.error.to_exception()
        return answer.result
