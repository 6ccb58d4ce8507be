"""Calls of a worker process to services of the session: journal, approver, hooks, output checks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, get_args

import msgspec

from ...._core.events import StoredEvent
from ...._core.json_values import make_binary_decoder
from ...._core.messages import ToolCallBlock
from ...._core.ports import ApprovalRequest, Hooks, Journal, MessageHookDecision, ToolHookDecision
from ...._core.runs import Brief, Report
from ...._core.tools import ToolResult
from ...._engine.session_context import SessionServices
from ...._engine.structured_output import OutputChecks, OutputRefusal
from ...._engine.team_registry import TeamReply, TeamRequest, Teams
from ...._peers import encode
from .messages import CallReply, CallSession
from .own_files import TravellingFiles
from .remote_services import SessionLink
from .server_calls import CALL_TOOL, LOAD_TOOLS, CallPlace, ServerCalls
from .tree_transfer import TREE_ARGUMENTS, list_targets

Target = Callable[..., Awaitable[Any]]
"""A service of the session."""

_decode = msgspec.msgpack.decode
_FIND_REFUSAL = "find_refusal"
_SEND_TO_TEAM = "send_to_team"
_ARGUMENTS: dict[str, Any] = {
    "read": tuple[int, tuple[str, ...]],
    "decide": tuple[ApprovalRequest],
    "on_prompt": tuple[Brief],
    "on_message": tuple[Brief, str],
    "on_run_start": tuple[Brief],
    "on_run_end": tuple[Brief, Report[dict[str, Any]]],
    "on_permission_request": tuple[Brief, ToolCallBlock, str],
    "on_permission_denied": tuple[Brief, ToolCallBlock, str],
    "before_tool": tuple[Brief, ToolCallBlock],
    "after_tool": tuple[Brief, ToolCallBlock, ToolResult],
    "on_child_start": tuple[Brief, Brief],
    "on_child_end": tuple[Brief, Brief, Report[dict[str, Any]]],
    "before_finish": tuple[Brief, str],
    "explain_changes": tuple[Brief],
    "before_compaction": tuple[Brief],
    "after_compaction": tuple[Brief],
    _FIND_REFUSAL: tuple[str, dict[str, Any]],
    _SEND_TO_TEAM: tuple[TeamRequest],
    LOAD_TOOLS: tuple[tuple[str, ...]],
    CALL_TOOL: tuple[CallPlace, str, dict[str, Any]],
    **TREE_ARGUMENTS,
}
STORING_CALLS = frozenset({_SEND_TO_TEAM, *TREE_ARGUMENTS})
"""Calls that store or send what the process has finished: they end even if the process is lost."""
_DECODERS = {name: make_binary_decoder(types) for name, types in _ARGUMENTS.items()}


class SessionCalls:
    """Calls of one worker process to services of the session.

    Arguments:
        files: the files of runs if the process does not see the folder.
        owns: tells whether the process executes a run, or one above it.
    """

    def __init__(
        self, services: SessionServices, files: TravellingFiles, owns: Callable[[str], bool]
    ) -> None:
        self.files = files
        self._services = services
        tools = ServerCalls(services)
        self._targets: dict[str, Target] = {
            LOAD_TOOLS: tools.load,
            CALL_TOOL: tools.call,
            "read": partial(_read, services.journal),
            "decide": services.approver.decide,
            _FIND_REFUSAL: services.output_checks.find_refusal,
            _SEND_TO_TEAM: services.teams.send,
            **list_targets(files.transfers, owns, self),
        }

    async def execute(self, call: CallSession) -> CallReply:
        """Call the service that the worker process asks for. Raises the errors of that service."""
        target = self._targets.get(call.name) or getattr(self._services.hooks, call.name)
        arguments = _DECODERS[call.name].decode(call.arguments)
        return CallReply(call.id, encode(await target(*arguments)))


async def _read(journal: Journal, after: int, names: tuple[str, ...]) -> list[StoredEvent]:
    types = [kind for kind in get_args(StoredEvent) if kind.__name__ in names]
    return [event async for event in journal.read(after, types=types)]


class RemoteHooks(Hooks):
    """The port Hooks for a worker process."""

    def __init__(self, link: SessionLink) -> None:
        self._link = link

    async def on_prompt(self, brief: Brief) -> str:
        """Call the hook in the session's process."""
        return _decode(await self._link.call("on_prompt", brief), type=str)

    async def on_message(self, brief: Brief, text: str) -> MessageHookDecision | None:
        """Call the hook in the session's process."""
        return _decode(
            await self._link.call("on_message", brief, text), type=MessageHookDecision | None
        )

    async def on_run_start(self, brief: Brief) -> str:
        """Call the hook in the session's process."""
        return _decode(await self._link.call("on_run_start", brief), type=str)

    async def on_run_end(self, brief: Brief, report: Report) -> None:
        """Call the hook in the session's process."""
        _decode(await self._link.call("on_run_end", brief, report), type=None)

    async def on_permission_request(
        self, brief: Brief, call: ToolCallBlock, why: str
    ) -> ToolHookDecision | None:
        """Call the hook in the session's process."""
        return _decode(
            await self._link.call("on_permission_request", brief, call, why),
            type=ToolHookDecision | None,
        )

    async def on_permission_denied(self, brief: Brief, call: ToolCallBlock, why: str) -> None:
        """Call the hook in the session's process."""
        _decode(await self._link.call("on_permission_denied", brief, call, why), type=None)

    async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
        """Call the hook in the session's process."""
        return _decode(
            await self._link.call("before_tool", brief, call), type=ToolHookDecision | None
        )

    async def after_tool(
        self, brief: Brief, call: ToolCallBlock, result: ToolResult
    ) -> ToolResult | None:
        """Call the hook in the session's process."""
        return _decode(
            await self._link.call("after_tool", brief, call, result), type=ToolResult | None
        )

    async def on_child_start(self, parent: Brief, child: Brief) -> str:
        """Call the hook in the session's process."""
        return _decode(await self._link.call("on_child_start", parent, child), type=str)

    async def on_child_end(self, parent: Brief, child: Brief, report: Report) -> None:
        """Call the hook in the session's process."""
        _decode(await self._link.call("on_child_end", parent, child, report), type=None)

    async def before_finish(self, brief: Brief, text: str) -> str:
        """Call the hook in the session's process."""
        return _decode(await self._link.call("before_finish", brief, text), type=str)

    async def explain_changes(self, brief: Brief) -> str:
        """Call the hook in the session's process."""
        return _decode(await self._link.call("explain_changes", brief), type=str)

    async def before_compaction(self, brief: Brief) -> str:
        """Call the hook in the session's process."""
        return _decode(await self._link.call("before_compaction", brief), type=str)

    async def after_compaction(self, brief: Brief) -> str:
        """Call the hook in the session's process."""
        return _decode(await self._link.call("after_compaction", brief), type=str)


class RemoteOutputChecks(OutputChecks):
    """Output checks for a worker process."""

    def __init__(self, link: SessionLink) -> None:
        super().__init__()
        self._link = link

    async def find_refusal(self, run_id: str, values: dict[str, Any]) -> OutputRefusal | None:
        """Check the values in the session's process."""
        return _decode(
            await self._link.call(_FIND_REFUSAL, run_id, values), type=OutputRefusal | None
        )


class RemoteTeams(Teams):
    """Teams for a worker process: those of runs in the session's process are there."""

    def __init__(self, link: SessionLink) -> None:
        super().__init__()
        self._link = link

    async def send(self, request: TeamRequest) -> TeamReply:
        """Send a message by the team of the parent, in its process."""
        if self.get(request.parent):
            return await super().send(request)
        return _decode(await self._link.call(_SEND_TO_TEAM, request), type=TeamReply)
