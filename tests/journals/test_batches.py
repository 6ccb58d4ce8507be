"""Reads of a journal that are cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Generator

import pytest
from tests.waiting import wait_until

from mudroom._adapters.journals.sqlite.reader import read_in_batches
from mudroom._core.events import StoredEvent


class SlowRead:
    """A read whose thread ends when it may; it notes whether it was closed only then."""

    def __init__(self) -> None:
        self.begins = threading.Event()
        self.may_end = threading.Event()
        self.closed: list[bool] = []

    async def consume(self) -> list[StoredEvent]:
        return [event async for event in read_in_batches(self._read)]

    def _read(self) -> Generator[StoredEvent]:
        try:
            self.begins.set()
            assert self.may_end.wait(60)
            yield from ()
        finally:
            self.closed.append(self.may_end.is_set())


async def test_a_cancelled_read_is_closed_after_its_thread_has_ended() -> None:
    reading = SlowRead()
    consumer = asyncio.create_task(reading.consume())
    await wait_until(reading.begins.is_set)
    consumer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer
    assert not reading.closed
    reading.may_end.set()
    await wait_until(lambda: reading.closed)
    assert reading.closed == [True]


def test_a_cancelled_read_is_closed_after_its_thread_when_the_event_loop_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reading = SlowRead()

    async def end_last() -> AsyncIterator[None]:
        """Let the thread end; the loop closes generators after it has cancelled all tasks."""
        try:
            yield
        finally:
            reading.may_end.set()

    async def leave(last: AsyncIterator[None]) -> None:
        await anext(last)
        consumer = asyncio.create_task(reading.consume())
        await wait_until(reading.begins.is_set)
        consumer.cancel()
        await asyncio.wait((consumer,))

    last = end_last()  # kept: a generator without a reference is closed earlier
    asyncio.run(leave(last))
    assert reading.closed == [True]
    assert not caplog.records
