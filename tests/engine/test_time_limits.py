"""Time limits: whatever the fan-out and its speed, everything that began leaves words in time.

For trees, see `test_deep_limits.py`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from benchmarks.limits import SECONDS, Child, run_children, run_map

from mudroom import (
    AnyEvent,
    Budget,
    Children,
    Reason,
    Report,
    Session,
)
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import RunFinished
from mudroom.testing.clock import run_virtual

from ..long_form import count_examples
from ..worker_kinds import RAY, open_session
from .conftest import Stage

SEEDS = range(count_examples(16, 400))


def check_ends(reports: dict[str, Report]) -> None:
    """Check that what began left words, and what did not begin says so."""
    for run, report in reports.items():
        if report.turns:
            assert report.text, f"{run} has no words: {report}"
        else:
            assert report.error.startswith("not started: "), f"{run}: {report}"
        assert report.reason in (Reason.GOAL, Reason.TIMEOUT), f"{run}: {report}"


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
