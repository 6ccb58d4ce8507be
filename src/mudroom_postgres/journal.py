"""Journal of one session in a PostgreSQL database: durable, one writer, any number of readers.

An append returns once the database has committed its events. Appends that arrive during a commit
share the next one (group commit).
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID
from zlib import crc32

from mudroom.errors import JournalDamaged, JournalError, MudroomError
from mudroom.events import StoredEvent, decode_event, encode_event
from mudroom.ports import time_limit
from mudroom.views import SummarySaver

from . import connections
from .connections import Database, Tell, make_work
from .driver import (
    UNIQUE_VIOLATION,
    AppendCollision,
    Connection,
    describe_cause,
    get_state,
    is_temporary,
    make_lost_session_error,
    make_unrecorded_error,
)
from .lease import RENEWAL_SECONDS, Lease

COLUMNS = ("session", "n", "run", "type", "body", "crc")

# Rows in the binary format of COPY, see the PostgreSQL manual under COPY, "Binary Format".
_HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_END = struct.pack("!h", -1)
_KEY = struct.Struct("!hi16siq")
_LENGTH = struct.Struct("!i")
_CHECKSUM = struct.Struct("!iq")

DAMAGE_REMEDY = "Restore the database from a backup. The records before this one can be read."


def encode_row(session: UUID, n: int, event: StoredEvent) -> bytes:
    """Encode an event as a row in the binary format of COPY. Raises JournalError for a Delta."""
    body = encode_event(event)
    run = event.run.encode(errors="replace")
    tag = get_tag(type(event)).encode()
    return b"".join(
        (
            _KEY.pack(len(COLUMNS), 16, session.bytes, 8, n),
            _LENGTH.pack(len(run)),
            run,
            _LENGTH.pack(len(tag)),
            tag,
            _LENGTH.pack(len(body)),
            body,
            _CHECKSUM.pack(8, crc32(body)),
        )
    )


def make_copy_message(rows: Sequence[bytes]) -> bytearray:
    return bytearray(b"".join((_HEADER, *rows, _END)))


def is_stored_row(row: bytes, stored: Mapping[str, Any]) -> bool:
    """Return whether a stored row holds the event of an encoded row."""
    body: bytes = stored["body"]
    return row.endswith(_LENGTH.pack(len(body)) + body + _CHECKSUM.pack(8, stored["crc"]))


def decode_row(stored: Mapping[str, Any], place: str) -> StoredEvent:
    """Decode the event of a stored row. Raises JournalDamaged."""
    n = stored["n"]
    body: bytes = stored["body"]
    if crc32(body) != stored["crc"]:
        raise JournalDamaged(f"record {n} is damaged", where=place, remedy=DAMAGE_REMEDY)
    try:
        return decode_event(body)
    except ValueError as error:
        message = f"record {n} is no event: {error}"
        raise JournalDamaged(message, where=place, remedy=DAMAGE_REMEDY) from error


@cache
def get_tag(event_type: type[StoredEvent]) -> str:
    return str(event_type.__struct_config__.tag)


# Events per query.
_BATCH = 256

_QUERY = (
    "SELECT n, body, crc FROM mudroom.events WHERE session = $1 AND n > $2 ORDER BY n "
    f"LIMIT {_BATCH}"
)

_TYPED_QUERY = (
    "SELECT n, body, crc FROM mudroom.events WHERE session = $1 AND n > $2 "
    f"AND type = ANY(string_to_array($3, ',')) ORDER BY n LIMIT {_BATCH}"
)


async def read_events(
    database: Database,
    session: UUID,
    after: int = 0,
    types: Collection[type[StoredEvent]] = (),
) -> AsyncIterator[StoredEvent]:
    """Yield the events recorded so far, oldest first, in short queries: no transaction stays open.

    A read of all types detects missing records; a read of some types checks only those.
    """
    place = f"{database.place}, session {session}"
    tags = ",".join(get_tag(event_type) for event_type in types)
    while True:
        if tags:
            work = make_work(_TYPED_QUERY, session, after, tags)
        else:
            work = make_work(_QUERY, session, after)
        rows = await database.run(work)
        for row in rows:
            if not tags and row["n"] != after + 1:
                raise JournalDamaged(
                    f"record {after + 1} is missing", where=place, remedy=DAMAGE_REMEDY
                )
            after = row["n"]
            yield decode_row(row, place)
        if len(rows) < _BATCH:
            return


# Seconds that appends wait for an unreachable database.
PATIENCE = 60.0

# Time limit of one attempt, after which a hanging connection is given up.
_ATTEMPT_SECONDS = 15.0

# Seconds between two attempts.
_FIRST_DELAY = 0.05
_MAX_DELAY = 0.5

_STORED = "SELECT n, body, crc FROM mudroom.events WHERE session = $1 AND n = $2"

_SAVE = """
UPDATE mudroom.sessions
SET summary = $2, saved_n = $3, saved_size = saved_size + coalesce((
    SELECT sum(octet_length(body)) FROM mudroom.events e
    WHERE e.session = sessions.id AND e.n > sessions.saved_n AND e.n <= $3), 0)
WHERE id = $1 AND saved_n < $3
"""


class EventWriter:
    """Stores the events of a session whose lease is held, with one COPY for all waiting ones.

    Runs in the background loop. The primary key (session, n) keeps two writers apart: a second
    event with the same number is refused. After a lost connection, the same events are sent again;
    if they had been stored, the key refuses them, and comparing bytes shows that they are the same.

    Arguments:
        tell: shows a notice about a wait; called in the background loop.
    """

    def __init__(self, database: Database, lease: Lease, place: str, tell: Tell) -> None:
        self._database = database
        self._lease = lease
        self._place = place
        self._tell = tell
        self._cause = ""  # of the last failed attempt

    async def store(self, first: int, rows: Sequence[bytes]) -> None:
        """Store encoded rows, numbered from `first`. They are durable on return.

        Waits `PATIENCE` seconds for an unreachable database.

        Raises JournalBusy if another process writes the session, and JournalError.
        """
        self._cause = ""
        is_stored = False
        timer = self._database.loop.call_later(connections.NOTICE_SECONDS, self._tell_of_wait)
        try:
            await self._store(first, rows)
            is_stored = True
        finally:
            timer.cancel()
            self._database.wait_notice.end(self, self._tell, is_stored=is_stored)

    def _tell_of_wait(self) -> None:
        cause = self._cause or "no answer yet"
        self._database.wait_notice.start(self, cause, PATIENCE, self._tell)

    async def _store(self, first: int, rows: Sequence[bytes]) -> None:
        message = make_copy_message(rows)
        deadline = time.monotonic() + PATIENCE
        delay = _FIRST_DELAY
        while True:
            try:
                await self._lease.require()
                await self._database.work_once(
                    lambda connection: _copy(connection, message), seconds=_ATTEMPT_SECONDS
                )
                return
            except AppendCollision as error:
                await self._require_stored(first, rows, error)
                return
            except MudroomError:
                raise
            except Exception as error:  # asyncpg raises plain exceptions when a server dies
                if not is_temporary(error) or time.monotonic() + delay > deadline:
                    raise make_unrecorded_error(error, self._place, PATIENCE) from error
                self._cause = describe_cause(error)
            await asyncio.sleep(delay)
            delay = min(2 * delay, _MAX_DELAY)

    async def save_summary(self, summary: str, position: int) -> None:
        """Save the summary state after an event. Errors as for `work_once`."""
        work = make_work(_SAVE, self._lease.session, summary, position)
        await self._database.work_once(work, seconds=_ATTEMPT_SECONDS)

    async def _require_stored(
        self, first: int, rows: Sequence[bytes], error: AppendCollision
    ) -> None:
        """Raise JournalBusy unless these very rows are stored.

        They are if the connection was lost after they had become durable.
        """
        for n, row in enumerate(rows, first):
            stored = await self._database.run(make_work(_STORED, self._lease.session, n))
            if not stored or not is_stored_row(row, stored[0]):
                raise make_lost_session_error(self._place) from error


async def _copy(connection: Connection, message: bytearray) -> None:
    try:
        await connection.copy_to_table(
            "events", schema_name="mudroom", columns=COLUMNS, source=message, format="binary"
        )
    except Exception as error:  # only `driver` imports asyncpg, so its types are unknown here
        if get_state(error) == UNIQUE_VIOLATION:
            raise AppendCollision from error
        raise


log = logging.getLogger("mudroom")

# After a commit with at least this many appends, the next one waits for more to join.
_BUSY_APPENDS = 3

# Length of that wait.
_GATHER_SECONDS = 0.003

# Longest time an ended session takes to tell the database.
_RELEASE_SECONDS = 3.0

_MAX_WAKES = 32
"""Appends finished in one iteration of the event loop. Each wakes a run for 0.1 to 0.2 ms, so
thousands at once would hold up timers, input and cancels."""


class _Append(NamedTuple):
    first: int  # number of its first event
    rows: list[bytes]
    summary: str  # state to save after it, "" for none
    waiter: asyncio.Future[None]


class PostgresJournal:
    """The only writer of a session. The store creates it with a lease it has taken.

    It belongs to the event loop of its first append; `last` is the number of the last event.
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
        # A cancelled caller only stops waiting: the queue is still stored. After a failure, nothing
        # more can be appended, or the record would have a gap.
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
        """Wake the writer, unless it is already awake and about to look at the queue."""
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
        # The lease ends by itself if the database cannot be reached or is silent.
        with suppress(JournalError, TimeoutError):
            async with time_limit(_RELEASE_SECONDS):
                await self._save_summary(self._summary_saver.encode_unsaved(), self._last)
                await self._lease.release()

    async def _store_waiting(self) -> int:
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
        # Listing sessions reads the events after the last saved state, so an error only costs time.
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
        """Finish a commit's appends, a few per iteration of the session's event loop."""
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
