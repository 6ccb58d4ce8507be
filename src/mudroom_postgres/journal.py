"""Journal of one session in a PostgreSQL database: durable, one writer, any number of readers.

An append returns once the database has committed its events. Appends that arrive during a commit
share the next one (group commit).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from typing import NamedTuple

from mudroom.errors import JournalError
from mudroom.events import StoredEvent
from mudroom.views import SummarySaver

from .connections import Database
from .event_rows import encode_row
from .lease import RENEWAL_SECONDS, Lease
from .reader import read_events
from .writer import EventWriter

log = logging.getLogger("mudroom")

# After a commit with at least this many appends, the next one waits for more to join.
_BUSY_APPENDS = 3

# Length of that wait.
_GATHER_SECONDS = 0.003

_MAX_WAKES = 32
"""Appends finished in one iteration of the event loop. Each wakes a run for 0.1 to 0.2 ms, so
thousands at once would hold up timers, input and cancels."""


class _Append(NamedTuple):
    """An append waiting for its commit.

    Arguments:
        first: number of its first event.
        summary: summary state to save after it, "" for none.
    """

    first: int
    rows: list[bytes]
    summary: str
    waiter: asyncio.Future[None]


class PostgresJournal:
    """The only writer of a session. The store creates it with a lease it has taken.

    It belongs to the event loop of its first append.

    Arguments:
        last: number of the last recorded event.
    """

    def __init__(
        self, database: Database, lease: Lease, last: int, summary_saver: SummarySaver
    ) -> None:
        self.place = f"{database.place}, session {lease.session}"
        self._database = database
        self._lease = lease
        self._last = last
        self._summary_saver = summary_saver
        self._writer = EventWriter(database, lease, self.place, self._tell)
        self._waiting: deque[_Append] = deque()
        self._has_work = asyncio.Event()  # of the background loop
        self._is_signalled = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: JournalError | None = None
        self._is_closed = False
        self._appended = asyncio.Event()
        self._tasks = [
            asyncio.run_coroutine_threadsafe(work, database.loop)
            for work in (self._write_until_closed(), self._renew_lease())
        ]

    async def append(self, *events: StoredEvent) -> int:
        # A cancelled caller only stops waiting: what is in the queue is stored. After a failure
        # nothing more can be appended, or the record would have a gap.
        first = self._last + 1
        rows = [encode_row(self._lease.session, n, event) for n, event in enumerate(events, first)]
        if self._is_closed or self._failure:
            raise self._make_error()
        if not rows:
            return self._last
        self._last += len(rows)
        summary = self._summary_saver.apply(events, self._last)
        self._loop = self._loop or asyncio.get_running_loop()
        waiter = self._loop.create_future()
        position = self._last
        self._waiting.append(_Append(first, rows, summary, waiter))
        self._signal()
        await waiter
        return position

    def read(
        self, after: int = 0, *, types: Collection[type[StoredEvent]] = ()
    ) -> AsyncIterator[StoredEvent]:
        return read_events(self._database, self._lease.session, after, types)

    async def follow(self, after: int = 0) -> AsyncIterator[StoredEvent]:
        while True:
            appended = self._appended
            is_closed = self._is_closed
            async for event in self.read(after):
                after += 1
                yield event
            if is_closed:
                return
            await appended.wait()

    async def close(self) -> None:
        """Finish pending appends and release the session. Safe to call again."""
        self._is_closed = True
        self._signal()
        writing, renewing = self._tasks
        await asyncio.shield(asyncio.wrap_future(writing))
        renewing.cancel()
        self._wake_followers()

    def _signal(self) -> None:
        """Wake the writer, unless it is already awake and yet to look at the queue."""
        if not self._is_signalled:
            self._is_signalled = True
            self._database.loop.call_soon_threadsafe(self._has_work.set)

    async def _write_until_closed(self) -> None:
        """Store all waiting appends together, repeatedly. Runs in the background loop."""
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            self._is_signalled = False  # before the queue is read: a later append signals again
            while self._waiting:
                if await self._store_waiting() >= _BUSY_APPENDS and not self._is_closed:
                    await asyncio.sleep(_GATHER_SECONDS)
            if self._is_closed and not self._waiting:
                break
        # The lease ends by itself if the database cannot be reached.
        with suppress(JournalError):
            await self._save_summary(self._summary_saver.encode_unsaved(), self._last)
            await self._lease.release()

    async def _store_waiting(self) -> int:
        """Store the waiting appends; return how many there were."""
        batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if self._failure is None:
            rows = [row for each in batch for row in each.rows]
            try:
                await self._writer.store(batch[0].first, rows)
            except JournalError as error:
                self._failure = error
        waiters = [each.waiter for each in batch]
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop is closed, so no waiter is left
            self._loop.call_soon_threadsafe(self._wake, waiters)
        for each in reversed(batch):
            if each.summary:
                await self._save_summary(each.summary, each.first + len(each.rows) - 1)
                break
        return len(batch)

    async def _save_summary(self, summary: str, position: int) -> None:
        # A list of sessions reads the events after the last saved state, so an error only costs
        # time.
        if summary and self._failure is None:
            with suppress(Exception):
                await self._writer.save_summary(summary, position)

    async def _renew_lease(self) -> None:
        while self._failure is None:
            await asyncio.sleep(RENEWAL_SECONDS)
            try:
                await self._lease.renew()
            except JournalError as error:
                self._failure = self._failure or error
            except Exception:  # noqa: BLE001  the next renewal or append tries again
                continue

    def _tell(self, text: str) -> None:
        """Log a notice in the session's thread, which draws the screen."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(log.warning, "%s", text)

    def _wake(self, waiters: list[asyncio.Future[None]]) -> None:
        """Finish the appends of a commit, a few in one iteration of the session's event loop."""
        self._wake_followers()
        for waiter in waiters[:_MAX_WAKES]:
            if waiter.done():
                continue
            if self._failure:
                waiter.set_exception(self._make_error())
            else:
                waiter.set_result(None)
        if (rest := waiters[_MAX_WAKES:]) and self._loop:
            self._loop.call_soon(self._wake, rest)

    def _wake_followers(self) -> None:
        self._appended.set()
        self._appended = asyncio.Event()

    def _make_error(self) -> JournalError:
        failure = self._failure
        if failure is None:
            return JournalError("the journal is closed", where=self.place)
        # A new exception for each waiter: one shared by several would collect all their
        # tracebacks.
        return type(failure)(failure.message, where=failure.where, remedy=failure.remedy)
