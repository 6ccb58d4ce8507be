"""Reader for events of record version 1: changes their JSON to the current version.

Version 2 renamed event and block tags, the field `stop` of answers and the origin "person" of
notes. Events of version 2 pass unchanged, so a reader that does not know the version of an event
can call `upgrade` on all events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

EVENT_TAGS = {
    "call_finished": "tool_call_finished",
    "call_started": "tool_call_started",
    "changing": "file_write_intended",
    "judged": "permission_decided",
    "resumed": "run_resumed",
    "retried": "model_call_retried",
    "told": "note_injected",
}
"""Tag of version 1 -> tag of version 2; other tags are the same in both."""

_BLOCK_TAGS = {"call": "tool_call", "result": "tool_result"}
_ORIGINS = {"person": "user"}


def upgrade(body: bytes) -> bytes:
    """Return an event's JSON in the current version. Raises ValueError if it is no JSON object."""
    event = msgspec.json.decode(body, type=dict[str, Any])
    old_tag: str = event.get("type") or ""
    tag = EVENT_TAGS.get(old_tag, old_tag)
    upgrade_fields = _FIELDS.get(tag)
    if tag == old_tag and not upgrade_fields:
        return body
    event["type"] = tag
    if upgrade_fields:
        upgrade_fields(event)
    return msgspec.json.encode(event)


def _upgrade_brief(event: dict[str, Any]) -> None:
    for message in event["brief"].get("history", ()):
        _upgrade_message(message)


def _upgrade_answer(event: dict[str, Any]) -> None:
    _upgrade_message(event["message"])


def _upgrade_message(message: dict[str, Any]) -> None:
    if "stop" in message:
        message["stop_reason"] = message.pop("stop")
    for block in message["content"]:
        _upgrade_block(block)


def _upgrade_call(event: dict[str, Any]) -> None:
    _upgrade_block(event["call"])


def _upgrade_block(block: dict[str, Any]) -> None:
    block["type"] = _BLOCK_TAGS.get(block["type"], block["type"])


def _upgrade_note(event: dict[str, Any]) -> None:
    if event.get("origin") in _ORIGINS:
        event["origin"] = _ORIGINS[event["origin"]]


_FIELDS: dict[str, Callable[[dict[str, Any]], None]] = {
    "note_injected": _upgrade_note,
    "run_started": _upgrade_brief,
    "tool_call_started": _upgrade_call,
    "turn_finished": _upgrade_answer,
}
"""Tag of version 2 -> function that changes the fields of such an event in place."""
