"""Loops are warned, then stopped; repetition with new results is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.engine.conftest import Stage, Step

from mudroom import Effect, Reason, ToolCallBlock, ToolContext, ToolResult, tool
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._engine.loop_detection import STOP_AFTER, WARN_AFTER

Turns = Callable[[int], list[ToolCallBlock]]


def make_calls(turns: Turns, end: int = 100) -> Step:
    """Return a script that makes the calls of `turns`, and reports at the end or without tools."""

    def answer(request: Request) -> Answer:
        return turns(request.turn) if request.tools and request.turn < end else "so far"

    return answer


@tool(effect=Effect.PURE)
async def look(n: int = 0) -> str:
    """Return the same text each time."""
    return "nothing new"


CIRCLES: dict[str, tuple[Turns, int]] = {
    "the same call": (lambda n: [call("look")], 1),
    "the same calls side by side": (lambda n: [call("look"), call("look", n=1)], 1),
    "the same mistake": (lambda n: [call("read", path="nowhere")], 1),
    "two calls in turn": (lambda n: [call("look", n=n % 2)], 2),
    "three calls in turn": (lambda n: [call("look", n=n % 3)], 3),
    "four searches in turn": (lambda n: [call("grep", pattern="abcd"[n % 4])], 4),
    "five calls in turn": (lambda n: [call("look", n=n % 5)], 5),
    "the same call twice between others": (lambda n: [call("look", n=(0, 0, 1)[n % 3])], 3),
    "an edit and its undoing": (
        lambda n: [
            call(
                "edit", path="notes.txt", old_text=("one", "1")[n % 2], new_text=("1", "one")[n % 2]
            )
        ],
        2,
    ),
}


@pytest.mark.parametrize("circle", CIRCLES)
async def test_a_loop_is_warned_and_then_ends_the_run_with_a_summary(
    stage: Stage, circle: str
) -> None:
    turns, period = CIRCLES[circle]
    report = await stage.run(make_calls(turns), tools=[look])
    assert (report.reason, report.recovered, report.text) == (Reason.LOOP, True, "so far")
    assert report.turns == STOP_AFTER * period + 1
    words = [word for word in stage.list_notes() if "in circles" in word]
    assert f"{WARN_AFTER} times in a row" in words[0]
    assert len(words) == STOP_AFTER // WARN_AFTER  # with the note of the last turn


def poll_task(n: int) -> list[ToolCallBlock]:
    return [call("bash", command="echo x >> log; wc -l < log")]


NO_CIRCLES: dict[str, Turns] = {
    "polling that sees a change": poll_task,
    "pages of one file": lambda n: [call("read", path="long.txt", offset=n + 1, limit=1)],
    "the same tests between edits": lambda n: (
        [call("bash", command="grep -c x long.txt")]
        if n % 2
        else [call("edit", path="long.txt", old_text=f"line {n}\n", new_text="x\n")]
    ),
    "the same look at six files": lambda n: [call("look", n=n % 6)],
    "three looks in turn, and one that changes": lambda n: [
        call("look", n=n % 4) if n % 4 else call("bash", command="echo x >> log; wc -l < log")
    ],
    "three times the same, then something else": lambda n: [call("look", n=n // 3)],
    "a search that finds nothing, for many words": lambda n: [call("grep", pattern=f"word{n}")],
}


@pytest.mark.parametrize("work", NO_CIRCLES)
async def test_repetition_with_new_results_is_no_loop(stage: Stage, work: str) -> None:
    (stage.folder / "long.txt").write_text("".join(f"line {n}\n" for n in range(60)))
    report = await stage.run(make_calls(NO_CIRCLES[work], end=30), tools=[look])
    assert (report.reason, report.turns) == (Reason.GOAL, 31)
    assert not [word for word in stage.list_notes() if "in circles" in word]


async def test_a_run_that_leaves_the_loop_continues(stage: Stage) -> None:
    report = await stage.run(
        make_calls(lambda n: [call("look", n=n // WARN_AFTER)], end=20), tools=[look]
    )
    assert (
        report.reason is Reason.GOAL
        and len([word for word in stage.list_notes() if "in circles" in word]) == 5
    )


async def test_a_loop_of_a_child_ends_only_the_child(stage: Stage) -> None:
    story = {
        "PARENT": [[call("task", prompt="CHILD")], "end"],
        "CHILD": [make_calls(lambda n: [call("look")])],
    }
    report = await stage.run(story, tools=[look])
    assert report.ok and stage.results[0].text.startswith(
        "[LOOP: it repeated itself with the same results; what follows is its summary"
    )


def start(**arguments: Any) -> list[ToolCallBlock]:
    return [call("task", prompt="CHILD", background=True, **arguments)]


@tool(effect=Effect.PURE)
async def run_command(ctx: ToolContext) -> ToolResult:
    """Start a background command."""

    async def work() -> ToolResult:
        return ToolResult("the same")

    result = ctx.run_in_background("command", work())
    await asyncio.sleep(0)
    return result


REPEATED_WORK: dict[str, Turns] = {
    "a child": lambda n: [call("task", prompt="CHILD")],
    "a background child": lambda n: [] if n % 2 else start(),
    "a background child and a wait": lambda n: [call("wait")] if n % 2 else start(),
    "a background command and a wait": lambda n: [call("wait" if n % 2 else "run_command")],
}


@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize("work", REPEATED_WORK)
async def test_the_same_work_with_the_same_report_again_and_again_is_a_loop(
    stage: Stage, work: str, is_long: bool
) -> None:
    def answer(request: Request) -> Answer:
        if not request.tools:
            return "so far"
        return "It does not end." if request.turn > 60 else REPEATED_WORK[work](request.turn) or "-"

    async def child(request: Request) -> Answer:
        def may_end() -> bool:
            turns = len(stage.list_requests("PARENT"))
            return turns % 2 == 0 or len(stage.list_requests("CHILD")) > STOP_AFTER

        if work != "a child":
            await stage.wait_until(may_end)
        return "the same " * 6_000 if is_long else "the same"

    story: dict[str, list[Answer | Step]] = {"PARENT": [answer], "CHILD": [child]}
    report = await stage.run(story, tools=[run_command])
    assert (report.reason, report.text) == (Reason.LOOP, "so far")
    assert len([note for note in stage.list_notes() if "in circles" in note]) >= 2


async def test_background_work_with_new_reports_is_no_loop(stage: Stage) -> None:
    def work(request: Request) -> Answer:
        if request.turn == 40:
            return "the end"
        return [call("wait")] if request.turn % 2 else start()

    def count(request: Request) -> Answer:
        return f"{len(stage.reports)} reports so far"

    report = await stage.run({"PARENT": [work], "CHILD": [count]})
    assert (report.reason, report.text) == (Reason.GOAL, "the end")
