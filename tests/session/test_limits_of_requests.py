"""Limits of a session: a summary of each run that began, no request larger than the rest."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mudroom import Agent, Budget, ImageBlock, Reason, Session, TextBlock, tool
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer
from mudroom._core.budgets import Limit
from mudroom._replay import replay
from mudroom.testing import Request, ScriptedModel, call

from ..worker_kinds import RAY
from .conftest import IsolatedOptions
from .test_prompt_images import make_png

PICTURE = ImageBlock("image/png", make_png(3, 2))
MODEL = "anthropic:claude-sonnet-4-5"


def search(request: Request) -> Answer:
    """Search for another name in each turn, until there are no tools."""
    return [call("glob", pattern=f"*{request.number}")] if request.tools else "summary"


@pytest.mark.parametrize("worker", ["", "process:2", RAY])
@pytest.mark.parametrize("turns", [5, 20, 30])
async def test_s16_each_run_that_began_gives_a_summary_when_the_turns_of_the_session_are_used(
    turns: int, worker: str, isolated: IsolatedOptions
) -> None:
    model = ScriptedModel(search)
    options: dict[str, Any] = {"worker": worker} if worker else {}
    async with Session(
        model=model, journal="memory", budget=Budget(turns=turns), **isolated, **options
    ) as session:
        reports = await session.map([f"q{number}" for number in range(20)], parallel=20)
        begun = [report for report in reports if report.turns]
        assert len(model.requests) == turns + len(begun)
        assert {report.reason for report in reports} == {Reason.MAX_TURNS}
        assert all(report.recovered for report in begun)
        session.budget = Budget(turns=turns + 2)
        report = await session.task("more")
        assert (report.turns, report.recovered) == (3, True)


@pytest.mark.parametrize(
    ("budget", "unit"),
    [
        (Budget(total_tokens=200), "200 of 200 total tokens"),
        (Budget(input_tokens=200), "200 of 200 input tokens"),
        (Budget(usd=0.001), "$0.001 of $0.001"),
    ],
    ids=["total", "input", "usd"],
)
async def test_a_first_request_that_is_larger_than_the_rest_is_not_sent(
    budget: Budget, unit: str, isolated: IsolatedOptions
) -> None:
    model = ScriptedModel(["done"], name=MODEL)
    journal = MemoryJournal()
    async with Session(model=model, journal=journal, **isolated) as session:
        report = await session.task("x " * 200_000, budget=budget)
    assert model.requests == []
    assert (report.reason, report.turns, report.text) == (Reason.BUDGET, 0, "")
    assert "the first request has about 100," in report.error
    assert f" tokens or more, and {unit}" in report.error
    await replay(journal.events)


async def test_system_prompt_and_tools_count_in_the_first_request(
    isolated: IsolatedOptions,
) -> None:
    @tool
    async def look(place: str) -> str:
        """Look at a place."""
        return place

    tools = [replace(look, description="Look around. " * 2_000)]
    wordy = Agent(name="wordy", instructions="Be brief. " * 2_000, tools=())
    model = ScriptedModel(["done"])
    journal = MemoryJournal()
    async with Session(model=model, journal=journal, tools=tools, **isolated) as session:
        budget = Budget(input_tokens=4_000)
        reports = [
            await session.task("x", agent=each, budget=budget) for each in (wordy, "general")
        ]
    assert model.requests == []
    assert {report.reason for report in reports} == {Reason.BUDGET}
    assert "the first request has about 5,0" in reports[0].error
    await replay(journal.events)


async def test_earlier_messages_count_in_the_first_request(isolated: IsolatedOptions) -> None:
    model = ScriptedModel(lambda _: "word " * 8_000)
    journal = MemoryJournal()
    budget = Budget(input_tokens=9_000)
    async with Session(model=model, journal=journal, prompt_budget=budget, **isolated) as session:
        await session.run([TextBlock("x"), PICTURE])
        report = await session.run("y")
    assert len(model.requests) == 1
    assert report.reason is Reason.BUDGET and "the first request has about 1" in report.error
    await replay(journal.events)


async def test_a_finished_run_names_the_limit_that_its_answer_passed(
    isolated: IsolatedOptions,
) -> None:
    journal = MemoryJournal()
    async with Session(
        model=ScriptedModel(lambda _: "done " * 2_000), journal=journal, **isolated
    ) as session:
        report = await session.task("x", budget=Budget(total_tokens=1_000))
        other = await session.task("x", budget=Budget(total_tokens=500_000))
    assert report.reason is Reason.GOAL and report.limit is not None
    assert (report.limit.name, report.limit.maximum) == (Limit.TOTAL_TOKENS, 1_000)
    assert report.limit.spent == report.usage.total_tokens > 1_000
    assert other.limit is None
    await replay(journal.events)
