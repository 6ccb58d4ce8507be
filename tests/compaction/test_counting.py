"""Sizes of requests: counted with little work, and without a copy of the messages."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import AsyncIterator, Collection
from typing import Any

import pytest

from mudroom import Compaction
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._core.events import StoredEvent
from mudroom._core.messages import (
    AssistantMessage,
    Message,
    StopReason,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
)
from mudroom._core.ports import ModelConversation, RequestConfig
from mudroom._engine.context_policy import (
    LOOK_UP_SIZE,
    ContextPolicy,
    Thresholds,
    choose_next_check,
)
from mudroom._engine.conversation import Conversation
from mudroom.testing import Request

from .conftest import Stage


class Sink:
    """The port ModelConversation of a server that holds the conversation itself."""

    def append(self, message: Message) -> None:
        """Ignore a message."""

    async def request_answer(
        self, *, tools: bool = True, max_tokens: int | None = None
    ) -> AsyncIterator[AssistantMessage]:
        """Yield a short answer."""
        yield AssistantMessage((TextBlock("next"),), usage=Usage(10, 1))


async def test_a_conversation_keeps_no_copy_of_its_messages() -> None:
    def start_model(config: RequestConfig) -> ModelConversation:
        return Sink()

    conversation = Conversation(start_model, RequestConfig(system=""), (), (TextBlock("read all"),))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for turn in range(100):
            text = f"{turn:05}" * 2_000
            conversation.queue_results([ToolResultBlock(f"call_{turn}", "read", text)])
            async for answer in conversation.request_answer(tools=True):
                assert isinstance(answer, AssistantMessage)
                conversation.append_answer(answer, answer.usage.total_tokens)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 100_000, "the texts of the results have 1,000,000 characters"


def test_requests_of_usual_size_ask_no_slow_source_of_windows() -> None:
    def fail(name: str) -> int:
        raise AssertionError(name)

    policy = ContextPolicy(look_up_window=fail)
    assert policy.choose_thresholds("some:model", LOOK_UP_SIZE - 1, None) is None
    with pytest.raises(AssertionError):
        policy.choose_thresholds("some:model", LOOK_UP_SIZE, None)


async def test_a_slow_source_of_windows_does_not_stop_the_event_loop() -> None:
    threads: list[int] = []

    def look_up(name: str) -> int:
        threads.append(threading.get_ident())
        return 0

    policy = ContextPolicy(look_up_window=look_up)
    await policy.load_window("some:model", LOOK_UP_SIZE - 1)
    assert not threads
    await policy.load_window("some:model", LOOK_UP_SIZE)
    assert threads and threading.get_ident() not in threads


@pytest.mark.parametrize(
    ("size", "limits", "expected"),
    [
        pytest.param(1_000, None, 5_000, id="the window is not known yet"),
        pytest.param(1_000, Thresholds(128_000, 76_800, 108_800), 5_000, id="far below"),
        pytest.param(76_000, Thresholds(128_000, 76_800, 108_800), 76_801, id="near clearing"),
        pytest.param(76_801, Thresholds(128_000, 76_800, 108_800), 80_801, id="above clearing"),
        pytest.param(108_000, Thresholds(128_000, 76_800, 108_800), 108_801, id="near compaction"),
        pytest.param(1_000, Thresholds(3_200, 1_920, 2_560), 1_100, id="a small window"),
    ],
)
def test_a_request_is_compared_again_before_it_can_pass_a_threshold(
    size: int, limits: Thresholds | None, expected: int
) -> None:
    assert choose_next_check(size, limits) == expected


async def test_a_conversation_is_shortened_if_its_provider_counts_no_tokens(stage: Stage) -> None:
    def answer(request: Request) -> AssistantMessage:
        if request.number > 14:
            return AssistantMessage((TextBlock("done"),))
        arguments = {"file_path": f"{request.number - 1}.txt"}
        block = ToolCallBlock(f"call_{request.number}", "read", arguments)
        return AssistantMessage((block,), StopReason.CALLS)

    stage.write_files(14)
    async with stage.open(answer) as session:
        report = await session.run("Read all files.")
    assert report.ok
    assert stage.clearings


class UnreadableJournal(MemoryJournal):
    """A journal that does not allow to read the whole record."""

    def read(
        self, after: int = 0, *, types: Collection[type[StoredEvent]] = ()
    ) -> AsyncIterator[StoredEvent]:
        """Fail."""
        raise AssertionError("the record was read")


@pytest.mark.parametrize(
    ("lines", "window"),
    [
        pytest.param(100, 8_000, id="more than from which results are cleared"),
        pytest.param(6, 3_200, id="more than from which the conversation is compacted"),
    ],
)
async def test_many_results_of_the_first_turn_need_no_look_into_the_record(
    stage: Stage, lines: int, window: int
) -> None:
    def answer(request: Request) -> AssistantMessage:
        if request.number > 1:
            return AssistantMessage((TextBlock("done"),), usage=Usage(10, 1))
        arguments = {"file_path": "0.txt", "limit": lines}
        blocks = tuple(
            ToolCallBlock(f"call_{number}", "read", arguments) for number in range(300 // lines)
        )
        return AssistantMessage(blocks, StopReason.CALLS, usage=Usage(10, 1))

    stage.write_files(1, 10_000)
    options: dict[str, Any] = {
        "journal": UnreadableJournal(),
        "compaction": Compaction(context_window=window, clear_at=20),
    }
    async with stage.open(answer, **options) as session:
        report = await session.run("Read the file.")
    assert report.ok, report.error
