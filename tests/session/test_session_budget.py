"""The budget of a session: one ledger for prompts, streams, tasks, maps and scopes; costs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from mudroom import (
    Agent,
    AssistantMessage,
    Budget,
    ImageBlock,
    ModelOptions,
    Reason,
    Report,
    Session,
    TextBlock,
    ToolCallBlock,
    Usage,
    tool,
)
from mudroom._core.budgets import Limit
from mudroom._replay import replay
from mudroom.errors import UsageError
from mudroom.scope import PromptConfig, RunConfig, ToolConfig
from mudroom.testing import (
    Answer,
    MemoryJournal,
    MemoryStore,
    Request,
    ScriptedModel,
    call,
    run_virtual,
)

from ..worker_kinds import RAY
from .conftest import IsolatedOptions
from .test_prompt_images import make_png

FREE = "ollama:some-model"
MODEL = "anthropic:claude-sonnet-4-5"
UNKNOWN = "unknown:model"
TOKENS = Usage(100, 10)
LIMIT = Budget(usd=1, depth=1)
NO_LIMIT = Budget(depth=1)


async def run_with_child(
    isolated: IsolatedOptions,
    name: str,
    budget: Budget,
    usage: Usage = TOKENS,
    *,
    prices: bool = False,
) -> Report:
    """Run a prompt and one child below it; each of the three answers has this usage."""

    def answer(request: Request) -> Answer:
        is_first = request.turn == 0 and "task" in request.tools
        block = call("task", prompt="CHILD") if is_first else TextBlock("done")
        return AssistantMessage((block,), usage=usage)

    model = ScriptedModel(answer, name)
    async with Session(
        model=model, prompt_budget=budget, model_options=ModelOptions(prices=prices), **isolated
    ) as session:
        return await session.run("PARENT")


@pytest.mark.parametrize("prices", [False, True])
@pytest.mark.parametrize("budget", [LIMIT, NO_LIMIT], ids=["limit", "no limit"])
async def test_a_free_model_costs_nothing(
    prices: bool, budget: Budget, isolated: IsolatedOptions
) -> None:
    report = await run_with_child(isolated, FREE, budget, prices=prices)
    assert (report.usage.total_tokens, report.usd) == (330, 0.0)


@pytest.mark.parametrize("prices", [False, True])
async def test_the_costs_of_an_unknown_price_are_unknown(
    prices: bool, isolated: IsolatedOptions
) -> None:
    report = await run_with_child(isolated, UNKNOWN, NO_LIMIT, prices=prices)
    assert report.ok and report.usd is None
    with pytest.raises(UsageError, match="price of unknown:model is not known"):
        await run_with_child(isolated, UNKNOWN, LIMIT, prices=prices)


@pytest.mark.parametrize("prices", [False, True])
@pytest.mark.parametrize("name", [MODEL, UNKNOWN])
async def test_the_price_that_a_provider_states_counts_without_the_table(
    prices: bool, name: str, isolated: IsolatedOptions
) -> None:
    usage = Usage(100, 10, usd=0.25)
    report = await run_with_child(isolated, name, NO_LIMIT, usage, prices=prices)
    assert report.usd == 0.75


@pytest.mark.parametrize(
    ("budget", "prices"), [(NO_LIMIT, True), (LIMIT, True), (LIMIT, False)], ids=str
)
async def test_prices_or_a_limit_in_dollars_read_the_table_of_prices(
    budget: Budget, prices: bool, isolated: IsolatedOptions
) -> None:
    report = await run_with_child(isolated, MODEL, budget, prices=prices)
    assert report.usd == pytest.approx(3 * (100 * 3 + 10 * 15) / 1_000_000, abs=1e-6)


async def test_costs_that_need_the_table_are_unknown_without_it(isolated: IsolatedOptions) -> None:
    report = await run_with_child(isolated, MODEL, NO_LIMIT)
    assert report.ok and report.usd is None


PICTURE = ImageBlock("image/png", make_png(3, 2))


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
@pytest.mark.parametrize(
    "budget", [Budget(turns=3), Budget(total_tokens=6_000), Budget(usd=0.06)], ids=repr
)
async def test_a_limit_of_the_session_holds(
    start: Start, budget: Budget, isolated: IsolatedOptions
) -> None:
    model = ScriptedModel(read_on, MODEL)
    async with open_session(isolated, model, budget=budget) as session:
        reports = await start(session)
    expected = Reason.MAX_TURNS if budget.turns else Reason.BUDGET
    assert {report.reason for report in reports} == {expected}
    if budget.turns:
        assert len([request for request in model.requests if request.tools]) == 3
    if budget.total_tokens:
        spent = sum(report.usage.total_tokens for report in reports)
        assert spent <= 6_000 + 2_000, "at most one answer is over the limit"
    assert all(report.usd is not None for report in reports) or not budget.usd


async def test_tokens_of_a_scope_hold(isolated: IsolatedOptions) -> None:
    prompt = PromptConfig(system_prompt="read")
    config = RunConfig(max_total_tokens=3_000)
    tools = ToolConfig(tools=["read"])
    async with open_session(isolated) as session:
        output = await session.scope("a", prompt, run_config=config, tool_config=tools)
    assert output.terminate_reason is Reason.BUDGET


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
    model = ScriptedModel(read_on, MODEL)
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


@pytest.mark.parametrize("limit", ["task", "agent", "scope"])
async def test_a_budget_in_dollars_holds_where_the_session_has_none(
    limit: str, isolated: IsolatedOptions
) -> None:
    model = ScriptedModel(read_on, MODEL)
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
