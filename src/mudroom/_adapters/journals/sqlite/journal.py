"""Journal of one session in a SQLite file: durable, one writer, any number of readers.

An append returns once its events are in the file and synced. Appends that arrive during a sync
share the next one (group commit), so a hundred children writing at once need few syncs. After a
commit with three or more appends, the next commit waits 3 ms for more to join. `schema` describes
the tables.

Next to the file are SQLite's -wal and -shm files and, while the journal has a writer, `<file>.lock`
with its process id.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Collection, Generator
from contextlib import suppress
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from time import sleep
from zlib import crc32

from ...._core.events import StoredEvent, encode_event
from ...._core.json_values import clean_text
from ...._platform.private_files import make_private_folder
from ...._platform.wake_queue import WakeQueue
from ...._projections.session_summary import SummarySaver
from ....errors import JournalDamaged, JournalError
from .folder import lock, unlock
from .reader import SqliteReader, open_reader, read_in_batches
from .schema import (
    JournalMeta,
    connect_writer,
    create_file,
    explain_write_failure,
    get_unpublished_path,
    has_torn_tail,
    publish_file,
    read_last_number,
    translate_errors,
)

SAVE_STATEMENT = "INSERT OR REPLACE INTO meta VALUES ('summary', ?)"

TORN_TAIL_NOTICE = (
    "The last record was incomplete because its process was killed. "
    "It is left out; nothing depended on it."
)

# After a commit with at least this many appends, the next one waits for more to join.
_BUSY_APPENDS = 3

# Length of that wait. A commit takes about 0.2 ms of CPU time, most of it in the kernel.
_GATHER_SECONDS = 0.003

_COLUMNS = 5
# The connection caches one compiled INSERT per number of rows, so there are at most 32.
_VALUES_PER_STATEMENT = 32 * _COLUMNS

_Value = int | str | bytes
_Failure = tuple[str, str]
_Waiting = tuple[list[_Value], str, "asyncio.Future[None]"]
"""An append: its row values, the summary to save after them ("" for none), and its future."""


class SqliteJournal:
    """The only writer of a journal file. Create it with `open`.

    It belongs to the event loop of its first append. Its notices are for the user.
    """

    def __init__(
        self,
        path: Path,
        meta: JournalMeta,
        connection: sqlite3.Connection,
        lock_descriptor: int,
        last: int,
        summary_saver: SummarySaver | None,
    ) -> None:
        self.path = path
        self.meta = meta
        self.notices: tuple[str, ...] = ()
        self._connection = connection
        self._lock_descriptor = lock_descriptor
        self._last = last
        self._summary_saver = summary_saver
        self._is_published = path.exists()
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Future[None] | None = None
        self._failure: _Failure | None = None
        self._is_closed = False
        self._appended = asyncio.Event()
        self._wakes = WakeQueue()

    @classmethod
    def open(cls, path: str | Path, *, session: str, create: bool) -> SqliteJournal:
        """Open a journal file for writing.

        With `create`, the file must not exist; it appears with its first events, in one step.

        Raises JournalBusy if another writer has it, JournalDamaged, JournalNewer, or JournalError.
        """
        path = Path(path).absolute()
        with translate_errors(path):
            if create:
                make_private_folder(path.parent)
            descriptor = lock(path)
            try:
                is_torn = not create and has_torn_tail(path)
                open_file = create_file if create else connect_writer
                connection, meta = open_file(path, session)
                last = read_last_number(connection)
                saver = load_saver(connection, SqliteReader(path, meta))
                journal = cls(path, meta, connection, descriptor, last, saver)
                if is_torn:
                    journal.notices = (TORN_TAIL_NOTICE,)
                return journal
            except BaseException:
                unlock(path, descriptor)
                raise

    async def append(self, *events: StoredEvent) -> int:
        # A cancelled caller only stops waiting: the queue is still stored. After a failure, nothing
        # more can be appended, or the record would have a gap.
        values: list[_Value] = []
        seq = self._last
        for event in events:
            seq += 1
            body = encode_event(event)
            values += (seq, clean_text(event.run), _tag(type(event)), body, crc32(body))
        if self._is_closed or self._failure:
            raise self._make_error(self._failure or ("the journal is closed", ""))
        if not values:
            return seq
        self._last = seq
        waiter = (self._loop or self._start_writer()).create_future()
        summary = self._summary_saver.apply(events, seq) if self._summary_saver else ""
        self._queue.put((values, summary, waiter))
        await waiter
        return seq

    def read(
        self, after: int = 0, *, types: Collection[type[StoredEvent]] = ()
    ) -> AsyncIterator[StoredEvent]:
        return read_in_batches(lambda: self._read(after, types))

    def _read(self, after: int, types: Collection[type[StoredEvent]]) -> Generator[StoredEvent]:
        if self._is_published:
            yield from open_reader(self.path).read(after, types=types)

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
        """Finish pending appends and release the file. Safe to call again."""
        is_first = not self._is_closed
        self._is_closed = True
        if is_first and self._ended is None:
            self._release()
        elif is_first:
            self._queue.put(None)
        if self._ended is not None:
            await asyncio.shield(self._ended)
        self._wake_followers()

    def _start_writer(self) -> asyncio.AbstractEventLoop:
        self._loop = loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        Thread(
            target=self._write_until_closed,
            args=(loop, self._ended),
            name=f"journal {self.meta.session}",
            daemon=True,
        ).start()
        return loop

    def _write_until_closed(
        self, loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None]
    ) -> None:
        """Commit all waiting appends together, repeatedly. Runs in the writer thread."""
        queue = self._queue
        item = queue.get()
        is_busy = False
        # RuntimeError: the loop is closed, so no waiter is left.
        with suppress(RuntimeError):
            while item is not None:
                if is_busy:
                    sleep(_GATHER_SECONDS)
                batch = [item]
                while not queue.empty() and (item := queue.get()) is not None:
                    batch.append(item)
                is_busy = len(batch) >= _BUSY_APPENDS
                values = [value for values, _, _ in batch for value in values]
                summary = next((summary for _, summary, _ in reversed(batch) if summary), "")
                failure = self._failure or self._commit(values, summary)
                waiters = [waiter for _, _, waiter in batch]
                loop.call_soon_threadsafe(self._wake, waiters, failure)
                is_closed = item is None
                del item, batch, values, waiters  # may be large, and the next ones may come late
                item = None if is_closed else queue.get()
        self._release()
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, ended)

    def _commit(self, values: list[_Value], summary: str) -> _Failure | None:
        try:
            if self._is_published and len(values) <= _VALUES_PER_STATEMENT and not summary:
                self._insert(values)
            else:
                self._connection.execute("BEGIN IMMEDIATE")
                for first in range(0, len(values), _VALUES_PER_STATEMENT):
                    self._insert(values[first : first + _VALUES_PER_STATEMENT])
                if summary:
                    self._connection.execute(SAVE_STATEMENT, (summary,))
                self._connection.execute("COMMIT")
            if not self._is_published:
                self._connection = publish_file(self._connection, self.path, self.meta.session)
                self._is_published = True
        except (sqlite3.Error, OSError, JournalError, MemoryError) as error:
            self._failure = explain_write_failure(error)
            with suppress(sqlite3.Error):
                self._connection.rollback()
        return self._failure

    def _insert(self, values: list[_Value]) -> None:
        # One statement for all rows: after each statement this thread waits for the GIL, which the
        # event loop is holding.
        self._connection.execute(_insert_statement(len(values) // _COLUMNS), values)

    def _wake(self, waiters: list[asyncio.Future[None]], failure: _Failure | None) -> None:
        self._wake_followers()
        for waiter in waiters:
            self._wakes.wake(waiter, self._make_error(failure) if failure else None)

    def _wake_followers(self) -> None:
        self._appended.set()
        self._appended = asyncio.Event()

    def _make_error(self, failure: _Failure) -> JournalError:
        message, remedy = failure
        return JournalError(message, where=str(self.path), remedy=remedy)

    def _release(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.close()
        if not self._is_published:
            get_unpublished_path(self.path).unlink(missing_ok=True)
        unlock(self.path, self._lock_descriptor)


@cache
def _tag(event_type: type[StoredEvent]) -> str:
    return str(event_type.__struct_config__.tag)


@cache
def _insert_statement(rows: int) -> str:
    return "INSERT INTO events VALUES " + ", ".join(["(?, ?, ?, ?, ?)"] * rows)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def load_saver(connection: sqlite3.Connection, reader: SqliteReader) -> SummarySaver | None:
    """Load the summary saver of a file, applying the events after its saved state.

    None for a damaged file, so that lists read all its events and find the damage.
    """
    saver = SummarySaver(reader.meta.summary)
    if saver.position > read_last_number(connection):
        return None
    try:
        for event in reader.read_with(connection, saver.position, SummarySaver.TYPES):
            saver.catch_up(event)
    except JournalDamaged:
        return None
    return saver
