"""Limits of parallel runs: each is passed by one answer at most, in any tree of runs."""

from __future__ import annotations

import asyncio
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Struct

from mudroom import (
    Agent,
    AnyEvent,
    AssistantMessage,
    Budget,
    Reason,
    Report,
    Session,
    TextBlock,
    ToolCallBlock,
    Usage,
)
from mudroom._adapters.models.pricing import calculate_cost
from mudroom._core.budgets import SHARED_LIMITS, Limit
from mudroom._core.events import RunStarted, TurnFinished, TurnStarted
from mudroom._core.messages import StopReason
from mudroom.testing import Request, ScriptedModel, run_virtual

from .conftest import IsolatedOptions

MODEL = "anthropic:claude-sonnet-4-5"
SCENARIOS = 2_000 if os.environ.get("MUDROOM_LONG") else 40


class Spending:
    """What the runs of a session spent, from its events."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, Usage]] = []
        self.limits: dict[str, Budget] = {}
        self.turns: dict[str, int] = defaultdict(int)

    def add(self, event: AnyEvent) -> None:
        if isinstance(event, RunStarted):
            self.limits[event.run] = event.brief.budget
        elif isinstance(event, TurnStarted) and not event.summary_reason:
            self.turns[event.run] += 1
        elif isinstance(event, TurnFinished):
            self.answers.append((event.run, event.message.usage))

    def check(self, session: Budget) -> None:
        roots = [run for run in self.limits if "." not in run]
        if session.turns is not None:
            assert sum(self.turns[run] for run in roots) <= session.turns
        for name, budget in {"": session, **self.limits}.items():
            self._check_amounts(name, budget)
            if name and budget.turns is not None:
                assert self.turns[name] <= budget.turns

    def _check_amounts(self, name: str, budget: Budget) -> None:
        usages = [
            usage
            for run, usage in self.answers
            if not name or run == name or run.startswith(f"{name}.")
        ]
        for limit in SHARED_LIMITS:
            maximum = getattr(budget, limit)
            if maximum is None or not usages:
                continue
            amounts = [measure(limit, usage) for usage in usages]
            over = sum(amounts) - maximum
            assert over <= max(amounts) + 1e-9, (
                f"{name or 'session'}: {limit}, {maximum}, {amounts}"
            )


def measure(limit: Limit, usage: Usage) -> float:
    if limit is Limit.USD:
        return calculate_cost(MODEL, usage) or 0.0
    return getattr(usage, limit)


class Scenario(Struct, frozen=True):
    """A tree of runs with limits, and a provider.

    Arguments:
        tasks: runs that start at the same moment; 0: a prompt.
        children: children of each run that may start some.
        budgets: limits of the session, of a task or prompt, and of the agent `small`.
        honours: false if the provider ignores `max_tokens`.
    """

    seed: int
    tasks: int
    children: int
    budgets: tuple[Budget, Budget, Budget]
    honours: bool

    @classmethod
    def draw(cls, seed: int) -> Scenario:
        chance = random.Random(seed)
        tasks = chance.choice([0, 1, 3, 12])
        children = chance.choice([0, 2, 6])
        honours = chance.random() < 0.5
        session_budget, run_budget, small_budget = (draw_budget(chance) for _ in range(3))
        if not honours:
            # The bound does not hold for a smaller limit below, which the provider ignores, too.
            run_budget = small_budget = Budget(turns=run_budget.turns, depth=2)
        budgets = (session_budget, run_budget, small_budget)
        return cls(seed, tasks, children, budgets, honours)

    async def run(self, isolated: IsolatedOptions) -> tuple[list[Report], Spending]:
        session_budget, run_budget, small_budget = self.budgets
        spending = Spending()
        options: dict[str, Any] = {
            "journal": "memory",
            "model": ScriptedModel(self.answer, MODEL),
            "budget": session_budget,
            "prompt_budget": run_budget,
            "agents": [Agent(name="small", budget=small_budget, children=())],
        }
        async with Session(**isolated, **options) as session:
            session.watch(spending.add)
            if not self.tasks:
                return [await session.run("work")], spending
            prompts = [f"work {number}" for number in range(self.tasks)]
            reports = await session.map(prompts, budget=run_budget, parallel=8)
            return reports, spending

    async def answer(self, request: Request) -> AssistantMessage:
        """Work on with answers of very different lengths; the prompt costs up to its length."""
        chance = random.Random(f"{self.seed} {request.prompt} {request.turn}")
        await asyncio.sleep(chance.choice([0, 0.1, 1, 5]))
        length = chance.choice([5, 50, 400, 3_000])
        is_cut = self.honours and length > (request.max_tokens or length)
        length = (request.max_tokens or length) if is_cut else length
        sent = 300 + sum(
            message.usage.output_tokens + 20
            for message in request.messages
            if isinstance(message, AssistantMessage)
        )
        usage = Usage(input_tokens=sent, output_tokens=length)
        if is_cut:
            return AssistantMessage((TextBlock("so f"),), StopReason.LENGTH, usage)
        calls = tuple(self.choose_calls(request)) if request.turn < 6 else ()
        reason = StopReason.CALLS if calls else StopReason.END
        return AssistantMessage((TextBlock("so far"), *calls), reason, usage)

    def choose_calls(self, request: Request) -> Iterator[ToolCallBlock]:
        if not request.tools:
            return
        if "task" in request.tools and not request.turn:
            for number in range(self.children):
                arguments = {
                    "prompt": f"{request.prompt} child {number}",
                    "agent": "small" if number % 2 else "general",
                }
                yield ToolCallBlock(f"t{number}", "task", arguments)
        arguments = {"path": "notes.txt", "limit": request.turn + 1}
        yield ToolCallBlock(f"r{request.turn}", "read", arguments)


def draw_budget(chance: random.Random) -> Budget:
    """Return a budget with each limit in one of three cases."""

    def draw_amount(*amounts: int) -> Any:
        return chance.choice(amounts) if chance.random() < 0.3 else None

    return Budget(
        turns=draw_amount(1, 4, 20),
        input_tokens=draw_amount(500, 3_000, 50_000),
        output_tokens=draw_amount(30, 1_000, 70_000),
        total_tokens=draw_amount(700, 4_000, 90_000),
        usd=(draw_amount(2, 20, 600) or 0) / 1_000 or None,
        depth=2,
    )


@pytest.mark.parametrize("seed", range(SCENARIOS))
def test_no_limit_is_passed_by_more_than_one_answer(seed: int, isolated: IsolatedOptions) -> None:
    scenario = Scenario.draw(seed)
    reports, spending = run_virtual(scenario.run(isolated))
    spending.check(scenario.budgets[0])
    allowed = {Reason.GOAL, Reason.BUDGET, Reason.MAX_TURNS}
    assert {report.reason for report in reports} <= allowed, "a limit never ends a run as an error"
