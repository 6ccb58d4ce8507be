"""Summary runs that do not help: few are bought, and the run goes on without notes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from mudroom import Budget, Reason
from mudroom._adapters.models.scripted import Answer, Request
from mudroom._core.events import RunFinished, RunStarted
from mudroom._engine import model_call
from mudroom._replay import replay
from mudroom.errors import ContextOverflow, ModelRefused

from .conftest import Stage, is_summary, is_valid, join_request, make_talker

PROMPT = "Read all files. Never touch 3.txt."
NOTES = "# Notes of your own"


def write_too_much(_: Request) -> Answer:
    return "too much " * 10_000


def write_nothing(_: Request) -> Answer:
    return " "


def fail(_: Request) -> Answer:
    return ModelRefused("no")


def overflow(_: Request) -> Answer:
    return ContextOverflow("the prompt is too long")


@pytest.mark.parametrize("summarise", [write_nothing, fail, overflow])
async def test_after_three_failed_summaries_none_is_bought(
    stage: Stage, summarise: Callable[[Request], Answer]
) -> None:
    stage.write_files(40)
    async with stage.open(make_talker(60, summarise)) as session:
        report = await session.run(PROMPT)
    assert (report.reason, report.text) == (Reason.GOAL, "done")
    assert len(stage.compactions) >= 4
    bought = [event.run for event in stage.select(RunStarted) if event.brief.is_compaction]
    assert 2 <= len(bought) <= 3
    last = join_request(stage.model.requests[-1])
    assert PROMPT in last
    assert NOTES not in last
    assert all(is_valid(request.messages) for request in stage.model.requests)
    assert await replay(stage.events) == stage.events


async def test_notes_that_are_too_long_are_cut(stage: Stage) -> None:
    stage.write_files(40)
    async with stage.open(make_talker(30, write_too_much)) as session:
        report = await session.run(PROMPT)
    assert report.reason is Reason.GOAL
    assert all(event.parts["notes_tokens"] <= 1_650 for event in stage.compactions)
    assert all(event.after < 12_000 for event in stage.compactions)


async def test_a_summary_that_hangs_ends_and_the_run_goes_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_call, "FIRST_CHUNK_SECONDS", 0.05)
    monkeypatch.setattr(model_call, "SILENCE_SECONDS", 0.05)
    stage.write_files(40)
    talk = make_talker(14)

    async def script(request: Request) -> Answer:
        if is_summary(request):
            await asyncio.Event().wait()
        return talk(request)

    async with stage.open(script) as session:
        report = await session.run(PROMPT)
    assert (report.reason, report.text) == (Reason.GOAL, "done")
    (summary,) = [each for each in stage.select(RunFinished) if each.run != "1"]
    assert summary.report.reason is Reason.TIMEOUT


async def test_a_budget_that_is_nearly_used_buys_no_notes(stage: Stage) -> None:
    stage.write_files(40)
    async with stage.open(make_talker(14)) as session:
        used = (await session.run(PROMPT)).usage.total_tokens
    limit = int(used * 0.9)
    async with stage.open(make_talker(14), prompt_budget=Budget(total_tokens=limit)) as session:
        await session.run(PROMPT)
    assert len(stage.compactions) == 1
    assert stage.compactions[0].summary_run == ""


async def test_a_cancel_during_a_summary_changes_nothing(stage: Stage) -> None:
    stage.write_files(40)
    talk = make_talker(14)
    begun = asyncio.Event()

    async def script(request: Request) -> Answer:
        if is_summary(request):
            begun.set()
            await asyncio.Event().wait()
        return talk(request)

    async with stage.open(script) as session:
        running = asyncio.create_task(session.run(PROMPT))
        await begun.wait()
        assert session.runs.cancel()
        report = await running
    assert report.reason is Reason.CANCELLED
    assert not stage.compactions
    reasons = {event.run: event.report.reason for event in stage.select(RunFinished)}
    assert set(reasons.values()) == {Reason.CANCELLED}
