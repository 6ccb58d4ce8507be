"""The send_message tool: sends a message to a child that works."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from ..._core.events import MessageSent
from ..._core.ports import RunHandle
from ..._core.runs import InboxMessage
from ..._core.tools import Effect, Tool, ToolCategory, ToolResult
from ...errors import suggest_names
from ..call_context import CallContext

MAX_CHARACTERS = 8_000
"""Maximum characters of a message."""

ALL = "*"
"""Receiver that stands for all children that work."""


class Arguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of the send_message tool. `summary` is for screens."""

    to: str
    message: str
    summary: str = ""


def _parse(arguments: dict[str, Any]) -> Arguments:
    parsed = msgspec.convert(arguments, Arguments, strict=False)
    if not parsed.message.strip():
        raise ValueError("message: empty; write what the child must know")
    if len(parsed.message) > MAX_CHARACTERS:
        raise ValueError(
            f"message: longer than {MAX_CHARACTERS:,} characters; write it to a file and name that"
        )
    return parsed


async def _run(context: CallContext, arguments: Arguments) -> ToolResult:
    children = context.run.background.children
    to = arguments.to
    receivers = list(children) if to == ALL else [to]
    if to != ALL and to not in children:
        if context.run.background.is_reported(to):
            return ToolResult(f"{to} has ended: start a new child.", error=True)
        return ToolResult(
            f"No child {to!r} works in the background. {suggest_names(to, children)}", error=True
        )
    sent = [to for to in receivers if await _send(context, children[to], arguments.message)]
    if not sent:
        return ToolResult(f"Nothing was sent: {to} has not begun or is ending.", error=True)
    return ToolResult(f"Sent to {', '.join(sent)}. It is read after the current tool calls.")


async def _send(context: CallContext, handle: RunHandle, text: str) -> bool:
    """Send a message, and return when it is stored. Return False if the child cannot take it."""
    message = InboxMessage(f"{context.place}:{handle.run_id}", text, context.run_id)
    past = context.run.services.past_events.get(handle.run_id, ())
    if any(isinstance(event, MessageSent) and event.message.id == message.id for event in past):
        return True
    return handle.send(message) and await handle.wait_until_stored(message.id)


SEND_MESSAGE = Tool(
    name="send_message",
    description="Send a message to a background child that works.",
    parameters={
        "type": "object",
        "properties": {
            "to": {"type": "string", "description": "task id, or * for all"},
            "message": {"type": "string"},
        },
        "required": ["to", "message"],
    },
    parse=_parse,
    run=_run,
    effect=Effect.KEYED,
    category=ToolCategory.AGENT,
    needs_children=True,
    title_argument="message",
    argument_aliases={
        "content": "message",
        "target": "to",
        "recipient": "to",
        "agent_id": "to",
        "id": "to",
    },
)
