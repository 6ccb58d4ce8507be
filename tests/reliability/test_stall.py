"""S10: a model that stops sending, before or inside an answer, does not block a run for ever."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from mudroom import AssistantMessage, Budget, Reason, Report, Session
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import AnyEvent
from mudroom._core.messages import Message, StopReason, TextBlock, Usage
from mudroom._core.ports import RequestConfig, RetryNotice, StreamChunk
from mudroom._engine.model_call import FIRST_CHUNK_SECONDS, SILENCE_SECONDS
from mudroom.testing.clock import run_virtual
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest
from mudroom.testing.wire_formats import WireAnswer, anthropic_stream

from .conftest import CheckRecord
from .killed import LONG
from .providers import open_session

Parts = Callable[[], AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]]


class SlowModel:
    """A model, and its conversation, that answers with delays."""

    name = "slow:model"

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def start_conversation(self, config: RequestConfig) -> SlowModel:
        return self

    def append(self, message: Message) -> None:
        pass

    def request_answer(
        self, *, tools: bool = True, max_tokens: int | None = None
    ) -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
        return self._parts()

    async def close(self) -> None:
        pass


async def never() -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
    await asyncio.Event().wait()
    yield StreamChunk("text", "")


async def stops_in_the_middle() -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
    yield StreamChunk("text", "So far ")
    await asyncio.Event().wait()


async def slow_but_alive() -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
    await asyncio.sleep(FIRST_CHUNK_SECONDS)
    for _ in range(20):
        yield StreamChunk("thinking", "hm ")
        await asyncio.sleep(SILENCE_SECONDS - 1)
    yield AssistantMessage((TextBlock("Done."),))


async def retries_after_long_waits() -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
    for attempt in range(1, 4):
        yield RetryNotice(attempt, 290.0, 429, "too many requests")
        await asyncio.sleep(290 + FIRST_CHUNK_SECONDS)
    yield AssistantMessage((TextBlock("Done."),))


PING = b'event: ping\ndata: {"type": "ping"}\n\n'
PAUSE = 100.0
"""Seconds between two pings."""
PINGS = 18 if LONG else math.ceil(2 * FIRST_CHUNK_SECONDS / PAUSE)
"""Half an hour in the long form, else twice the longest silence that is allowed."""


def test_a_stream_that_only_pings_is_alive(tmp_path: Path) -> None:
    async def work() -> Report:
        async def answer(request: ServerRequest) -> ServerAnswer:
            whole = anthropic_stream(
                WireAnswer((TextBlock("Done."),), "m", "msg", Usage(1, 1), StopReason.END)
            )
            rest = b"".join(whole)
            ping = PING.rjust(len(rest), b"\n")
            return Fault(
                body=ping * PINGS + rest,
                content_type="text/event-stream",
                chunk_size=len(rest),
                pause=PAUSE,
            )

        async with ModelServer(answer) as server, open_session(tmp_path, server) as session:
            return await session.run("PARENT")

    assert run_virtual(work()).text == "Done."


@pytest.mark.parametrize(
    ("seconds", "reason", "requests"), [(None, Reason.ERROR, 3), (200.0, Reason.TIMEOUT, 2)]
)
def test_a_child_whose_provider_stalls_ends_with_its_partial_report(
    tmp_path: Path, seconds: float | None, reason: Reason, requests: int
) -> None:
    async def work() -> tuple[Report, int, float]:
        whole = anthropic_stream(
            WireAnswer((TextBlock("Half of it"),), "m", "msg", Usage(1, 1), StopReason.END)
        )
        body = b"".join(whole)
        end = body.index(b"event: content_block_stop")
        stalled = Fault(body=body, content_type="text/event-stream", cut_after=end, end="stall")
        async with ModelServer(lambda _: stalled) as server:
            async with open_session(tmp_path, server) as session:
                budget = Budget(seconds=seconds)
                report = await session.task("CHILD", budget=budget)
            return report, server.request_count, asyncio.get_running_loop().time()

    report, count, end = run_virtual(work())
    assert (report.reason, report.text) == (reason, "Half of it")
    assert end < 8 * 60
    # A run at its time limit asks once more, for a summary.
    assert requests <= count <= requests + 1


def run_model(folder: Path, model: Any, check_record: CheckRecord) -> tuple[Report, float]:
    """Run on virtual time, check the record, and return the report and the seconds."""
    events: list[AnyEvent] = []

    async def work() -> tuple[Report, float]:
        async with Session(
            model=model, cwd=str(folder), home=str(folder / "home"), journal="memory"
        ) as session:
            session.watch(events.append)
            report = await session.run("PARENT")
            return report, asyncio.get_running_loop().time()

    report, seconds = run_virtual(work())
    asyncio.run(check_record(events, timed=False))
    return report, seconds


@pytest.mark.parametrize(
    ("parts", "limit"),
    [(never, SILENCE_SECONDS + FIRST_CHUNK_SECONDS), (stops_in_the_middle, SILENCE_SECONDS)],
)
def test_s10_a_silent_model_ends_the_run(
    tmp_path: Path, parts: Parts, limit: float, check_record: CheckRecord
) -> None:
    report, seconds = run_model(tmp_path, SlowModel(parts), check_record)
    assert (report.reason, report.error) == (Reason.TIMEOUT, "the model fell silent")
    assert seconds == pytest.approx(limit, abs=1)


@pytest.mark.parametrize("parts", [slow_but_alive, retries_after_long_waits])
def test_a_slow_model_that_sends_something_is_not_cut_off(
    tmp_path: Path, parts: Parts, check_record: CheckRecord
) -> None:
    report, seconds = run_model(tmp_path, SlowModel(parts), check_record)
    assert report.reason is Reason.GOAL
    assert seconds > 600


def test_s10_f16_a_parent_reads_that_its_child_fell_silent_and_continues(
    tmp_path: Path, check_record: CheckRecord
) -> None:
    async def script(request: Request) -> Answer:
        if request.prompt == "CHILD":
            if request.turn:
                await asyncio.Event().wait()
            return ["I begin.", call("glob", pattern="*")]
        return call("task", prompt="CHILD") if request.turn == 0 else request.results[0].text

    report, _ = run_model(tmp_path, ScriptedModel(script), check_record)
    assert report.ok
    assert report.text.startswith(
        "[TIMEOUT: the model fell silent; what follows is partial]\nI begin."
    )
