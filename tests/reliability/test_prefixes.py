"""S9: a run tree of three levels, cut off after each record; its spending counts on resume."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.records import read_record, write_record

from mudroom import AssistantMessage, Budget, Reason, Report, Session, TextBlock, Usage
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import (
    RunFinished,
    RunStarted,
    StoredEvent,
    ToolCallFinished,
    TurnFinished,
    TurnStarted,
)
from mudroom._projections.transcript import build_transcript
from mudroom._replay import replay
from mudroom.testing.invariants import find_violations

from .killed import LONG

REFUSED = (
    "No child was started: the budget of 7 children is used up. Ask for less, or do the "
    "rest yourself."
)


def script(request: Request) -> Answer:
    if request.prompt == "GRANDCHILD":
        return [[call("todo", todos=[])], "I am small."][request.turn]
    if request.prompt == "CHILD":
        return [
            [call("task", prompt="GRANDCHILD"), call("task", prompt="GRANDCHILD")],
            "They are small.",
        ][request.turn]
    if request.prompt == "LATE":
        return "I came late."
    return [
        [call("task", prompt="CHILD"), call("task", prompt="CHILD")],
        [call("task", prompt="LATE")],
        [call("task", prompt="LATE")],
        "All are done.",
    ][request.turn]


async def resume(home: Path, session: str, model: ScriptedModel) -> Report | None:
    async with Session(model=model, home=str(home), resume=session, sandbox="off") as resumed:
        return await resumed.resume_unfinished()


@pytest.fixture
async def recorded(tmp_path: Path) -> tuple[str, list[StoredEvent]]:
    home, budget = str(tmp_path / "home"), Budget(children=7, depth=2)
    async with Session(
        model=ScriptedModel(script), cwd=str(tmp_path), home=home, budget=budget, sandbox="off"
    ) as session:
        await session.run("PARENT")
    return session.id, read_record(tmp_path / "home", session.id)


@pytest.mark.timeout(600)
async def test_s9_children_and_tokens_of_a_dead_process_count_at_every_level(
    tmp_path: Path, recorded: tuple[str, list[StoredEvent]]
) -> None:
    session, events = recorded
    assert not find_violations(events)
    assert await replay(events) == events
    first = next(n for n, event in enumerate(events) if isinstance(event, RunStarted)) + 1
    for cut in range(first, len(events) - 1, 1 if LONG else 3):
        home = tmp_path / str(cut)
        await write_record(home, session, *events[:cut])
        report = await resume(home, session, ScriptedModel(script))
        record = read_record(home, session)
        assert not find_violations(record), f"cut off after {cut} records"
        assert await replay(record) == record, f"cut off after {cut} records"
        assert report is None or report.text == "All are done."
        assert sum(isinstance(event, RunStarted) for event in record) == 8
        assert [
            event.result.text
            for event in record
            if isinstance(event, ToolCallFinished) and event.run == "1"
        ][-1] == REFUSED


async def test_s9_the_dollars_of_a_finished_child_count_after_a_resume(tmp_path: Path) -> None:
    """Each answer costs 0.3 dollars: the third, of parent or child, is the last."""

    def spend(request: Request) -> AssistantMessage:
        calls = [call("task", prompt="CHILD"), call("read", path="notes.txt")]
        mine = calls[: request.turn + 1] if request.prompt == "PARENT" else []
        blocks = (TextBlock(f"answer {request.turn}"), *mine[-1:])
        return AssistantMessage(blocks, usage=Usage(input_tokens=100_000))

    model = ScriptedModel(spend, "anthropic:claude-sonnet-4-5")
    home = str(tmp_path / "home")
    budget = Budget(usd=0.8)
    async with Session(
        model=model, cwd=str(tmp_path), home=home, budget=budget, sandbox="off"
    ) as session:
        whole = await session.run("PARENT")
    assert (whole.reason, whole.text) == (Reason.BUDGET, "answer 1")
    assert whole.usd == pytest.approx(0.9)
    events = read_record(home, session.id)
    first = next(n for n, event in enumerate(events) if isinstance(event, RunStarted)) + 1
    for cut in range(first, len(events) - 1):
        folder = tmp_path / str(cut)
        await write_record(folder, session.id, *events[:cut])
        report = await resume(folder, session.id, model)
        assert report, cut
        assert (report.reason, report.text) == (Reason.BUDGET, "answer 1"), cut
        assert report.usd == pytest.approx(0.9), cut


async def test_s9_a_resumed_child_has_its_remaining_time(tmp_path: Path) -> None:
    def brief(request: Request) -> Answer:
        if request.prompt == "CHILD":
            return [[call("todo", todos=[])], "I am done."][request.turn]
        return [[call("task", prompt="CHILD")], "We are done."][request.turn]

    home = str(tmp_path / "home")
    async with Session(
        model=ScriptedModel(brief),
        cwd=str(tmp_path),
        home=home,
        budget=Budget(seconds=10),
        sandbox="off",
    ) as session:
        await session.run("PARENT")
    events = read_record(home, session.id)
    cut = (
        next(
            n
            for n, event in enumerate(events)
            if isinstance(event, TurnFinished) and event.run != "1"
        )
        + 1
    )
    late = [*events[: cut - 1], replace(events[cut - 1], at=events[cut - 1].at + 6)]
    await write_record(tmp_path, session.id, *late)
    report = await resume(tmp_path, session.id, ScriptedModel(brief))
    assert report and report.text == "We are done."
    reports = {
        event.run: event.report
        for event in read_record(tmp_path, session.id)
        if isinstance(event, RunFinished)
    }
    assert (reports["1.1.1"].reason, reports["1.1.1"].text) == (Reason.GOAL, "I am done.")
    assert reports["1.1.1"].seconds > 6


@pytest.mark.parametrize("reason", [Reason.MAX_TURNS, Reason.CANCELLED])
@pytest.mark.parametrize("answered", [False, True])
async def test_s10_a_run_killed_in_its_grace_turn_sends_a_summary_and_ends(
    tmp_path: Path, answered: bool, reason: Reason
) -> None:
    def script_without_end(request: Request) -> Answer:
        return ["I continue to read.", call("todo", todos=[])] if request.tools else "The summary."

    home = str(tmp_path / "home")
    async with Session(
        model=ScriptedModel(script_without_end),
        cwd=str(tmp_path),
        home=home,
        budget=Budget(turns=2),
        sandbox="off",
    ) as session:
        first_report = await session.run("PARENT")
    events = read_record(home, session.id)
    kind = TurnFinished if answered else TurnStarted
    cut = (
        next(n for n, event in enumerate(events) if isinstance(event, kind) and event.turn == 3) + 1
    )
    kept = [
        replace(event, summary_reason=reason)
        if isinstance(event, TurnStarted) and event.summary_reason
        else event
        for event in events[:cut]
    ]
    await write_record(tmp_path, session.id, *kept)
    model = ScriptedModel(script_without_end)
    report = await resume(tmp_path, session.id, model)
    assert report and (report.reason, report.recovered, report.text) == (
        reason,
        True,
        "The summary.",
    )
    assert report.turns == first_report.turns == 3
    record = read_record(tmp_path, session.id)
    assert not find_violations(record)
    assert build_transcript(record, "1")[:-1] == build_transcript(events, "1")[:-1], (
        "the transcript does not repeat a message"
    )
    asked = [request.messages for request in model.requests]
    assert asked == ([] if answered else [build_transcript(events, "1")[:-1]])
