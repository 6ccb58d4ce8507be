"""Creates a session's hooks from specifications and functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...._core.messages import ToolCallBlock
from ...._core.ports import HookCallback, HookFunction, Journal
from ...._core.tools import ToolResult
from ....errors import UnknownName
from .event_rules import RULES
from .hook_set import HookSet
from .run_log import RunLog
from .server_tools import CallServerTool
from .session_hooks import SessionFacts, SessionHooks
from .spec import HookSpec
from .transcript_files import TranscriptFiles


def open_session_hooks(
    specs: Sequence[HookSpec],
    functions: Mapping[str, Sequence[HookFunction | HookCallback]],
    facts: SessionFacts,
    matches_rule: Callable[[str, ToolCallBlock], bool],
    *,
    environ: Mapping[str, str],
    home: str,
    journal: Journal,
    call_tool: CallServerTool | None,
) -> SessionHooks:
    """Create the hooks of a session.

    Arguments:
        functions: the caller's functions by event.
        environ: variables of programs.
        home: mudroom's state folder.
        call_tool: calls a tool of one of the session's MCP servers; None if it has none.

    Raises UnknownName for an event that never fires here.
    """
    callbacks: dict[str, list[HookCallback]] = {}
    for event, entries in functions.items():
        if event not in RULES:
            raise UnknownName("hook event", event, RULES, where="Session")
        callbacks[event] = [
            entry if isinstance(entry, HookCallback) else HookCallback(entry) for entry in entries
        ]
    run_log = RunLog(home)
    hooks = HookSet(
        specs,
        callbacks,
        session=facts.session,
        folder=facts.folder,
        environ=environ,
        run_log=run_log,
        call_tool=call_tool or _refuse,
    )
    transcripts = TranscriptFiles(facts.session, facts.spill_folder, journal)
    return SessionHooks(
        hooks, facts, matches_rule=matches_rule, transcripts=transcripts, run_log=run_log
    )


async def _refuse(server: str, tool: str, arguments: dict[str, Any]) -> ToolResult:
    raise UnknownName("MCP server", server, ())
