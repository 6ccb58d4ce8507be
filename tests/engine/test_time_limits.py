"""Time limits: whatever the tree and its speed, everything that began leaves words in time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.limits import SECONDS, Child, run_children, run_map
from msgspec import Struct

from mudroom import (
    AnyEvent,
    AssistantMessage,
    Budget,
    Children,
    Reason,
    Report,
    Session,
    ToolCallBlock,
    tool,
)
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import RunFinished
from mudroom._core.messages import StopReason, TextBlock, Usage
from mudroom.testing.clock import run_virtual
from mudroom.testing.invariants import find_violations

from ..long_form import count_examples
from ..worker_kinds import RAY, open_session
from .conftest import Stage

SEEDS = range(count_examples(16, 400))


@tool
async def stand_still() -> str:
    """Wait without end."""
    await asyncio.sleep(1e6)
    return "never"


class Node(Struct):
    """A run of a random tree.

    Arguments:
        requests: answers until its last one. seconds: that each of its answers takes.
        below: runs that it starts in its first answer.
        in_background: true if they work in the background.
        hangs: true if its last but one answer calls a tool that never returns.
    """

    requests: int
    seconds: float
    below: list[Node]
    in_background: bool
    hangs: bool

    def walk(self, path: str = "") -> Iterator[tuple[str, Node]]:
        """Yield the run and those below it with their prompts."""
        yield f"RUN{path}", self
        for place, node in enumerate(self.below):
            yield from node.walk(f"{path}.{place}")


def draw_tree(draw: random.Random, depth: int = 2) -> Node:
    count = draw.randint(1, 4) if depth == 2 else draw.choice((0, 0, 1, 3)) * (depth > 0)
    return Node(
        requests=draw.randint(1 + bool(count), 4),
        seconds=draw.choice((0.5, 1.0, 2.0)),
        below=[draw_tree(draw, depth - 1) for _ in range(count)],
        in_background=draw.random() < 0.3,
        hangs=depth < 2 and draw.random() < 0.2,
    )


def make_model(tree: Node) -> ScriptedModel:
    nodes = dict(tree.walk())

    async def answer(request: Request) -> Answer:
        node = nodes[request.prompt]
        await asyncio.sleep(node.seconds)
        calls: list[ToolCallBlock] = []
        if request.tools and not request.turn and node.below:
            prompts = [f"{request.prompt}.{place}" for place in range(len(node.below))]
            options = {"background": True} if node.in_background else {}
            calls = [call("task", prompt=prompt, **options) for prompt in prompts]
        elif request.tools and request.turn + 1 < node.requests:
            is_last = request.turn + 2 == node.requests
            hanging = call("stand_still")
            reading = call("read", path="notes.txt", limit=request.turn + 1)
            calls = [hanging if node.hangs and is_last else reading]
        if calls:  # no words beside calls: only a last answer, or a summary, leaves some
            return calls
        return AssistantMessage((TextBlock("words"),), StopReason.END, Usage(100, 20))

    return ScriptedModel(answer)


def check_ends(reports: dict[str, Report]) -> None:
    """Check that what began left words, and what did not begin says so."""
    for run, report in reports.items():
        if report.turns:
            assert report.text, f"{run} has no words: {report}"
        else:
            assert report.error.startswith("not started: "), f"{run}: {report}"
        assert report.reason in (Reason.GOAL, Reason.TIMEOUT), f"{run}: {report}"


@pytest.mark.parametrize("seed", SEEDS)
def test_what_began_in_a_tree_leaves_words_and_the_root_answers(seed: int, stage: Stage) -> None:
    draw = random.Random(seed)
    tree = draw_tree(draw)
    slowest = max(node.seconds for _, node in tree.walk())
    seconds = draw.choice((4.0, 8.0, 15.0, 40.0)) + tree.seconds
    journal = MemoryJournal()

    async def work() -> tuple[Report, float]:
        budget = Budget(seconds=seconds, depth=3)
        options: dict[str, Any] = {"tools": [stand_still], "journal": journal}
        async with stage.open(
            make_model(tree).choose_answer, prompt_budget=budget, **options
        ) as session:
            start = asyncio.get_running_loop().time()
            report = await session.run("RUN")
            return report, asyncio.get_running_loop().time() - start

    report, passed = run_virtual(work())
    assert report.text == "words"
    check_ends(stage.reports)
    # Late is at most one answer: that of the root, or of runs below that were slower than thought.
    assert passed <= seconds + tree.seconds + slowest
    assert not find_violations(journal.events, timed=False)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_began_in_a_fan_out_leaves_words(seed: int) -> None:
    draw = random.Random(1_000 + seed)
    child = Child(draw.randint(1, 8), 100, 20, spread=draw.choice((0.0, 0.5, 2.0)), is_silent=True)
    count = draw.randint(1, 24)
    seconds = draw.choice((2.5, 4.0, 8.0))
    budget, at_once = Budget(seconds=seconds), draw.choice((2, 24))
    outcome = run_virtual(run_children(child, count, budget, at_once=at_once))
    assert outcome.answer and outcome.answer.text and len(outcome.reports) == count
    check_ends(outcome.reports)
    # Nothing begins where the time does not even suffice for one answer and the parent's.
    assert outcome.begun or seconds < 4
    assert outcome.seconds <= seconds + 2 * SECONDS * (1 + child.spread)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_began_in_a_map_leaves_words(seed: int) -> None:
    draw = random.Random(2_000 + seed)
    child = Child(draw.randint(1, 6), 100, 20, spread=draw.choice((0.0, 0.5, 2.0)), is_silent=True)
    seconds = draw.choice((2.5, 4.0, 8.0))
    outcome = run_virtual(run_map(child, draw.randint(1, 60), Budget(seconds=seconds)))
    check_ends(outcome.reports)
    assert outcome.begun
    assert outcome.seconds <= seconds + SECONDS * (1 + child.spread)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_distant_time_limit_changes_nothing(seed: int) -> None:
    draw = random.Random(3_000 + seed)
    child = Child(draw.randint(1, 6), 100, 20, spread=draw.choice((0.0, 0.5)), is_silent=True)
    count = draw.randint(1, 24)
    free = run_virtual(run_children(child, count, Budget()))
    limited = run_virtual(run_children(child, count, Budget(seconds=10 * free.seconds)))
    assert len(limited.finished) == count and limited.seconds == pytest.approx(free.seconds)


STARTS: dict[str, Callable[[Session, list[str]], Awaitable[object]]] = {
    "tasks": lambda session, prompts: asyncio.gather(*map(session.task, prompts)),
    "map": lambda session, prompts: session.map(prompts, parallel=1),
    "prompts": lambda session, prompts: _run_in_turn(session, prompts),
}


async def _run_in_turn(session: Session, prompts: list[str]) -> None:
    for prompt in prompts:
        await session.run(prompt)


@pytest.mark.parametrize("way", STARTS)
def test_a_run_does_not_begin_when_the_time_suffices_for_no_answer(way: str, stage: Stage) -> None:
    async def answer(request: Request) -> Answer:
        await asyncio.sleep(4)
        return "words"

    async def work() -> None:
        budget = Budget(seconds=10)
        async with stage.open(answer, budget=budget, children=Children(parallel=1)) as session:
            await STARTS[way](session, ["A", "B", "C", "D"])

    run_virtual(work())
    reports = list(stage.reports.values())
    begun = [report for report in reports if report.turns]
    assert [report.reason for report in begun] == [Reason.GOAL] * 2
    assert len(reports) == 4 and len(stage.model.requests) == 2
    errors = {report.error for report in reports if not report.turns}
    assert all(error.startswith("not started: ") for error in errors)
    assert {report.reason for report in reports if not report.turns} == {Reason.TIMEOUT}


@pytest.mark.parametrize("worker", ["process:1", RAY])
async def test_children_in_another_process_leave_words_in_time(worker: str, tmp_path: Path) -> None:
    async def answer(request: Request) -> Answer:
        await asyncio.sleep(0.1)
        if request.prompt == "PARENT" and not request.turn:
            return [call("task", prompt=f"CHILD {place}") for place in range(3)]
        standing = [call("bash", command="sleep 600")]
        return standing if request.prompt != "PARENT" and request.tools else "words"

    reports: dict[str, Report] = {}

    def watch(event: AnyEvent) -> None:
        if isinstance(event, RunFinished):
            reports[event.run] = event.report

    budget = Budget(seconds=4)
    model = ScriptedModel(answer)
    async with open_session(tmp_path, model, worker, prompt_budget=budget) as session:
        session.watch(watch)
        async with asyncio.timeout(30):
            report = await session.run("PARENT")
    assert (report.reason, report.text) == (Reason.GOAL, "words") and report.seconds < 4
    children = [reports[run] for run in ("1.1.1", "1.1.2", "1.1.3")]
    assert {(each.reason, each.text) for each in children} == {(Reason.TIMEOUT, "words")}
