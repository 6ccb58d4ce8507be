"""The record of runs as text that tools can search: one block for each turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ..._core.events import (
    NoteInjected,
    RunStarted,
    StoredEvent,
    ToolCallFinished,
    TurnFinished,
)
from ..._core.messages import TextBlock, ToolCallBlock


def format_record(events: Iterable[StoredEvent]) -> str:
    """Return prompts, messages, answers, calls and whole results of runs, in their order."""
    return "\n".join(line for event in events for line in _format_event(event))


def _format_event(event: StoredEvent) -> Iterator[str]:
    if isinstance(event, RunStarted):
        yield f"=== run {event.run}: prompt ==="
        yield event.brief.prompt
    elif isinstance(event, NoteInjected):
        yield f"=== run {event.run}, after turn {event.turn}: message from {event.origin} ==="
        yield event.text
    elif isinstance(event, TurnFinished):
        yield f"=== run {event.run}, turn {event.turn}: answer ==="
        for block in event.message.content:
            if isinstance(block, TextBlock):
                yield block.text
            elif isinstance(block, ToolCallBlock):
                arguments = msgspec.json.encode(block.arguments).decode()
                yield f"call {block.id}: {block.name} {arguments}"
    elif isinstance(event, ToolCallFinished):
        outcome = "error" if event.result.error else "result"
        about = f"{outcome} of {event.name} {event.call_id}"
        yield f"=== run {event.run}, turn {event.turn}: {about} ==="
        yield event.result.text
