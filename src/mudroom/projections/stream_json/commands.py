"""Fields of the stream-json lines about background commands."""

from __future__ import annotations

from typing import Any

from ..._core.events import MessageSent, ToolCallFinished

_TASK_TYPE = "local_bash"


def make_start_fields(event: ToolCallFinished) -> dict[str, Any] | None:
    """Return the fields of `task_started`, None if the call started no background command."""
    command = event.result.detail.get("command")
    if not event.result.detail.get("background") or not command:
        return None
    return {
        "subtype": "task_started",
        "task_id": command,
        "tool_use_id": event.call_id,
        "task_type": _TASK_TYPE,
        "is_backgrounded": True,
    }


def make_end_fields(event: MessageSent, call_id: str) -> dict[str, Any] | None:
    """Return the fields of `task_notification`, None if the message reports no command."""
    message = event.message
    if event.result is None:
        return None
    return {
        "subtype": "task_notification",
        "task_id": message.sender,
        "tool_use_id": call_id,
        "status": message.text.partition("<status>")[2].partition("</status>")[0],
        "summary": message.text,
        "output_file": event.result.spill,
    }


def make_stop_fields(command: str, call_id: str) -> dict[str, Any]:
    """Return the fields of `task_notification` for a command that the end of its run stopped."""
    return {
        "subtype": "task_notification",
        "task_id": command,
        "tool_use_id": call_id,
        "status": "stopped",
        "summary": "The end of its run stopped it.",
        "output_file": "",
    }
