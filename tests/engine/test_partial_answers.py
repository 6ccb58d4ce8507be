"""Answers that are cut off: the words so far are in the report, budgets count an estimate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mudroom import (
    AnyEvent,
    AssistantMessage,
    Budget,
    Ledger,
    ModelOptions,
    Reason,
    Report,
    Session,
)
from mudroom._adapters.models.scripted import (
    Answer,
    Request,
    ScriptedConversation,
    ScriptedModel,
    call,
)
from mudroom._core.budgets import Limit
from mudroom._projections.ledger import describe_ledger
from mudroom._replay import replay
from mudroom.errors import ModelRefused
from mudroom.events import Delta, TurnFailed
from mudroom.ports import RequestConfig, RetryNotice, StreamChunk
from mudroom.testing import Fault, MemoryJournal, MemoryStore, ModelServer, run_virtual
from mudroom.testing.model_server import ServerAnswer, ServerRequest

from ..worker_kinds import WORKERS

WORDS = "Half of the"
PRICED = "anthropic:claude-sonnet-4-5"
WIRES = {
    "anthropic": ("anthropic:claude-sonnet-4-5", "ANTHROPIC", ""),
    "openai": ("openai-chat:gpt-4o", "OPENAI", "/v1"),
    "google": ("google:gemini-2.5-flash", "GEMINI", "/v1beta"),
}


class StuckModel(ScriptedModel):
    """A scripted model that streams the answer WORDS and then waits without end."""

    def start_conversation(self, config: RequestConfig) -> StuckConversation:
        return StuckConversation(self, config)


class StuckConversation(ScriptedConversation):
    async def request_answer(
        self, *, tools: bool = True, max_tokens: int | None = None
    ) -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
        async for item in super().request_answer(tools=tools):
            if isinstance(item, AssistantMessage) and item.text == WORDS:
                await asyncio.Event().wait()
            yield item


def answer_as_family(request: Request) -> Answer:
    """Start a child that gets stuck; report its report."""
    if request.prompt == "CHILD":
        return WORDS
    return call("task", prompt="CHILD") if request.turn == 0 else request.results[0].text


def open_session(folder: Path, model: object, **options: object) -> Session:
    defaults = {"cwd": str(folder), "home": str(folder / "home"), "journal": "memory"}
    return Session(model=model, **{**defaults, **options})  # type: ignore[arg-type]


async def run_and_cut(session: Session, prompt: str = "PARENT", stopped: str = "1") -> Report:
    """Run a prompt; cancel a run when it has streamed a text."""

    def stop(event: AnyEvent) -> None:
        if isinstance(event, Delta) and event.run == stopped:
            asyncio.get_running_loop().call_soon(session.runs.cancel, stopped)

    session.watch(stop)
    return await session.run(prompt)


async def test_words_before_a_cancel_are_reported_and_usage_is_a_minimum(
    tmp_path: Path,
) -> None:
    journal = MemoryJournal()
    async with open_session(tmp_path, StuckModel([WORDS]), journal=journal) as session:
        report = await run_and_cut(session)
    assert (report.reason, report.text, report.recovered) == (Reason.CANCELLED, WORDS, False)
    assert (report.usage.total_tokens, report.has_unknown_usage) == (0, True)
    (failed,) = [event for event in journal.events if isinstance(event, TurnFailed)]
    assert failed.text == WORDS
    assert failed.estimate.input_tokens > 300, "system prompt and tools"
    assert failed.estimate.output_tokens == len(WORDS) // 4
    await replay(journal.events)


def test_words_before_a_time_limit_are_in_the_report(tmp_path: Path) -> None:
    async def work() -> None:
        budget = Budget(seconds=5)
        async with open_session(tmp_path, StuckModel([WORDS]), budget=budget) as session:
            report = await session.run("PARENT")
        assert (report.reason, report.text) == (Reason.TIMEOUT, WORDS)

    run_virtual(work())


@pytest.mark.parametrize("worker", WORKERS)
async def test_words_of_a_cancelled_child_reach_its_parent_and_usage_is_at_least(
    tmp_path: Path, worker: str
) -> None:
    journal = MemoryJournal()
    model = StuckModel(answer_as_family)
    async with open_session(tmp_path, model, journal=journal, worker=worker) as session:
        report = await run_and_cut(session, "PARENT", "1.1.1")
    first = f"[CANCELLED: it was cancelled; what follows is partial]\n{WORDS}\n"
    assert report.ok and report.text.startswith(first) and report.has_unknown_usage
    assert "; at least 0 tokens;" in report.text
    assert "Children used at least 0 tokens" in describe_ledger(Ledger.from_events(journal.events))
    await replay(journal.events)


async def test_words_of_a_repeated_call_are_not_kept(tmp_path: Path) -> None:
    class Retrying(StuckConversation):
        async def request_answer(
            self, *, tools: bool = True, max_tokens: int | None = None
        ) -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
            yield StreamChunk("text", "void")
            yield RetryNotice(1, 0.0, 500, "overloaded")
            yield StreamChunk("text", "new")
            raise AssertionError("a fault of the model")

    class RetryingModel(ScriptedModel):
        def start_conversation(self, config: RequestConfig) -> Retrying:
            return Retrying(self, config)

    events: list[AnyEvent] = []
    async with open_session(tmp_path, RetryingModel([])) as session:
        session.watch(events.append)
        with pytest.raises(AssertionError):
            await session.run("PARENT")
    assert [event.text for event in events if isinstance(event, TurnFailed)] == ["new"]


@pytest.mark.parametrize(
    ("model", "usd"),
    [("unknown:model", None), ("anthropic:claude-sonnet-4-5", None), ("scripted:model", 0.0)],
)
async def test_costs_of_a_call_that_was_cut_off_are_zero_only_for_a_free_model(
    tmp_path: Path, model: str, usd: float | None
) -> None:
    options = {"model_options": ModelOptions(prices=True)}
    async with open_session(tmp_path, StuckModel(answer_as_family, model), **options) as session:
        child = await run_and_cut(session, "CHILD")
    assert (child.reason, child.usd) == (Reason.CANCELLED, usd)


async def test_the_unknown_price_of_a_child_makes_the_costs_of_its_parent_unknown(
    tmp_path: Path,
) -> None:
    async def cut(request: Request) -> Answer:
        if request.prompt == "CHILD":
            return ModelRefused("no")
        return call("task", prompt="CHILD", model="unknown:model") if not request.turn else "end"

    model = ScriptedModel(cut)
    other = ScriptedModel(cut, "unknown:model")
    async with open_session(tmp_path, model, model_options=ModelOptions(prices=True)) as session:
        session._require_open().resources.models.register(other)
        report = await session.run("PARENT")
    assert report.ok and report.usd is None


@pytest.mark.parametrize("wire", WIRES)
async def test_words_that_a_wire_streamed_before_a_cancel_are_in_the_report(
    tmp_path: Path, wire: str
) -> None:
    async def answer(request: ServerRequest) -> ServerAnswer:
        return Fault(f"{WORDS} {'answer ' * 200}", chunk_size=200, pause=0.01)

    model, name, path = WIRES[wire]
    async with ModelServer(answer) as server:
        environ = {f"{name}_API_KEY": "k", f"{name}_BASE_URL": server.url + path}
        async with open_session(tmp_path, model, environ=environ) as session:
            shown: list[str] = []

            def stop(event: AnyEvent) -> None:
                if isinstance(event, Delta) and event.kind == "text":
                    shown.append(event.text)
                    if len("".join(shown)) > len(WORDS):
                        asyncio.get_running_loop().call_soon(session.runs.cancel)

            session.watch(stop)
            report = await session.run("PARENT")
    assert report.reason is Reason.CANCELLED
    assert report.text.startswith(WORDS) and report.text == "".join(shown).strip()


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
