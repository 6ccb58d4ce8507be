"""The budget of a session: one ledger for prompts, streams, tasks, maps and scopes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mudroom import (
    Agent,
    AssistantMessage,
    Budget,
    Reason,
    Report,
    Session,
    TextBlock,
    ToolCallBlock,
    Usage,
    UsageError,
)
from mudroom._adapters.models.scripted import Answer, call
from mudroom._replay import replay
from mudroom.scope import PromptConfig, RunConfig, ToolConfig
from mudroom.testing import MemoryJournal, MemoryStore, Request, ScriptedModel, run_virtual

from .conftest import IsolatedOptions

Start = Callable[[Session], Awaitable[list[Report]]]


async def start_run(session: Session) -> list[Report]:
    return [await session.run("read")]


async def start_stream(session: Session) -> list[Report]:
    async with session.stream("read") as stream:
        async for _ in stream:
            pass
    return [stream.report]


async def start_task(session: Session) -> list[Report]:
    return [await session.task("read")]


async def start_map(session: Session) -> list[Report]:
    return await session.map(["read", "read"])


async def start_scope(session: Session) -> list[Report]:
    tools = ToolConfig(tools=["read"])
    output = await session.scope("reader", PromptConfig(system_prompt="read"), tool_config=tools)
    assert output.report
    return [output.report]


STARTS: dict[str, Start] = {
    "run": start_run,
    "stream": start_stream,
    "task": start_task,
    "map": start_map,
    "scope": start_scope,
}


def read_on(request: Request) -> AssistantMessage:
    """Read another part each turn, for 2,000 tokens; give a summary when there are no tools."""
    usage = Usage(input_tokens=1_200, output_tokens=800)
    if not request.tools:
        return AssistantMessage((TextBlock("summary"),), usage=usage)
    arguments = {"path": "notes.txt", "limit": request.turn + 1}
    call = ToolCallBlock(f"c{request.number}", "read", arguments)
    return AssistantMessage((TextBlock("so far"), call), usage=usage)


def open_session(
    isolated: IsolatedOptions, model: ScriptedModel | None = None, **options: Any
) -> Session:
    defaults: dict[str, Any] = {"journal": "memory", "model": model or ScriptedModel(read_on)}
    return Session(**(dict[str, Any](isolated) | defaults | options))


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
async def test_turns_of_the_session_hold(start: Start, isolated: IsolatedOptions) -> None:
    model = ScriptedModel(read_on)
    async with open_session(isolated, model, budget=Budget(turns=3)) as session:
        reports = await start(session)
    with_tools = [request for request in model.requests if request.tools]
    assert len(with_tools) == 3
    assert {report.reason for report in reports} == {Reason.MAX_TURNS}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
async def test_tokens_of_the_session_hold(start: Start, isolated: IsolatedOptions) -> None:
    async with open_session(isolated, budget=Budget(total_tokens=6_000)) as session:
        reports = await start(session)
    assert {report.reason for report in reports} == {Reason.BUDGET}
    spent = sum(report.usage.total_tokens for report in reports)
    assert spent <= 6_000 + 2_000, "at most one answer is over the limit"


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
async def test_money_of_the_session_holds(start: Start, isolated: IsolatedOptions) -> None:
    model = ScriptedModel(read_on, "anthropic:claude-sonnet-4-5")
    async with open_session(isolated, model, budget=Budget(usd=0.06)) as session:
        reports = await start(session)
    assert {report.reason for report in reports} == {Reason.BUDGET}
    assert all(report.usd is not None for report in reports)


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_seconds_of_the_session_hold(start: Start, isolated: IsolatedOptions) -> None:
    async def answer_late(request: Request) -> str:
        await asyncio.sleep(8)
        return "late"

    async def run() -> tuple[list[Report], float]:
        model = ScriptedModel(answer_late)
        async with open_session(isolated, model, budget=Budget(seconds=1)) as session:
            loop = asyncio.get_running_loop()
            began = loop.time()
            return await start(session), loop.time() - began

    reports, seconds = run_virtual(run())
    assert {report.reason for report in reports} == {Reason.TIMEOUT}
    assert seconds == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (Budget(turns=2), Reason.MAX_TURNS),
        (Budget(total_tokens=3_000), Reason.BUDGET),
        (Budget(input_tokens=2_000), Reason.BUDGET),
        (Budget(output_tokens=1_000), Reason.BUDGET),
        (Budget(usd=0.02), Reason.BUDGET),
    ],
)
@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
async def test_a_run_of_an_empty_session_ends_without_a_model_call(
    start: Start, budget: Budget, reason: Reason, isolated: IsolatedOptions
) -> None:
    model = ScriptedModel(read_on, "anthropic:claude-sonnet-4-5")
    async with open_session(isolated, model, budget=budget) as session:
        await session.run("read")
        before = len(model.requests)
        reports = await start(session)
    assert len(model.requests) == before
    assert {(report.reason, report.turns, report.text) for report in reports} == {(reason, 0, "")}
    assert all("left when the run began" in report.error for report in reports)


def test_time_counts_only_while_a_run_works(isolated: IsolatedOptions) -> None:
    async def answer(request: Request) -> str:
        await asyncio.sleep(4)
        return "done"

    async def run() -> list[Reason]:
        async with open_session(isolated, ScriptedModel(answer), budget=Budget(seconds=10)) as s:
            first = await s.map(["a", "b"])
            await asyncio.sleep(100)
            second = await s.run("c")
            third = await s.run("d")
            fourth = await s.run("e")
        return [report.reason for report in (*first, second, third, fourth)]

    assert run_virtual(run()) == [Reason.GOAL] * 3 + [Reason.TIMEOUT] * 2


async def test_a_larger_budget_lets_the_session_continue(isolated: IsolatedOptions) -> None:
    async with open_session(isolated, budget=Budget(turns=2)) as session:
        assert (await session.run("read")).reason is Reason.MAX_TURNS
        session.budget = Budget(turns=4)
        report = await session.task("read")
    assert (report.reason, report.turns) == (Reason.MAX_TURNS, 3)
    assert report.limit and (report.limit.name, report.limit.maximum) == ("turns", 2)


async def test_a_resumed_session_counts_what_it_spent(isolated: IsolatedOptions) -> None:
    store: dict[str, Any] = {"store": MemoryStore(), "journal": "sqlite"}
    budget = Budget(turns=5, total_tokens=20_000)
    async with open_session(isolated, budget=budget, **store) as session:
        await session.task("read", budget=Budget(turns=2))
        await session.run("read", outputs=None)
    model = ScriptedModel(read_on)
    options: dict[str, Any] = store | {"resume": session.id}
    async with open_session(isolated, model, budget=budget, **options) as session:
        report = await session.run("read")
    assert (report.reason, model.requests) == (Reason.MAX_TURNS, [])
    async with open_session(isolated, budget=Budget(total_tokens=15_000), **options) as session:
        report = await session.run("read")
    assert report.reason is Reason.BUDGET
    assert report.limit and report.limit.maximum == 1_000, (
        "14,000 tokens were spent: two turns and a summary, and three turns and a summary"
    )


async def test_a_task_in_a_worker_process_spends_from_the_session(
    isolated: IsolatedOptions,
) -> None:
    model = ScriptedModel(read_on)
    options: dict[str, Any] = {"worker": "process:1", "budget": Budget(turns=3)}
    async with open_session(isolated, model, **options) as session:
        first = await session.task("read", budget=Budget(turns=2))
        second, third = await session.map(["read", "read"])
    assert (first.reason, first.turns) == (Reason.MAX_TURNS, 3)
    assert {second.reason, third.reason} == {Reason.MAX_TURNS}
    assert len([request for request in model.requests if request.tools]) == 3


@pytest.mark.parametrize("limit", ["task", "agent", "scope"])
async def test_a_budget_in_dollars_holds_where_the_session_has_none(
    limit: str, isolated: IsolatedOptions
) -> None:
    model = ScriptedModel(read_on, "anthropic:claude-sonnet-4-5")
    cheap = Agent(name="cheap", budget=Budget(usd=0.02))
    async with open_session(isolated, model) as session:
        if limit == "task":
            report = await session.task("read", budget=Budget(usd=0.02))
        elif limit == "agent":
            report = await session.task("read", agent=cheap)
        else:
            prompt = PromptConfig(system_prompt="read")
            tools = ToolConfig(tools=["read"])
            config = RunConfig(max_budget_usd=0.02)
            output = await session.scope("a", prompt, run_config=config, tool_config=tools)
            assert output.report
            report = output.report
    assert report.reason is Reason.BUDGET and report.usd and report.usd < 0.08
    assert report.limit and report.limit.name == "usd"


async def test_a_budget_in_dollars_needs_a_price_everywhere(isolated: IsolatedOptions) -> None:
    model = ScriptedModel(read_on, "unknown:model")
    async with open_session(isolated, model) as session:
        with pytest.raises(UsageError, match="price of unknown:model is not known"):
            await session.task("read", budget=Budget(usd=1))
        with pytest.raises(UsageError, match="price of unknown:model is not known"):
            prompt = PromptConfig(system_prompt="read")
            await session.scope("a", prompt, run_config=RunConfig(max_budget_usd=1))
    assert not model.requests


async def test_tokens_of_a_scope_hold(isolated: IsolatedOptions) -> None:
    prompt = PromptConfig(system_prompt="read")
    config = RunConfig(max_total_tokens=3_000)
    async with open_session(isolated) as session:
        output = await session.scope(
            "a", prompt, run_config=config, tool_config=ToolConfig(tools=["read"])
        )
    assert output.terminate_reason is Reason.BUDGET


async def test_a_task_gets_the_depth_of_the_session(isolated: IsolatedOptions) -> None:
    model = ScriptedModel(lambda request: "done")
    async with open_session(isolated, model, budget=Budget(depth=2)) as session:
        await session.task("a")
        await session.task("a", budget=Budget(depth=5))
    async with open_session(isolated, model, budget=Budget(depth=0)) as session:
        await session.run("a")
        await session.task("a", budget=Budget(depth=1))
    async with open_session(isolated, model) as session:
        await session.task("a")
    has_task = ["task" in request.tools for request in model.requests]
    assert has_task == [True, True, False, False, False]


@pytest.mark.parametrize(
    "budget", [Budget(turns=3), Budget(total_tokens=7_000), Budget(output_tokens=2_600)]
)
async def test_a_record_with_limits_of_the_session_replays(
    budget: Budget, isolated: IsolatedOptions
) -> None:
    journal = MemoryJournal()
    async with open_session(isolated, journal=journal, budget=budget) as session:
        reports = [await session.run("read"), await session.task("read"), await session.run("a")]
        events = [event async for event in journal.read()]
    assert Reason.GOAL not in {report.reason for report in reports}
    await replay(events)


async def test_a_record_with_a_limit_in_dollars_replays(isolated: IsolatedOptions) -> None:
    journal = MemoryJournal()
    model = ScriptedModel(read_on, "anthropic:claude-sonnet-4-5")
    budget = Budget(usd=0.06)
    async with open_session(isolated, model, journal=journal, budget=budget) as session:
        report = await session.run("read")
        events = [event async for event in journal.read()]
    assert report.reason is Reason.BUDGET
    await replay(events)


def test_a_summary_after_a_short_time_limit_has_a_short_time(isolated: IsolatedOptions) -> None:
    async def answer_never_last(request: Request) -> Answer:
        await asyncio.sleep(0.9 if request.tools else 1000)
        return [call("glob", pattern="*")]

    async def run() -> tuple[Report, float]:
        model = ScriptedModel(answer_never_last)
        async with open_session(isolated, model, prompt_budget=Budget(seconds=1)) as session:
            loop = asyncio.get_running_loop()
            began = loop.time()
            return await session.run("Find it."), loop.time() - began

    report, seconds = run_virtual(run())
    assert report.reason is Reason.TIMEOUT
    assert seconds < 7
