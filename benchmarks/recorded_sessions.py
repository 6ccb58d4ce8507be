"""Recorded sessions for measurements. All their runs have ended."""

from __future__ import annotations

import os
from pathlib import Path

from mudroom._adapters.journals.sqlite.store import SqliteStore
from mudroom._core.events import SessionClosed, SessionOpened, StoredEvent
from mudroom._core.messages import TextBlock
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


async def write_long_session(home: Path, session: str, folder: str, prompts: int) -> int:
    """Write a session of `prompts` prompts, each with 8 children; return its number of events."""
    events = [_open(session, folder)]
    for prompt in range(1, prompts + 1):
        continues = str(prompt - 1) if prompt > 1 else ""
        events += _make_parent(str(prompt), "", _CHILDREN, continues=continues)
    return await _write(home, session, events)


async def write_deep_session(home: Path, session: str, folder: str, runs: int) -> int:
    """Write a session of one prompt, one child and `runs` runs below it.

    So the conversation of the root run is short. Return the number of events.
    """
    child = _make_parent("1.1.0", "1", runs)
    call = tool_call("t0", "task", prompt="Look.")
    events = [_open(session, folder), run_started("1", prompt="Look at all.")]
    events += turn_events("1", call)
    events += child
    events += tool_call_events("1", call)
    events += turn_events("1", TextBlock("All is read."), turn=2)
    return await _write(home, session, [*events, run_finished("1")])


def _open(session: str, folder: str) -> StoredEvent:
    return SessionOpened(at=0.0, session=session, cwd=os.path.realpath(folder), version="0")


async def _write(home: Path, session: str, events: list[StoredEvent]) -> int:
    journal = await SqliteStore(home).create(session)
    for start in range(0, len(events), _APPEND):
        await journal.append(*events[start : start + _APPEND])
    await journal.append(SessionClosed(at=0.0))
    await journal.close()
    return len(events) + 1


def _make_parent(run: str, parent: str, children: int, continues: str = "") -> list[StoredEvent]:
    calls = [tool_call(f"t{child}", "task", prompt="Look.") for child in range(children)]
    events: list[StoredEvent] = [
        run_started(run, parent, prompt="Look at all.", continues=continues, call_id="t0")
    ]
    events += turn_events(run, *calls)
    for child in range(children):
        events += _make_child(f"{run}.1.{child}", run, f"t{child}")
    for call in calls:
        events += tool_call_events(run, call)
    events += turn_events(run, TextBlock("All is read."), turn=2)
    return [*events, run_finished(run)]


def _make_child(run: str, parent: str, call_id: str) -> list[StoredEvent]:
    events: list[StoredEvent] = [run_started(run, parent, call_id=call_id)]
    for turn in range(1, _TURNS):
        call = tool_call(f"c{turn}", "read", path=f"notes-{turn}.txt")
        events += turn_events(run, call, turn=turn)
        events += tool_call_events(run, call)
    events += turn_events(run, TextBlock("It is read."), turn=_TURNS)
    return [*events, run_finished(run)]
