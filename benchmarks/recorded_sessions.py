"""Recorded sessions for measurements: one of 100,000 events, and many small ones."""

from __future__ import annotations

import os
from pathlib import Path

from mudroom._core.events import SessionOpened, StoredEvent
from mudroom._core.messages import TextBlock
from mudroom.journals.sqlite.store import SqliteStore
from mudroom.testing.event_builders import (
    run_finished,
    run_started,
    tool_call,
    tool_call_events,
    turn_events,
)

_APPEND = 1_000
_TURNS = 10
_CHILDREN = 8


async def write_session(home: Path, session: str, folder: str, prompts: int) -> int:
    """Write a session of `prompts` prompts, each with 8 children; return its number of events.

    All runs have ended.
    """
    events: list[StoredEvent] = [
        SessionOpened(at=0.0, session=session, cwd=os.path.realpath(folder), version="0")
    ]
    for prompt in range(1, prompts + 1):
        events += _make_prompt(prompt)
    journal = await SqliteStore(home).create(session)
    for start in range(0, len(events), _APPEND):
        await journal.append(*events[start : start + _APPEND])
    await journal.close()
    return len(events)


def _make_prompt(prompt: int) -> list[StoredEvent]:
    root = str(prompt)
    continues = str(prompt - 1) if prompt > 1 else ""
    calls = [tool_call(f"t{child}", "task", prompt="Look.") for child in range(_CHILDREN)]
    events: list[StoredEvent] = [run_started(root, prompt="Look at all.", continues=continues)]
    events += turn_events(root, *calls)
    for child in range(_CHILDREN):
        events += _make_child(root, child)
    for call in calls:
        events += tool_call_events(root, call)
    events += turn_events(root, TextBlock("All is read."), turn=2)
    return [*events, run_finished(root)]


def _make_child(root: str, child: int) -> list[StoredEvent]:
    run = f"{root}.1.{child}"
    events: list[StoredEvent] = [run_started(run, parent=root, call_id=f"t{child}")]
    for turn in range(1, _TURNS):
        call = tool_call(f"c{turn}", "read", path=f"notes-{turn}.txt")
        events += turn_events(run, call, turn=turn)
        events += tool_call_events(run, call)
    events += turn_events(run, TextBlock("It is read."), turn=_TURNS)
    return [*events, run_finished(run)]
