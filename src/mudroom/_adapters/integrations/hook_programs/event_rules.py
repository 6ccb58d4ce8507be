"""Rules for the events that fire here: what a matcher selects, what blocks, and limits."""

from __future__ import annotations

from msgspec import Struct

# Time limit of a program or address, if neither the hook nor the event sets one.
COMMAND_SECONDS = 600.0


class EventRule(Struct, frozen=True):
    """The rule of an event.

    Arguments:
        subject: field of the input that matchers are compared with, "" for none.
        blocks: true if exit code 2 and the decision "block" affect the run.
        adds_output: true if plain output is text for the model.
        seconds: time limit.
    """

    subject: str = ""
    blocks: bool = False
    adds_output: bool = False
    seconds: float = COMMAND_SECONDS


# Rules by event; `event_names` has all names.
RULES = {
    "SessionStart": EventRule("source", adds_output=True),
    "SessionEnd": EventRule("reason", seconds=1.5),
    "UserPromptSubmit": EventRule(blocks=True, adds_output=True, seconds=30.0),
    "PreToolUse": EventRule("tool_name", blocks=True),
    "PermissionRequest": EventRule("tool_name", blocks=True),
    "PermissionDenied": EventRule("tool_name"),
    "PostToolUse": EventRule("tool_name"),
    "PostToolUseFailure": EventRule("tool_name"),
    "Notification": EventRule("notification_type"),
    "SubagentStart": EventRule("agent_type"),
    "SubagentStop": EventRule("agent_type", blocks=True),
    "Stop": EventRule(blocks=True),
    "PreCompact": EventRule("trigger", blocks=True),
    "PostCompact": EventRule("trigger"),
}
