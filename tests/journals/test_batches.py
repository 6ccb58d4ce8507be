"""Reads of a journal that are cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Generator

import pytest
from tests.waiting import wait_until

from mudroom._adapters.journals.sqlite.reader import read_in_batches
from mudroom._core.events import StoredEvent


async def test_a_cancelled_read_is_closed_after_its_thread_has_ended() -> None:
    begins, may_end = threading.Event(), threading.Event()
    closed: list[bool] = []

    def read() -> Generator[StoredEvent]:
        try:
            begins.set()
            assert may_end.wait(60)
            yield from ()
        finally:
            closed.append(may_end.is_set())

    async def consume() -> list[StoredEvent]:
        return [event async for event in read_in_batches(read)]

    consumer = asyncio.create_task(consume())
    await wait_until(begins.is_set)
    consumer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer
    assert not closed
    may_end.set()
    await wait_until(lambda: closed)
    assert closed == [True]


def test_a_cancelled_read_is_closed_after_its_thread_when_the_event_loop_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begins, may_end = threading.Event(), threading.Event()
    closed: list[bool] = []

    def read() -> Generator[StoredEvent]:
        try:
            begins.set()
            assert may_end.wait(60)
            yield from ()
        finally:
            closed.append(may_end.is_set())

    async def consume() -> list[StoredEvent]:
        return [event async for event in read_in_batches(read)]

    async def end_last() -> AsyncIterator[None]:
        """Let the thread end; the loop closes generators after it has cancelled all tasks."""
        try:
            yield
        finally:
            may_end.set()

    async def leave(last: AsyncIterator[None]) -> None:
        await anext(last)
        consumer = asyncio.create_task(consume())
        await wait_until(begins.is_set)
        consumer.cancel()
        await asyncio.wait((consumer,))

    last = end_last()  # kept: a generator without a reference is closed earlier
    asyncio.run(leave(last))
    assert closed == [True]
    assert not caplog.records
