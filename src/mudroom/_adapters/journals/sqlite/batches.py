"""Turns a blocking generator of events into an asynchronous iterator, in batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator

from ...._core.events import StoredEvent
from ....errors import JournalError

# Events a thread reads at a time; the event loop runs in between.
_BATCH = 256


async def read_in_batches(
    start: Callable[[], Generator[StoredEvent]],
) -> AsyncIterator[StoredEvent]:
    """Yield the events of a blocking generator.

    It runs in threads, but only in one at a time, and is closed when no thread is running it.
    """
    events = start()
    error: JournalError | None = None
    batch: list[StoredEvent] = []
    loop = asyncio.get_running_loop()
    reading: asyncio.Future[None] | None = None

    def read_batch() -> None:
        nonlocal error
        batch.clear()
        try:
            for event in events:
                batch.append(event)
                if len(batch) == _BATCH:
                    return
        except JournalError as reason:
            error = reason

    try:
        while error is None:
            # Not a task: the end of the event loop cancels all tasks, even while their threads
            # are working.
            reading = loop.run_in_executor(None, read_batch)
            await asyncio.shield(reading)
            for event in batch:
                yield event
            if len(batch) < _BATCH:
                break
        # Events before the damage are good, so they are yielded before the error.
        if error is not None:
            raise error
    finally:
        if reading is None or reading.done():
            events.close()
        else:
            # A cancel does not stop the thread, and closing a connection in use may crash the
            # process.
            reading.add_done_callback(lambda _: events.close())
