"""Answers that are cut off: their tokens are not known, but budgets count an estimate of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mudroom import AnyEvent, Budget, Ledger, Reason, Report, Session
from mudroom._adapters.models.scripted import ScriptedModel
from mudroom._core.budgets import Limit
from mudroom._projections.ledger import describe_ledger
from mudroom._replay import replay
from mudroom.errors import ModelRefused
from mudroom.events import Delta, TurnFailed
from mudroom.testing import MemoryJournal, MemoryStore

from ..worker_kinds import WORKERS
from .test_partial_answers import WORDS, StuckModel, answer_as_family, open_session

PRICED = "anthropic:claude-sonnet-4-5"


async def run_and_cut(session: Session, prompt: str, stopped: str = "1") -> Report:
    """Run a prompt; cancel a run when it has streamed a text."""

    def stop(event: AnyEvent) -> None:
        if isinstance(event, Delta) and event.run == stopped:
            asyncio.get_running_loop().call_soon(session.runs.cancel, stopped)

    session.watch(stop)
    return await session.run(prompt)


async def test_the_report_says_that_its_usage_is_a_minimum(tmp_path: Path) -> None:
    journal = MemoryJournal()
    async with open_session(tmp_path, StuckModel([WORDS]), journal=journal) as session:
        report = await run_and_cut(session, "PARENT")
    assert (report.reason, report.usage.total_tokens) == (Reason.CANCELLED, 0)
    assert report.has_unknown_usage
    (failed,) = [event for event in journal.events if isinstance(event, TurnFailed)]
    assert failed.estimate.input_tokens > 300, "system prompt and tools"
    assert failed.estimate.output_tokens == len(WORDS) // 4
    await replay(journal.events)


@pytest.mark.parametrize("worker", WORKERS)
async def test_the_parent_and_the_ledger_say_at_least(tmp_path: Path, worker: str) -> None:
    journal = MemoryJournal()
    model = StuckModel(answer_as_family)
    async with open_session(tmp_path, model, journal=journal, worker=worker) as session:
        report = await run_and_cut(session, "PARENT", "1.1.1")
    assert report.ok and report.has_unknown_usage
    assert "; at least 0 tokens;" in report.text
    assert "Children used at least 0 tokens" in describe_ledger(Ledger.from_events(journal.events))
    await replay(journal.events)


async def test_a_request_that_the_provider_refuses_has_no_tokens(tmp_path: Path) -> None:
    async with open_session(tmp_path, ScriptedModel([ModelRefused("no")])) as session:
        report = await session.run("PARENT")
    assert (report.reason, report.has_unknown_usage) == (Reason.ERROR, False)


async def test_a_budget_in_dollars_counts_the_estimated_price(tmp_path: Path) -> None:
    budget = Budget(usd=1)
    async with open_session(tmp_path, StuckModel([WORDS], PRICED), budget=budget) as session:
        report = await run_and_cut(session, "PARENT")
        meter = session._require_open().meter
        spent = meter.accounts[Limit.USD].spent
    assert (report.usd, report.has_unknown_usage) == (None, True)
    assert 0.001 < spent < 0.1 and meter.usd == 0.0


@pytest.mark.parametrize("worker", WORKERS)
@pytest.mark.parametrize(
    "budget",
    [Budget(total_tokens=1_500), Budget(input_tokens=1_500)],
    ids=["total", "input"],
)
async def test_a_budget_counts_the_estimate(tmp_path: Path, budget: Budget, worker: str) -> None:
    options: dict[str, Any] = {"store": MemoryStore(), "journal": "sqlite", "worker": worker}
    async with open_session(
        tmp_path, StuckModel(answer_as_family, PRICED), budget=budget, **options
    ) as session:
        running = asyncio.create_task(session.task("CHILD"))

        def stop(event: AnyEvent) -> None:
            if isinstance(event, Delta):
                asyncio.get_running_loop().call_soon(session.runs.cancel, event.run)

        session.watch(stop)
        first = await running
        second = await session.run("PARENT")
    assert (first.reason, first.has_unknown_usage) == (Reason.CANCELLED, True)
    assert (second.reason, second.turns) == (Reason.BUDGET, 0)
    async with open_session(
        tmp_path, ScriptedModel(["done"], PRICED), budget=budget, resume=session.id, **options
    ) as resumed:
        third = await resumed.run("PARENT")
    assert (third.reason, third.turns) == (Reason.BUDGET, 0), "a resumed session counts it, too"
