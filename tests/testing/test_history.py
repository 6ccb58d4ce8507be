"""The history checker itself.

Silent on what really happened, and every promise broken in a doctored record is named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from mudroom import Reason, Session, Usage
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.budgets import Limit, LimitState
from mudroom._core.events import (
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
from mudroom._engine.conversation import INTERRUPTED
from mudroom.testing import MemoryJournal
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


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Events:
    """The record of one session, which all tests read."""
    folder = tmp_path_factory.mktemp("history")
    journal = MemoryJournal()

    async def record() -> None:
        async with Session(
            model=ScriptedModel(script),
            cwd=str(folder),
            home=str(folder / "home"),
            journal=journal,
        ) as session:
            await session.run("PARENT")

    asyncio.run(record())
    return journal.events


@pytest.fixture
def recorded(history: Events) -> Events:
    """A copy to doctor."""
    return list(history)


def test_a_record_of_what_happened_is_in_order(recorded: Events) -> None:
    assert find_violations(recorded, effects=SEEN) == []


def find_event(events: Events, kind: type[StoredEvent], run: str, nth: int = 0) -> int:
    return [n for n, event in enumerate(events) if type(event) is kind and event.run == run][nth]


def drop(kind: type[StoredEvent], run: str, nth: int = 0) -> Callable[[Events], None]:
    return lambda events: events.pop(find_event(events, kind, run, nth)) and None


def repeat_event(kind: type[StoredEvent], run: str, nth: int = 0) -> Callable[[Events], None]:
    return lambda events: events.insert(
        find_event(events, kind, run, nth), events[find_event(events, kind, run, nth)]
    )


def move(
    kind: type[StoredEvent], run: str, nth: int, *, before: type[StoredEvent], of: str
) -> Callable[[Events], None]:
    return lambda events: events.insert(
        find_event(events, before, of), events.pop(find_event(events, kind, run, nth))
    )


def resume_in_a_command(events: Events) -> None:
    place = next(
        n for n, e in enumerate(events) if isinstance(e, ToolCallFinished) and e.name == "bash"
    )
    events.insert(place, RunResumed(at=0, run="1.1.1"))


def report(run: str, **fields: object) -> Callable[[Events], None]:
    def change(events: Events) -> None:
        place = find_event(events, RunFinished, run)
        event = events[place]
        assert isinstance(event, RunFinished)
        events[place] = replace(event, report=replace(event.report, **fields))

    return change


def add_delivery(**fields: object) -> Callable[[Events], None]:
    def change(events: Events) -> None:
        place = find_event(events, ToolCallFinished, "1")
        event = events[place]
        assert isinstance(event, ToolCallFinished)
        events[place] = replace(event, result=replace(event.result, **fields))

    return change


def grant(**limits: float) -> Callable[[Events], None]:
    def change(events: Events) -> None:
        place = find_event(events, RunStarted, "1")
        event = events[place]
        assert isinstance(event, RunStarted)
        budget = replace(event.brief.budget, **limits)
        events[place] = replace(event, brief=replace(event.brief, budget=budget))

    return change


def add_grace_turn(events: Events) -> None:
    place = find_event(events, TurnStarted, "1")
    events[place] = replace(events[place], summary_reason=Reason.TIMEOUT)  # pyright: ignore[reportCallIssue]


def repeat_ids(events: Events) -> None:
    place = find_event(events, TurnFinished, "1.1.1")
    event = events[place]
    assert isinstance(event, TurnFinished)
    first, second = event.message.tool_calls
    events[place] = replace(
        event, message=replace(event.message, content=(first, replace(second, id=first.id)))
    )


def delay(events: Events, place: int, seconds: float) -> None:
    events[place:] = [replace(event, at=event.at + seconds) for event in events[place:]]


def forget_a_minute(events: Events) -> None:
    delay(events, find_event(events, TurnStarted, "1", 1), 60)


def time_out(events: Events, limit: LimitState | None = None) -> None:
    grant(seconds=60)(events)
    report("1", reason=Reason.TIMEOUT, limit=limit)(events)


SESSION_LIMIT = LimitState(Limit.SECONDS, maximum=50, spent=50)


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
    "an answer bought twice": ("S2", repeat_event(TurnFinished, "1")),
    "a turn asked for again after its answer": (
        "S2",
        move(TurnStarted, "1", 0, before=RunStarted, of="1.1.1"),
    ),
    "two turns at a time": ("S2", repeat_event(TurnStarted, "1")),
    "a call begun twice": ("S3", repeat_event(ToolCallStarted, "1.1.1")),
    "a command run again after an interruption": ("S3", resume_in_a_command),
    "a run begun twice": ("S4", repeat_event(RunStarted, "1.1.1")),
    "a report that did not reach the parent": (
        "S4",
        add_delivery(text=INTERRUPTED, error=True, detail={}),
    ),
    "another text than the report": ("S4", add_delivery(text="something else")),
    "the report of another run": ("S4", add_delivery(detail={"run": "1.1.2"})),
    "a call without a result": ("S7", drop(ToolCallFinished, "1.1.1")),
    "two results of a call": ("S7", repeat_event(ToolCallFinished, "1")),
    "call ids that come twice": ("S7", repeat_ids),
    "turns forgotten": ("S9", report("1", turns=1)),
    "tokens forgotten": ("S9", report("1", usage=Usage())),
    "more turns than granted": ("S9", grant(turns=2)),
    "more children than granted": ("S9", grant(children=0)),
    "a minute forgotten": ("S9", forget_a_minute),
    "a minute that never was": ("S9", report("1", seconds=60)),
    "time that was up before it was": ("S10", time_out),
    "time of the session that was up before it was": (
        "S10",
        lambda events: time_out(events, SESSION_LIMIT),
    ),
    "a run without an end": ("S10", drop(RunFinished, "1")),
    "a run with two ends": ("S10", repeat_event(RunFinished, "1.1.1")),
    "a child that outlives its parent": (
        "S10",
        move(RunFinished, "1", 0, before=RunFinished, of="1.1.1"),
    ),
    "an act after the last word": ("S10", add_grace_turn),
}


def test_a_run_may_end_early_by_the_time_limit_of_the_session(recorded: Events) -> None:
    time_out(recorded, LimitState(Limit.SECONDS, maximum=0.001, spent=0.002))
    assert not find_violations(recorded)


@pytest.mark.parametrize("name", DOCTORED)
def test_every_violation_is_caught(recorded: Events, name: str) -> None:
    promise, doctor = DOCTORED[name]
    doctor(recorded)
    assert promise in {found.promise for found in find_violations(recorded)}


def test_the_time_in_which_no_process_was_there_does_not_count(recorded: Events) -> None:
    place = find_event(recorded, ToolCallFinished, "1.1.1")
    delay(recorded, place, 3600)
    at = recorded[place].at
    recorded[place:place] = [RunResumed(at=at, run=run) for run in ("1", "1.1.1")]
    assert "S9" not in {found.promise for found in find_violations(recorded)}


@pytest.mark.parametrize("has_open_call", [False, True])
def test_the_time_until_a_lost_run_and_its_calls_are_ended_does_not_count(
    recorded: Events, *, has_open_call: bool
) -> None:
    delay(recorded, find_event(recorded, RunFinished, "1.1.1"), 60)
    report("1.1.1", reason=Reason.LOST)(recorded)
    if has_open_call:
        result = recorded.pop(find_event(recorded, ToolCallFinished, "1.1.1"))
        end = find_event(recorded, RunFinished, "1.1.1")
        recorded.insert(end, replace(result, at=recorded[end].at))
    late = {found.run for found in find_violations(recorded) if found.promise == "S9"}
    assert "1.1.1" not in late


def test_of_a_record_on_virtual_time_the_times_are_not_judged(recorded: Events) -> None:
    forget_a_minute(recorded)
    assert find_violations(recorded, timed=False) == []


def test_effects_are_held_against_the_record(recorded: Events) -> None:
    assert [found.promise for found in find_violations(recorded, effects={COMMAND: 2})] == ["S3"]
    assert [found.promise for found in find_violations(recorded, effects={})] == ["S1"]
    assert [
        found.promise
        for found in find_violations(recorded, effects={**SEEN, "rm -rf nobody-asked": 1})
    ] == ["S3"]


def test_a_record_of_a_killed_session_may_be_open(recorded: Events) -> None:
    killed = recorded[: find_event(recorded, ToolCallFinished, "1.1.1")]
    assert find_violations(killed, ended=False) == []
    assert {found.promise for found in find_violations(killed)} == {"S10"}


def test_a_violation_is_one_line(recorded: Events) -> None:
    drop(RunFinished, "1")(recorded)
    assert [str(found) for found in find_violations(recorded)] == ["S10 in run 1: it has no end"]
