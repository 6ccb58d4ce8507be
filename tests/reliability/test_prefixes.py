"""S9: a run tree of three levels, cut off after each record; its spending counts on resume."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from mudroom import AssistantMessage, Budget, Reason, TextBlock, Usage
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import (
    RunFinished,
    RunStarted,
    ToolCallFinished,
    TurnFinished,
    TurnStarted,
)
from mudroom._projections.transcript import build_transcript
from mudroom._replay import replay
from mudroom.testing.invariants import find_violations

from .recorded import list_cuts, record_session, resume_record

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


@pytest.mark.timeout(600)
async def test_s9_children_and_tokens_of_a_dead_process_count_at_every_level(
    tmp_path: Path,
) -> None:
    budget = Budget(children=7, depth=2)
    _, events = await record_session(tmp_path, script, budget=budget)
    assert not find_violations(events)
    assert await replay(events) == events
    for cut in list_cuts(events, 3):
        report, record = await resume_record(tmp_path / str(cut), events[:cut], script)
        assert report is None or report.text == "All are done."
        assert sum(isinstance(event, RunStarted) for event in record) == 8
        results = [e for e in record if isinstance(e, ToolCallFinished) and e.run == "1"]
        assert results[-1].result.text == REFUSED


async def test_s9_the_dollars_of_a_finished_child_count_after_a_resume(tmp_path: Path) -> None:
    """Each answer costs 0.3 dollars: the third, of parent or child, is the last."""

    def spend(request: Request) -> AssistantMessage:
        calls = [call("task", prompt="CHILD"), call("read", path="notes.txt")]
        mine = calls[: request.turn + 1] if request.prompt == "PARENT" else []
        blocks = (TextBlock(f"answer {request.turn}"), *mine[-1:])
        return AssistantMessage(blocks, usage=Usage(input_tokens=100_000))

    model = ScriptedModel(spend, "anthropic:claude-sonnet-4-5")
    whole, events = await record_session(tmp_path, model, budget=Budget(usd=0.8))
    assert (whole.reason, whole.text) == (Reason.BUDGET, "answer 1")
    assert whole.usd == pytest.approx(0.9)
    for cut in list_cuts(events):
        report, _ = await resume_record(tmp_path / str(cut), events[:cut], model)
        assert report, cut
        assert (report.reason, report.text) == (Reason.BUDGET, "answer 1"), cut
        assert report.usd == pytest.approx(0.9), cut


async def test_s9_a_resumed_child_has_its_remaining_time(tmp_path: Path) -> None:
    def brief(request: Request) -> Answer:
        if request.prompt == "CHILD":
            return [[call("todo", todos=[])], "I am done."][request.turn]
        return [[call("task", prompt="CHILD")], "We are done."][request.turn]

    _, events = await record_session(tmp_path, brief, budget=Budget(seconds=10))
    answers = [n for n, event in enumerate(events) if isinstance(event, TurnFinished)]
    last = next(n for n in answers if events[n].run != "1")
    late = [*events[:last], replace(events[last], at=events[last].at + 6)]
    report, record = await resume_record(tmp_path / "late", late, brief)
    assert report and report.text == "We are done."
    reports = {event.run: event.report for event in record if isinstance(event, RunFinished)}
    assert (reports["1.1.1"].reason, reports["1.1.1"].text) == (Reason.GOAL, "I am done.")
    assert reports["1.1.1"].seconds > 6


@pytest.mark.parametrize("reason", [Reason.MAX_TURNS, Reason.CANCELLED])
@pytest.mark.parametrize("answered", [False, True])
async def test_s10_a_run_killed_in_its_grace_turn_sends_a_summary_and_ends(
    tmp_path: Path, answered: bool, reason: Reason
) -> None:
    def script_without_end(request: Request) -> Answer:
        return ["I continue to read.", call("todo", todos=[])] if request.tools else "The summary."

    budget = Budget(turns=2)
    first_report, events = await record_session(tmp_path, script_without_end, budget=budget)
    kind = TurnFinished if answered else TurnStarted
    last = next(n for n, e in enumerate(events) if isinstance(e, kind) and e.turn == 3)
    kept = [
        replace(event, summary_reason=reason)
        if isinstance(event, TurnStarted) and event.summary_reason
        else event
        for event in events[: last + 1]
    ]
    model = ScriptedModel(script_without_end)
    is_real = reason is Reason.MAX_TURNS  # another reason belongs to another note in the record
    report, record = await resume_record(tmp_path / "cut", kept, model, replays=is_real)
    assert report and (report.reason, report.recovered) == (reason, True)
    assert report.text == "The summary."
    assert report.turns == first_report.turns == 3
    transcript = build_transcript(events, "1")[:-1]
    assert build_transcript(record, "1")[:-1] == transcript, "a message is repeated"
    asked = [request.messages for request in model.requests]
    assert asked == ([] if answered else [transcript])
