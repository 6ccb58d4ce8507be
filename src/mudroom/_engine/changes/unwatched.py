"""What nothing compares: files outside the workspace that calls may write.

The engine compares the workspace of a run before and after a call. A sandbox keeps commands inside
it. Without one, and for tools that run as plain code of this process or of an MCP server, a report
must say that more may have changed.
"""

from __future__ import annotations

from ..._core.ports.hooks import HOOKS_UNWATCHED
from ..._core.tools import Effect, Tool, ToolCategory

_OUTSIDE = "ran without a sandbox, and files outside the folder were not compared"
_NOTHING_COMPARED = "nothing compared the files before and after the tool "

_CONFINED_TIERS = ("full", "file", "refuse")
"""Tiers whose commands cannot write outside the workspace, but for files that vanish with them."""


def explain_unwatched(tool: Tool, tier: str) -> str:
    """Return why a call of a tool may change files that nothing compares, "" if it cannot.

    Arguments:
        tier: that of the sandbox in which the run's commands are executed.
    """
    if tool.has_category(ToolCategory.RUN):
        return "" if tier in _CONFINED_TIERS else f"commands {_OUTSIDE}"
    if tool.effect is Effect.EFFECTFUL:
        return f"the tool {tool.name} {_OUTSIDE}"
    if tool.effect is Effect.KEYED and tool.category is None:
        # Every keyed tool of mudroom's own has a category, and writes files with its context only.
        return f"{_NOTHING_COMPARED}{tool.name}"
    return ""


def select_outside(unknown_changes: str) -> str:
    """Return the reasons that also concern runs with another workspace.

    The merge of an isolated child accounts for the files of its workspace, but not for changes
    elsewhere.
    """
    return "; ".join(
        reason
        for reason in unknown_changes.split("; ")
        if reason.endswith(_OUTSIDE)
        or reason.startswith(_NOTHING_COMPARED)
        or reason == HOOKS_UNWATCHED
    )
