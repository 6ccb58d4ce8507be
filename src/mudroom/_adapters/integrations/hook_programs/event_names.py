"""Events of hooks: those of Claude Code, and other programs' names for them."""

from __future__ import annotations

from .spec import HookKind

# Events that happen in mudroom.
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
# Events of Claude Code that never happen in mudroom, known so that a file that uses them gets the
# right notice.
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
# Events only Codex has; they never happen in mudroom.
CODEX_EVENTS = ("Interrupt",)
# Gemini CLI's event -> Claude Code's, "" if it never happens in mudroom.
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
# Kinds of hooks that mudroom runs.
RUN_KINDS: tuple[HookKind, ...] = ("command", "http", "mcp_tool")


def explain_never_fires(event: str, kind: HookKind) -> str:
    """Explain why a hook never runs, "" if it does."""
    if event not in FIRING_EVENTS:
        return "the event never happens here"
    return "" if kind in RUN_KINDS else f"hooks of type {kind} are not run"
