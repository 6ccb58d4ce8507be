"""Partial answers: words that streamed before an interrupt or a limit are in the report."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mudroom import AnyEvent, AssistantMessage, Budget, ModelOptions, Reason, Session
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import (
    Answer,
    Request,
    ScriptedConversation,
    ScriptedModel,
    call,
)
from mudroom._replay import replay
from mudroom.errors import ModelRefused
from mudroom.events import Delta, TurnFailed
from mudroom.ports import RequestConfig, RetryNotice, StreamChunk
from mudroom.testing import Fault, ModelServer, run_virtual
from mudroom.testing.model_server import ServerAnswer, ServerRequest

WORDS = "Half of the"
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


async def test_words_before_a_cancel_are_in_the_report(tmp_path: Path) -> None:
    journal = MemoryJournal()
    async with open_session(tmp_path, StuckModel([WORDS]), journal=journal) as session:

        def stop(event: AnyEvent) -> None:
            if isinstance(event, Delta) and event.text:
                asyncio.get_running_loop().call_soon(session.runs.cancel)

        session.watch(stop)
        report = await session.run("PARENT")
    assert (report.reason, report.text, report.recovered) == (Reason.CANCELLED, WORDS, False)
    failed = [event.text for event in journal.events if isinstance(event, TurnFailed)]
    assert failed == [WORDS]
    await replay(journal.events)


def test_words_before_a_time_limit_are_in_the_report(tmp_path: Path) -> None:
    async def work() -> None:
        budget = Budget(seconds=5)
        async with open_session(tmp_path, StuckModel([WORDS]), budget=budget) as session:
            report = await session.run("PARENT")
        assert (report.reason, report.text) == (Reason.TIMEOUT, WORDS)

    run_virtual(work())


async def test_words_of_a_cancelled_child_are_in_its_report_to_the_parent(tmp_path: Path) -> None:
    async with open_session(tmp_path, StuckModel(answer_as_family)) as session:

        def stop(event: AnyEvent) -> None:
            if isinstance(event, Delta) and event.run == "1.1.1":
                asyncio.get_running_loop().call_soon(session.runs.cancel, "1.1.1")

        session.watch(stop)
        report = await session.run("PARENT")
    first = f"[CANCELLED: it was cancelled; what follows is partial]\n{WORDS}\n"
    assert report.ok and report.text.startswith(first)


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
    async with open_session(
        tmp_path, StuckModel(answer_as_family, model), model_options=ModelOptions(prices=True)
    ) as session:

        def stop(event: AnyEvent) -> None:
            if isinstance(event, Delta):
                asyncio.get_running_loop().call_soon(session.runs.cancel)

        session.watch(stop)
        child = await session.run("CHILD")
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
