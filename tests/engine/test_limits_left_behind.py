"""Shared limits: whatever the tree, prices and limit, everything that began leaves words."""

from __future__ import annotations

import asyncio
import random
import time

import pytest
from benchmarks.limits import MODEL, Child, run_children, run_map
from tests.engine.conftest import Stage

from mudroom import (
    AssistantMessage,
    Budget,
    Reason,
    Report,
    TextBlock,
    ToolCallBlock,
    Usage,
    tool,
)
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.budgets import Limit
from mudroom._core.messages import StopReason
from mudroom._engine.meters.account import RequestPlan
from mudroom._engine.meters.meter import Meter
from mudroom._engine.meters.pool import Forecast
from mudroom.testing.clock import run_virtual

from ..long_form import count_examples

SEEDS = range(count_examples(12, 300))

INPUT, OUTPUT = 3e-6, 15e-6
"""Dollars for a token of the model that the fan-outs name."""


def draw_fan_out(draw: random.Random) -> tuple[Child, int]:
    child = Child(draw.randint(1, 8), draw.choice((600, 3_000, 12_000)), draw.randint(20, 1_500))
    return child, draw.randint(1, 24)


def compute_price(child: Child) -> float:
    return child.requests * (child.sent * INPUT + child.written * OUTPUT)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_began_leaves_words_and_the_parent_answers(seed: int) -> None:
    draw = random.Random(seed)
    child, count = draw_fan_out(draw)
    needed = count * compute_price(child) + 0.1
    limit = needed * draw.choice((0.3, 0.6, 0.9, 2.0))
    by_tokens = draw.random() < 0.4
    tokens = int(limit / needed * (count * child.requests * (child.sent + child.written) + 20_000))
    budget = Budget(total_tokens=tokens) if by_tokens else Budget(usd=limit)
    outcome = run_virtual(run_children(child, count, budget))
    assert outcome.answer and outcome.answer.text, "the parent has no words"
    assert len(outcome.reports) == count, "a child has no end"
    assert not outcome.wordless
    for report in outcome.reports.values():
        assert report.turns or report.error.startswith("not started: "), report
    spent = outcome.answer.usage.total_tokens if by_tokens else outcome.usd
    answer = child.sent + child.written if by_tokens else compute_price(child) / child.requests
    # No request is small enough to be sent by mistake; the first ones are larger than they look.
    first = count * (child.sent if by_tokens else child.sent * INPUT)
    assert spent <= (tokens if by_tokens else limit) + answer + first
    assert outcome.begun, "one child always works"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_distant_limit_costs_little_time(seed: int) -> None:
    draw = random.Random(1_000 + seed)
    child, count = draw_fan_out(draw)
    limit = 10 * (count * compute_price(child) + 0.05)
    free = run_virtual(run_map(child, count, Budget()))
    limited = run_virtual(run_map(child, count, Budget(usd=limit)))
    assert {report.reason for report in limited.reports.values()} == {Reason.GOAL}
    # The first wave begins before anything is known: it may take one answer more.
    assert limited.seconds <= 1.3 * free.seconds + 0.5


def answer_slowly(*, calls_judge: bool = False, seconds: float = 0.5) -> ScriptedModel:
    async def answer(request: Request) -> AssistantMessage:
        await asyncio.sleep(seconds)
        usage = Usage(20_000, 200)
        if calls_judge and request.prompt == "PARENT" and request.tools and not request.turn:
            judge = ToolCallBlock("c1", "judge", {"text": "it"})
            return AssistantMessage((judge,), StopReason.CALLS, usage)
        return AssistantMessage((TextBlock("words"),), StopReason.END, usage)

    return ScriptedModel(answer, MODEL)


@pytest.mark.parametrize("usd", [0.3, 0.5, 0.7, 5.0])
def test_a_tool_may_wait_for_a_task_of_its_session(usd: float, stage: Stage) -> None:
    @tool
    async def judge(text: str) -> str:
        """Have a task judge a text."""
        report = await stage.session.task(f"JUDGE {text}")
        return report.text or report.error

    async def work() -> Report:
        model = answer_slowly(calls_judge=True)
        async with stage.open(
            model.choose_answer, MODEL, budget=Budget(usd=usd), tools=[judge]
        ) as session:
            async with asyncio.timeout(300):
                return await session.run("PARENT")

    report = run_virtual(work())
    assert (report.reason, report.text) == (Reason.GOAL, "words")


LIMITS = (Budget(), Budget(usd=5), Budget(total_tokens=500_000), Budget(turns=50))


@pytest.mark.parametrize("before", LIMITS)
@pytest.mark.parametrize("after", LIMITS)
def test_limits_are_replaced_while_requests_are_under_way(
    before: Budget, after: Budget, stage: Stage
) -> None:
    async def work() -> list[Report]:
        model = answer_slowly(seconds=5)
        async with stage.open(model.choose_answer, MODEL, budget=before) as session:
            tasks = asyncio.gather(*(session.task(f"T {place}") for place in range(3)))
            await asyncio.sleep(2)
            session.budget = after
            return await tasks

    assert {report.reason for report in run_virtual(work())} == {Reason.GOAL}


def test_a_grant_goes_back_to_the_account_that_gave_it() -> None:
    root = Meter(Budget())
    child = root.allocate(Budget(usd=3.0))
    root.set_limits(Budget(usd=1.0))
    child.charge(Usage(10, 10), 0.5)
    assert root.accounts[Limit.USD].granted == 2.5
    child.release()
    assert (root.accounts[Limit.USD].granted, root.accounts[Limit.USD].left) == (0, 0.5)


def test_a_thousand_runs_under_a_scarce_limit_take_little_time() -> None:
    child = Child(2, 100, 20)
    begun = time.process_time()
    outcome = run_virtual(run_map(child, 1_000, Budget(usd=500 * compute_price(child))))
    assert len(outcome.finished) > 450
    assert time.process_time() - begun < 20


def test_a_wait_for_money_takes_no_time_of_the_run(stage: Stage) -> None:
    async def work() -> tuple[list[Report], float]:
        model = answer_slowly(seconds=2)
        async with stage.open(model.choose_answer, MODEL, budget=Budget(usd=0.2)) as session:
            loop = asyncio.get_running_loop()
            start = loop.time()
            tasks = [session.task(f"T {place}", budget=Budget(seconds=3)) for place in range(4)]
            return await asyncio.gather(*tasks), loop.time() - start

    reports, seconds = run_virtual(work())
    assert [report.reason for report in reports] == [Reason.GOAL] * 3 + [Reason.BUDGET]
    assert seconds == pytest.approx(4), "the third waited for its 2 seconds of work"
    assert all(report.seconds < 3 for report in reports)


def test_runs_that_failed_do_not_tell_how_many_requests_a_run_needs() -> None:
    root = Meter(Budget(usd=1.0))
    assert root.pool is not None
    for has_goal in (False, True):
        run = root.allocate(Budget())
        run.turns, run.member.has_goal = 9, has_goal
        root.pool.set_forecast(run, Forecast())
        run.release()
        # Of those that failed, only the number of requests so far is known.
        assert root.pool.forecast(
            root, RequestPlan({}, {Limit.USD: 1.0}, {}, 1), [Limit.USD], 1.0
        ).rest[Limit.USD] == pytest.approx(9.0 if not has_goal else 8.0)


@pytest.mark.parametrize("turns", [1, 2, 4])
@pytest.mark.parametrize("start", ["background", "foreground", "map"])
def test_the_turns_of_a_session_leave_words_of_every_run_that_began(
    start: str, turns: int, stage: Stage
) -> None:
    async def answer(request: Request) -> Answer:
        await asyncio.sleep(0.1 * (1 + request.number % 3))
        if not request.tools:
            return "words"
        if request.prompt != "PARENT" or request.turn:
            return [call("read", path="notes.txt", limit=request.turn + 1)]
        is_background = start == "background"
        return [call("task", prompt=f"C{n}", background=is_background) for n in range(3)]

    async def work() -> None:
        async with stage.open(answer, budget=Budget(turns=turns, depth=2)) as session:
            if start == "map":
                await session.map([f"C{n}" for n in range(3)])
            else:
                await session.run("PARENT")

    run_virtual(work())
    begun = [report for report in stage.reports.values() if report.turns]
    assert begun
    assert {(report.reason, report.text) for report in begun} == {(Reason.MAX_TURNS, "words")}
    # The last turns are extra: those of the runs that the program starts are the limit.
    counted = [run for run in stage.runs if "." not in run and stage.reports[run].turns]
    assert sum(stage.reports[run].turns - 1 for run in counted) == turns
