"""A conversation's record: its events, and a file of them that tools can search."""

from __future__ import annotations

import asyncio
import glob
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ..._core.events import (
    NoteInjected,
    RunFinished,
    RunStarted,
    StoredEvent,
    ToolCallFinished,
    TurnFinished,
)
from ..._core.messages import TextBlock, ToolCallBlock
from ..._platform.private_files import make_spill_file, write_private_file
from ..._projections.transcript import ContextBuilder
from ..conversation import normalize_conversation
from ..run_context import RunContext


def find_record_path(run: RunContext) -> str:
    """Return the path of the file, which tools may read; it is the same throughout a run."""
    folder = run.services.spill_folder
    begin = f"{run.run_id}-record"
    made = Path(folder).glob(f"{glob.escape(begin)}-*.txt")
    return next(map(str, made), "") or make_spill_file(folder, begin)


class ConversationRecord:
    """The recorded events of a run's conversation. Each call reads only new ones.

    Nothing is read twice, since a session may have many events of other runs. `events` are those of
    the conversation's runs, listed oldest first, and the starts and ends of all runs.
    """

    def __init__(self, run: RunContext) -> None:
        self.runs = [run.run_id]
        self.events: list[StoredEvent] = []
        self._run = run
        self._position = 0

    async def read_context(self) -> ContextBuilder:
        """Read the run's messages as its model has them."""
        await self._read()
        return rebuild_context(self._run, self.events)

    async def write_file(self) -> None:
        await self._read()
        runs = set(self.runs)
        events = [event for event in self.events if event.run in runs]
        await asyncio.to_thread(_write, self._run, events)

    async def _read(self) -> None:
        await self._run.recorder.record()
        events = [event async for event in self._run.services.journal.read(self._position)]
        self._position += len(events)
        events = self.events + events
        briefs = {event.run: event.brief for event in events if isinstance(event, RunStarted)}
        self.runs = [self._run.run_id]
        while (earlier := briefs[self.runs[0]].continues) in briefs:
            self.runs.insert(0, earlier)
        runs = set(self.runs)
        self.events = [
            event
            for event in events
            if event.run in runs or isinstance(event, RunStarted | RunFinished)
        ]


def rebuild_context(run: RunContext, events: Iterable[StoredEvent]) -> ContextBuilder:
    """Rebuild a run's messages, as its model has them, from events."""
    history = normalize_conversation(run.brief.history)
    context = ContextBuilder()
    for event in events:
        if event.run != run.run_id:
            continue
        if isinstance(event, RunStarted):
            # The record leaves out the messages of the runs that this one continues.
            event = replace(event, brief=replace(event.brief, history=history))
        context.apply(event)
    return context


def _write(run: RunContext, events: list[StoredEvent]) -> None:
    path = Path(find_record_path(run))
    text = run.services.redact(format_record(events))
    write_private_file(path, text.encode("utf-8", "replace"))


def format_record(events: Iterable[StoredEvent]) -> str:
    """Format prompts, messages, answers, calls and whole results of runs, in order."""
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
