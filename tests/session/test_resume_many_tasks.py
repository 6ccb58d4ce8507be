"""A session with many ended tasks continues without their events, and with what they spent."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mudroom import Agent, Budget, Reason, Session, Usage
from mudroom._projections.open_events import OpenEvents
from mudroom.events import RunFinished, StoredEvent
from mudroom.testing import Answer, MemoryJournal, Request, ScriptedModel, call

from .conftest import IsolatedOptions


async def record_tasks(
    tasks: int, isolated: IsolatedOptions, *, open_tasks: int = 0
) -> tuple[str, list[StoredEvent]]:
    """Record a session with a prompt and tasks, of which the last ones have no end."""
    journal = MemoryJournal()
    model = ScriptedModel(lambda request: f"did {request.prompt}")
    async with Session(model=model, journal=journal, **isolated) as session:
        await session.run("a prompt")
        await session.map([f"task {number}" for number in range(tasks)])
    events = [event async for event in journal.read()]
    last = [str(1 + tasks - number) for number in range(open_tasks)]
    kept = [each for each in events if not (isinstance(each, RunFinished) and each.run in last)]
    return session.id, kept[:-1]


def count_kept(events: list[StoredEvent]) -> int:
    recorded = OpenEvents(lambda model, usage: 0.0, drops_tasks=True)
    recorded.extend(events)
    assert recorded.count == len(events)
    return len(recorded.events) + len(recorded.heads) + len(recorded.starts)


async def test_events_of_ended_tasks_are_not_kept(isolated: IsolatedOptions) -> None:
    _, few = await record_tasks(20, isolated, open_tasks=3)
    _, many = await record_tasks(200, isolated, open_tasks=3)
    assert len(many) > 700
    assert count_kept(many) == count_kept(few)


async def test_costs_of_ended_tasks_are_those_of_their_reports(isolated: IsolatedOptions) -> None:
    _, events = await record_tasks(3, isolated)
    asked: list[str] = []

    def compute_price(model: str, usage: Usage) -> float:
        asked.append(model)
        return 0.5

    reports = {"2": 0.25, "3": 0.00001, "4": None}  # a report with few digits, and one without
    recorded = OpenEvents(compute_price, drops_tasks=True)
    for event in events:
        if isinstance(event, RunFinished) and event.run in reports:
            event = replace(event, report=replace(event.report, usd=reports[event.run]))
        recorded.apply(event)
    assert len(asked) == 2
    assert recorded.amounts.usd == 0.25 + 0.5 + 0.5
    assert recorded.amounts.is_price_known


@pytest.mark.parametrize("open_tasks", [0, 2])
async def test_a_resumed_session_counts_what_ended_tasks_spent(
    isolated: IsolatedOptions, open_tasks: int
) -> None:
    session_id, events = await record_tasks(9, isolated, open_tasks=open_tasks)
    journal = MemoryJournal()
    await journal.append(*events)
    model = ScriptedModel(lambda request: f"did {request.prompt}")
    options: dict[str, Any] = {"model": model, "journal": journal, "resume": session_id, **isolated}
    async with Session(budget=Budget(turns=11), **options) as session:
        assert len(session.unfinished_runs) == open_tasks
        for run_id in session.unfinished_runs:
            report = await session.resume_task(run_id)
            assert (report.run_id, report.ok) == (run_id, True)
        assert session.unfinished_runs == ()
        assert not model.requests, "no answer is bought twice"
        eleventh = await session.task("one more")
        assert (eleventh.run_id, eleventh.reason) == ("11", Reason.GOAL)
        assert (await session.task("too many")).reason is Reason.MAX_TURNS
        assert len(model.requests) <= 2


async def test_a_session_with_ended_tasks_can_be_continued_and_forked(
    isolated: IsolatedOptions,
) -> None:
    session_id, events = await record_tasks(3, isolated)
    journal = MemoryJournal()
    await journal.append(*events)
    texts: list[tuple[str, ...]] = []

    def answer(request: Request) -> str:
        texts.append(tuple(str(message) for message in request.messages))
        return "done"

    async with Session(
        model=ScriptedModel(answer), journal=journal, resume=session_id, **isolated
    ) as session:
        report = await session.run("go on")
    assert report.run_id == "5"
    assert "a prompt" in texts[-1][0]


async def test_named_children_of_an_ended_task_are_kept(isolated: IsolatedOptions) -> None:
    def answer(request: Request) -> Answer:
        if request.prompt == "LEAD" and not request.turn:
            return [call("task", prompt="CHILD", name="ann")]
        return "done"

    journal = MemoryJournal()
    lead = Agent(name="lead", budget=Budget(depth=1))
    model = ScriptedModel(answer)
    async with Session(model=model, journal=journal, agents=[lead], **isolated) as session:
        report = await session.task("LEAD", agent=lead)
        assert report.calls == {"task": 1}
    events = [event async for event in journal.read()]
    recorded = OpenEvents(lambda model, usage: 0.0, drops_tasks=True)
    recorded.extend(events)
    assert recorded.events == events
