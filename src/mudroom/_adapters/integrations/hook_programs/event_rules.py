"""Rules of the events that fire here: what their matcher selects, what blocks, and limits."""

from __future__ import annotations

from msgspec import Struct

COMMAND_SECONDS = 600.0
"""Limit of a program or an address, where neither hook nor event sets one."""


class EventRule(Struct, frozen=True):
    """Rule of an event.

    Arguments:
        subject: field of the input that the matcher is compared with, "" for none.
        blocks: whether exit code 2 and the decision "block" have an effect on the run.
        adds_output: whether plain output is text for the model.
        seconds: limit of the event, if it has one of its own.
    """

    subject: str = ""
    blocks: bool = False
    adds_output: bool = False
    seconds: float = COMMAND_SECONDS


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
"""Rules by event; `event_names` has all names."""
