"""The history checker itself.

Silent on what really happened, and every promise broken in a doctored record is named.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from mudroom import Reason, Session, Usage
from mudroom._core.budgets import Limit, LimitState
from mudroom._core.events import (
    AnyEvent,
    Delta,
    FileWriteIntended,
    RunFinished,
    RunResumed,
    RunStarted,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
    TurnStarted,
)
from mudroom.models.scripted import Answer, Request, ScriptedModel, call
from mudroom.testing.invariants import find_violations

COMMAND = "echo ran >> effects.txt"
SEEN = {COMMAND: 1}
Events = list[StoredEvent]


def script(request: Request) -> Answer:
    if request.prompt == "CHILD":
        return [
            [call("bash", command=COMMAND), call("write", file_path="a.txt", content="a")],
            "the child's report",
        ][request.turn]
    return [[call("task", prompt="CHILD")], [call("read", file_path="a.txt")], "done"][request.turn]


@pytest.fixture
async def recorded(tmp_path: Path) -> Events:
    events: list[AnyEvent] = []
    async with Session(
        model=ScriptedModel(script),
        cwd=str(tmp_path),
        home=str(tmp_path / "home"),
        journal="memory",
    ) as session:
        session.watch(events.append)
        await session.run("PARENT")
    return [event for event in events if not isinstance(event, Delta)]


def test_a_record_of_what_happened_is_in_order(recorded: Events) -> None:
    assert find_violations(recorded, effects=SEEN) == []


def at(events: Events, kind: type[StoredEvent], run: str, nth: int = 0) -> int:
    return [n for n, event in enumerate(events) if type(event) is kind and event.run == run][nth]


def drop(kind: type[StoredEvent], run: str, nth: int = 0) -> Callable[[Events], None]:
    return lambda events: events.pop(at(events, kind, run, nth)) and None


def twice(kind: type[StoredEvent], run: str, nth: int = 0) -> Callable[[Events], None]:
    return lambda events: events.insert(
        at(events, kind, run, nth), events[at(events, kind, run, nth)]
    )


def move(
    kind: type[StoredEvent], run: str, nth: int, *, before: type[StoredEvent], of: str
) -> Callable[[Events], None]:
    return lambda events: events.insert(
        at(events, before, of), events.pop(at(events, kind, run, nth))
    )


def resumed_in_a_command(events: Events) -> None:
    place = next(
        n for n, e in enumerate(events) if isinstance(e, ToolCallFinished) and e.name == "bash"
    )
    events.insert(place, RunResumed(at=0, run="1.1.1"))


def report(run: str, **fields: object) -> Callable[[Events], None]:
    def change(events: Events) -> None:
        place = at(events, RunFinished, run)
        event = events[place]
        assert isinstance(event, RunFinished)
        events[place] = replace(event, report=replace(event.report, **fields))

    return change


def delivered(**fields: object) -> Callable[[Events], None]:
    def change(events: Events) -> None:
        place = at(events, ToolCallFinished, "1")
        event = events[place]
        assert isinstance(event, ToolCallFinished)
        events[place] = replace(event, result=replace(event.result, **fields))

    return change


def a_turn_less_granted(events: Events) -> None:
    event = events[at(events, RunStarted, "1")]
    assert isinstance(event, RunStarted)
    events[at(events, RunStarted, "1")] = replace(
        event, brief=replace(event.brief, budget=replace(event.brief.budget, turns=2))
    )


def no_child_granted(events: Events) -> None:
    event = events[at(events, RunStarted, "1")]
    assert isinstance(event, RunStarted)
    events[at(events, RunStarted, "1")] = replace(
        event, brief=replace(event.brief, budget=replace(event.brief.budget, children=0))
    )


def graced(events: Events) -> None:
    place = at(events, TurnStarted, "1")
    events[place] = replace(events[place], summary_reason=Reason.TIMEOUT)  # pyright: ignore[reportCallIssue]


def lost_on_the_way(events: Events) -> None:
    from mudroom._engine.resume import INTERRUPTED

    delivered(text=INTERRUPTED, error=True, detail={})(events)


def same_ids(events: Events) -> None:
    place = at(events, TurnFinished, "1.1.1")
    event = events[place]
    assert isinstance(event, TurnFinished)
    first, second = event.message.tool_calls
    events[place] = replace(
        event, message=replace(event.message, content=(first, replace(second, id=first.id)))
    )


def died_for_an_hour(events: Events) -> None:
    place = at(events, ToolCallFinished, "1.1.1")
    events[place:] = [replace(event, at=event.at + 3600) for event in events[place:]]
    events[place:place] = [RunResumed(at=events[place].at, run=run) for run in ("1", "1.1.1")]


def a_minute_forgotten(events: Events) -> None:
    place = at(events, TurnStarted, "1", 1)
    events[place:] = [replace(event, at=event.at + 60) for event in events[place:]]


def granted_a_minute(events: Events) -> None:
    event = events[at(events, RunStarted, "1")]
    assert isinstance(event, RunStarted)
    events[at(events, RunStarted, "1")] = replace(
        event, brief=replace(event.brief, budget=replace(event.brief.budget, seconds=60))
    )
    report("1", reason=Reason.TIMEOUT)(events)


def ended_by_a_minute_of_the_session(events: Events) -> None:
    granted_a_minute(events)
    report("1", limit=LimitState(Limit.SECONDS, maximum=50, spent=50))(events)


DOCTORED: dict[str, tuple[str, Callable[[Events], None]]] = {
    "an act without its intent": ("S1", drop(ToolCallStarted, "1.1.1")),
    "a result before its intent": (
        "S1",
        move(ToolCallFinished, "1", 0, before=ToolCallStarted, of="1"),
    ),
    "a change outside of its call": (
        "S1",
        move(FileWriteIntended, "1.1.1", 0, before=ToolCallStarted, of="1.1.1"),
    ),
    "a child before its call's intent": (
        "S1",
        move(ToolCallStarted, "1", 0, before=RunFinished, of="1.1.1"),
    ),
    "an event before its run": ("S1", drop(RunStarted, "1.1.1")),
    "a call before its answer was stored": (
        "S2",
        move(TurnFinished, "1", 0, before=ToolCallFinished, of="1"),
    ),
    "an answer bought twice": ("S2", twice(TurnFinished, "1")),
    "a turn asked for again after its answer": (
        "S2",
        move(TurnStarted, "1", 0, before=RunStarted, of="1.1.1"),
    ),
    "two turns at a time": ("S2", twice(TurnStarted, "1")),
    "a call begun twice": ("S3", twice(ToolCallStarted, "1.1.1")),
    "a command run again after an interruption": ("S3", resumed_in_a_command),
    "a run begun twice": ("S4", twice(RunStarted, "1.1.1")),
    "a report that did not reach the parent": ("S4", lost_on_the_way),
    "another text than the report": ("S4", delivered(text="something else")),
    "the report of another run": ("S4", delivered(detail={"run": "1.1.2"})),
    "a call without a result": ("S7", drop(ToolCallFinished, "1.1.1")),
    "two results of a call": ("S7", twice(ToolCallFinished, "1")),
    "call ids that come twice": ("S7", same_ids),
    "turns forgotten": ("S9", report("1", turns=1)),
    "tokens forgotten": ("S9", report("1", usage=Usage())),
    "more turns than granted": ("S9", a_turn_less_granted),
    "more children than granted": ("S9", no_child_granted),
    "a minute forgotten": ("S9", a_minute_forgotten),
    "a minute that never was": ("S9", report("1", seconds=60)),
    "time that was up before it was": ("S10", granted_a_minute),
    "time of the session that was up before it was": ("S10", ended_by_a_minute_of_the_session),
    "a run without an end": ("S10", drop(RunFinished, "1")),
    "a run with two ends": ("S10", twice(RunFinished, "1.1.1")),
    "a child that outlives its parent": (
        "S10",
        move(RunFinished, "1", 0, before=RunFinished, of="1.1.1"),
    ),
    "an act after the last word": ("S10", graced),
}


def test_a_run_may_end_early_by_the_time_limit_of_the_session(recorded: Events) -> None:
    granted_a_minute(recorded)
    report("1", limit=LimitState(Limit.SECONDS, maximum=0.001, spent=0.002))(recorded)
    assert not find_violations(recorded)


@pytest.mark.parametrize("name", DOCTORED)
def test_every_violation_is_caught(recorded: Events, name: str) -> None:
    promise, doctor = DOCTORED[name]
    doctor(recorded)
    assert promise in {found.promise for found in find_violations(recorded)}


def test_the_time_in_which_no_process_was_there_does_not_count(recorded: Events) -> None:
    died_for_an_hour(recorded)
    assert "S9" not in {found.promise for found in find_violations(recorded)}


def test_of_a_record_on_virtual_time_the_times_are_not_judged(recorded: Events) -> None:
    a_minute_forgotten(recorded)
    assert find_violations(recorded, timed=False) == []


def test_effects_are_held_against_the_record(recorded: Events) -> None:
    assert [found.promise for found in find_violations(recorded, effects={COMMAND: 2})] == ["S3"]
    assert [found.promise for found in find_violations(recorded, effects={})] == ["S1"]
    assert [
        found.promise
        for found in find_violations(recorded, effects={**SEEN, "rm -rf nobody-asked": 1})
    ] == ["S3"]


def test_a_record_of_a_killed_session_may_be_open(recorded: Events) -> None:
    killed = recorded[: at(recorded, ToolCallFinished, "1.1.1")]
    assert find_violations(killed, ended=False) == []
    assert {found.promise for found in find_violations(killed)} == {"S10"}


def test_a_violation_is_one_line(recorded: Events) -> None:
    drop(RunFinished, "1")(recorded)
    assert [str(found) for found in find_violations(recorded)] == ["S10 in run 1: it has no end"]
