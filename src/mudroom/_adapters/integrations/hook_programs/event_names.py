"""Events of hooks: those of Claude Code, and the names that other programs have for them."""

from __future__ import annotations

from .spec import HookKind

FIRING_EVENTS = (
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PermissionRequest",
    "PermissionDenied",
    "UserPromptSubmit",
    "SessionStart",
    "SessionEnd",
    "Stop",
    "SubagentStart",
    "SubagentStop",
    "PreCompact",
    "PostCompact",
    "Notification",
)
"""Events that happen in mudroom."""
OTHER_EVENTS = (
    "PostToolBatch",
    "UserPromptExpansion",
    "StopFailure",
    "PreModelSwitch",
    "PostModelSwitch",
    "Setup",
    "TeammateIdle",
    "TaskCreated",
    "TaskCompleted",
    "Elicitation",
    "ElicitationResult",
    "ConfigChange",
    "WorktreeCreate",
    "WorktreeRemove",
    "InstructionsLoaded",
    "CwdChanged",
    "FileChanged",
    "DirectoryAdded",
    "MessageDisplay",
)
"""Events of Claude Code that never happen in mudroom."""
CODEX_EVENTS = ("Interrupt",)
"""Events that only Codex has; they never happen in mudroom."""
GEMINI_EVENTS = {
    "BeforeTool": "PreToolUse",
    "AfterTool": "PostToolUse",
    "BeforeAgent": "UserPromptSubmit",
    "AfterAgent": "Stop",
    "SessionStart": "SessionStart",
    "SessionEnd": "SessionEnd",
    "PreCompress": "PreCompact",
    "Notification": "Notification",
    "BeforeModel": "",
    "AfterModel": "",
    "BeforeToolSelection": "",
}
"""Events of the Gemini CLI -> event of Claude Code, "" if it never happens in mudroom."""
RUN_KINDS: tuple[HookKind, ...] = ("command", "http", "mcp_tool")
"""Kinds of hooks that mudroom runs."""


def explain_never_fires(event: str, kind: HookKind) -> str:
    """Return why a hook never runs, "" if it does."""
    if event not in FIRING_EVENTS:
        return "the event never happens here"
    return "" if kind in RUN_KINDS else f"hooks of type {kind} are not run"
