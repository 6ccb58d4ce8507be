"""Limits: each ends a run with its own reason, after a turn that asks for a summary."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.engine.conftest import Lines, Stage, Step, block_texts

from mudroom import (
    AssistantMessage,
    Budget,
    Children,
    Effect,
    Integrations,
    Reason,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
    tool,
)
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.budgets import Limit
from mudroom._core.events import RunStarted, ToolCallFinished, TurnFailed, TurnFinished
from mudroom._core.runs import Brief
from mudroom._engine.conversation import INTERRUPTED
from mudroom._engine.finish import NOT_RUN
from mudroom._engine.meters.run_timer import GRACE_SECONDS
from mudroom._replay import replay
from mudroom.ports import Hooks
from mudroom.testing.clock import run_virtual


def read_parts(request: Request) -> Answer:
    """Read another part each turn; give a summary when there are no tools."""
    return (
        ["so far", call("read", path="notes.txt", limit=request.turn + 1)]
        if request.tools
        else "my summary"
    )


def answer_while_tools(first: Answer | Step, then: Answer | Step) -> Step:
    """Return a script with one answer for requests with tools and one for requests without."""

    def answer(request: Request) -> Answer | Awaitable[Answer]:
        line = first if request.tools else then
        return line(request) if callable(line) else line

    return answer


@tool(effect=Effect.PURE)
async def endless() -> str:
    """Wait without end."""
    await asyncio.sleep(1e6)
    return "never"


async def forever(request: Request) -> Answer:
    await asyncio.sleep(1e6)
    raise AssertionError("the run was not cancelled")


async def test_max_turns_ends_with_a_summary_turn_without_tools(
    stage: Stage,
) -> None:
    report = await stage.run({"PARENT": [read_parts]}, budget=Budget(turns=2))
    assert (report.reason, report.recovered, report.text, report.turns) == (
        Reason.MAX_TURNS,
        True,
        "my summary",
        3,
    )
    *before, grace = stage.model.requests
    assert len(before) == 2 and all(asked.tools for asked in before) and grace.tools == ()
    assert "used up your turns" in stage.list_notes()[-1] and "Summarise" in stage.list_notes()[-1]


async def test_an_empty_summary_is_not_recovered_and_the_last_text_is_reported(
    stage: Stage,
) -> None:
    report = await stage.run(
        {"PARENT": [answer_while_tools(read_parts, "")]}, budget=Budget(turns=2)
    )
    assert (report.reason, report.recovered, report.text) == (Reason.MAX_TURNS, False, "so far")


async def test_calls_in_the_summary_turn_never_run(stage: Stage) -> None:
    stubborn = call("write", path="new.txt", content="x")
    async with stage.open(
        {"PARENT": [read_parts, ["well", stubborn], "I go on"]}, prompt_budget=Budget(turns=1)
    ) as session:
        first = await session.run("PARENT")
        second = await session.run("and now?")
    assert (first.reason, first.text, second.text) == (Reason.MAX_TURNS, "well", "I go on")
    assert not (stage.folder / "new.txt").exists()
    messages = stage.model.requests[-1].messages
    calls = [
        block.id
        for message in messages
        for block in message.content
        if isinstance(block, ToolCallBlock)
    ]
    results = [
        block.call_id
        for message in messages
        for block in message.content
        if isinstance(block, ToolResultBlock)
    ]
    assert calls == results
    last = stage.select(ToolCallFinished)[-1]
    assert (last.call_id, last.name, last.refused) == (calls[-1], "write", True)
    assert last.result.error and last.result.text == NOT_RUN


def test_a_timeout_cancels_a_hanging_tool_and_the_model_sees_it(stage: Stage) -> None:
    story = {"PARENT": [answer_while_tools(["I wait", call("endless")], "it hung")]}
    report = run_virtual(stage.run(story, tools=[endless], budget=Budget(seconds=5)))
    assert (report.reason, report.recovered, report.text) == (Reason.TIMEOUT, True, "it hung")
    assert report.seconds == pytest.approx(5, abs=0.1)
    assert block_texts(stage.model.requests[-1].messages[-1])[0] == INTERRUPTED
    assert [event.result.text for event in stage.select(ToolCallFinished)] == [INTERRUPTED]


def test_a_timeout_cuts_off_a_late_answer_and_requests_a_summary(stage: Stage) -> None:
    reading = ["so far", call("read", path="notes.txt")]
    story = {"PARENT": [reading, answer_while_tools(forever, "half of it")]}
    report = run_virtual(stage.run(story, budget=Budget(seconds=5)))
    assert (report.reason, report.recovered, report.text) == (Reason.TIMEOUT, True, "half of it")
    assert report.seconds == pytest.approx(5, abs=0.1) and len(stage.model.requests) == 3
    assert [event.error for event in stage.select(TurnFailed)] == [
        "cut off before the answer was whole"
    ]


def test_a_hanging_summary_turn_has_its_own_limit(stage: Stage) -> None:
    story = {"PARENT": [answer_while_tools(read_parts, forever)]}
    report = run_virtual(stage.run(story, budget=Budget(turns=1)))
    assert (report.reason, report.recovered, report.text) == (Reason.MAX_TURNS, False, "so far")
    assert report.seconds == pytest.approx(GRACE_SECONDS, abs=0.1)


@pytest.mark.parametrize(("seconds", "grace"), [(20, 20), (1, 5), (600, GRACE_SECONDS)])
def test_a_summary_after_a_time_limit_takes_no_longer_than_the_limit(
    stage: Stage, seconds: float, grace: float
) -> None:
    story = {"PARENT": [answer_while_tools(["so far", call("endless")], forever)]}
    report = run_virtual(stage.run(story, tools=[endless], budget=Budget(seconds=seconds)))
    assert (report.reason, report.text) == (Reason.TIMEOUT, "so far")
    assert report.seconds == pytest.approx(seconds + grace, abs=0.1)


async def test_a_run_with_nothing_left_says_which_limit_to_raise(stage: Stage) -> None:
    spent = answer_with_usage("end", wrote=50)
    async with stage.open({"PARENT": [spent]}, budget=Budget(output_tokens=50)) as session:
        first = await session.run("PARENT")
        second = await session.run("PARENT")
    assert (first.reason, first.error, first.text) == (Reason.GOAL, "", "end")
    assert second.reason is Reason.BUDGET
    assert second.limit and second.limit.name is Limit.OUTPUT_TOKENS
    assert second.error == (
        "not started: no output tokens were left when the run began, so the model was not called: "
        "raise the limit of the run or of its session"
    )
    assert len(stage.model.requests) == 1


def test_a_time_limit_stops_all_runs_below_with_one_reason(stage: Stage) -> None:
    children = [call("task", prompt=prompt) for prompt in ("CHILD", "DEEP", "CHILD", "LATE")]
    story: dict[str, Lines] = {
        "PARENT": [children, "in time"],
        "CHILD": [answer_while_tools([call("endless")], "some words")],
        "DEEP": [[call("task", prompt="CHILD"), call("task", prompt="CHILD")], call("endless")],
        "LATE": [answer_while_tools(forever, "some words")],
    }
    budget = Budget(seconds=5, depth=2)
    journal = MemoryJournal()
    work = stage.run(
        story, tools=[endless], budget=budget, children=Children(parallel=3), journal=journal
    )
    report = run_virtual(work)
    reasons = {run: each.reason for run, each in stage.reports.items()}
    begun = ("1.1.1", "1.1.2", "1.1.2.1.1", "1.1.2.1.2", "1.1.3")
    assert reasons == {"1": Reason.GOAL} | dict.fromkeys((*begun, "1.1.4"), Reason.TIMEOUT)
    assert all(stage.reports[run].text for run in begun if run != "1.1.2")
    assert stage.reports["1.1.4"].error.startswith("not started: ")
    assert report.text == "in time" and report.seconds <= 5
    run_virtual(replay(journal.events))


def test_a_run_is_warned_once_at_ninety_percent_of_a_limit(stage: Stage) -> None:
    report = run_virtual(stage.run({"PARENT": [read_parts]}, budget=Budget(turns=20)))
    warnings = [word for word in stage.list_notes() if "90 %" in word]
    assert report.reason is Reason.MAX_TURNS and len(warnings) == 1 and "turns" in warnings[0]
    (at,) = {event.turn for event in stage.events if getattr(event, "text", "") == warnings[0]}
    assert at == 18


# Budgets hold over a run and all its descendants.


def answer_with_usage(
    text: str, *calls: ToolCallBlock, read: int = 0, wrote: int = 0
) -> Callable[[Request], AssistantMessage]:
    """Return an answer with this usage."""

    def answer(request: Request) -> AssistantMessage:
        made = (
            ToolCallBlock(f"c{request.number}.{n}", one.name, one.arguments)
            for n, one in enumerate(calls)
            if request.tools
        )
        return AssistantMessage((TextBlock(text), *made), usage=Usage(read, wrote))

    return answer


async def test_a_child_ends_when_its_parents_tokens_are_used_up(stage: Stage) -> None:
    searches = [
        answer_with_usage("so far", call("grep", pattern="x"), call("glob", pattern="*"), wrote=60)
    ]
    story = {
        "PARENT": [
            answer_with_usage("I ask", call("task", prompt="CHILD"), wrote=10),
            answer_with_usage("end"),
        ],
        "CHILD": searches,
    }
    report = await stage.run(story, budget=Budget(output_tokens=200))
    child = stage.reports["1.1.1"]
    assert (child.reason, child.text, child.recovered) == (Reason.BUDGET, "so far", False)
    assert (report.reason, report.text) == (Reason.GOAL, "end"), "its last turn was held"
    assert report.usage.output_tokens < 200
    assert "[BUDGET: the limit of 200 output tokens was reached (130 used); " in (
        stage.results[0].text
    )


@pytest.mark.parametrize("is_resumed", [False, True], ids=["whole", "resumed"])
async def test_a_child_that_never_began_does_not_count(stage: Stage, is_resumed: bool) -> None:
    """One is stopped while it waits for a place; a hook refuses another."""

    class RefusingHooks(Hooks):
        async def on_child_start(self, parent: Brief, child: Brief) -> str:
            return "not now" if child.prompt == "REFUSED" else ""

    def stop_waiting(request: Request) -> Answer:
        stage.session.runs.cancel("1.1.2")
        return "done"

    first = [call("task", prompt=prompt) for prompt in ("CHILD", "WAITS", "REFUSED")]
    second = [call("task", prompt="LATER") for _ in range(3)]
    story = {"PARENT": [first, second, "end"], "CHILD": [stop_waiting], "LATER": ["done"]}
    journal = MemoryJournal()
    options: dict[str, Any] = {
        "budget": Budget(children=3),
        "children": Children(parallel=1),
        "integrations": Integrations(hooks=RefusingHooks()),
    }
    await stage.run(story, journal=journal, **options)
    if is_resumed:
        turns = [n for n, event in enumerate(journal.events) if isinstance(event, TurnFinished)]
        past = MemoryJournal()
        await past.append(*journal.events[: turns[2] + 1])  # the calls of the second answer
        journal, stage.events = past, []
        async with stage.open(story, journal=past, resume=stage.session.id, **options) as session:
            await session.resume_unfinished()
    starts = [event.run for event in journal.events if isinstance(event, RunStarted)]
    assert starts == ["1", "1.1.1", "1.2.1", "1.2.2"]
    assert any("the budget of 3 children is used up" in each.text for each in stage.results)
    assert await replay(journal.events) == journal.events


async def test_the_budget_in_dollars_ends_a_run(stage: Stage) -> None:
    costly = [
        answer_with_usage("so far", call("read", path="notes.txt"), read=1_000_000),
        answer_with_usage("not requested", read=1),
    ]
    report = await stage.run(
        {"PARENT": costly}, budget=Budget(usd=0.5), name="anthropic:claude-sonnet-4-5"
    )
    assert (report.reason, report.text) == (Reason.BUDGET, "so far")
    assert report.usd == pytest.approx(6), "one answer, and no summary after it"


async def test_a_child_whose_price_is_unknown_is_refused_under_a_budget_in_dollars(
    stage: Stage,
) -> None:
    script = {"PARENT": [call("task", prompt="CHILD", model="unknown:model"), "end"]}
    async with stage.open(script, budget=Budget(usd=1, depth=1)) as session:
        session._require_open().resources.models.register(ScriptedModel([], "unknown:model"))
        await session.run("PARENT")
    assert stage.results[0].error and stage.runs == ["1"]
    assert stage.results[0].text == (
        "the price of unknown:model is not known. Set a limit in tokens or turns instead of money."
    )
