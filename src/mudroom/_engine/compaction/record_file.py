"""The record of a conversation: its events, and the file in which the tools can search them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from ..._core.events import RunStarted, StoredEvent
from ..._platform.private_files import make_private_folder, write_private_file
from ...projections.context import ContextBuilder
from ...projections.record_text import format_record
from ..normalize import normalize_conversation
from ..run_context import RunContext


def find_record_path(run: RunContext) -> str:
    """Return the path of the file; the tools may read it."""
    return os.path.join(run.services.spill_folder, f"{run.run_id}-record.txt")


async def read_conversation(run: RunContext) -> tuple[list[str], list[StoredEvent]]:
    """Return the ids of the runs of a conversation, oldest first, and all events of the session."""
    await run.recorder.record()
    events = [event async for event in run.services.journal.read()]
    briefs = {event.run: event.brief for event in events if isinstance(event, RunStarted)}
    runs = [run.run_id]
    while (earlier := briefs[runs[0]].continues) in briefs:
        runs.insert(0, earlier)
    return runs, events


def rebuild_context(run: RunContext, events: Iterable[StoredEvent]) -> ContextBuilder:
    """Return the messages of a run as its model has them, from events."""
    history = normalize_conversation(run.brief.history)
    context = ContextBuilder()
    for event in events:
        if isinstance(event, RunStarted):
            # The record has no messages of the runs that this one continues.
            event = replace(event, brief=replace(event.brief, history=history))
        if event.run == run.run_id:
            context.apply(event)
    return context


async def read_context(run: RunContext) -> ContextBuilder:
    """Return the messages of a run as its model has them, from the record."""
    _, events = await read_conversation(run)
    return rebuild_context(run, events)


async def write_record(run: RunContext) -> tuple[list[str], list[StoredEvent]]:
    """Write the whole conversation so far to the file. Return what `read_conversation` returns."""
    runs, events = await read_conversation(run)
    await asyncio.to_thread(_write, run, [event for event in events if event.run in set(runs)])
    return runs, events


def _write(run: RunContext, events: list[StoredEvent]) -> None:
    path = Path(find_record_path(run))
    text = run.services.redact(format_record(events))
    make_private_folder(path.parent)
    write_private_file(path, text.encode("utf-8", "replace"))
