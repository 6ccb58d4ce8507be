"""A session's journal in one SQLite file: `<home>/sessions/<session id>.db`, durable, one writer, any number of readers.

Every append is in the file and synced before it returns. Appends that come while a sync is under way share the next one
(group commit), so a hundred children that write at the same time pay for few syncs. The file's parts:

  meta(key, value)                      schema, session, created, program
  events(seq, run, type, body, crc)     seq counts from 1 without gaps; body is JSON; crc is crc32(body)

Beside it lie SQLite's own -wal and -shm, and `<file>.lock` with the writer's process id while there is one.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from functools import cache
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any
from zlib import crc32

from ..._core.events import StoredEvent
from ...errors import JournalDamaged, JournalError
from ..encoding import decode, encode, replace_surrogates
from .page_recovery import has_torn_tail
from .schema import (
    JournalMeta,
    connect_briefly,
    connect_reader,
    connect_writer,
    explain_write_failure,
    read_meta,
    translate_errors,
)
from .store import SessionInfo, find_by_id, list_sessions, lock, make_private_folder, unlock

__all__ = [
    "JournalMeta",
    "SessionInfo",
    "SqliteJournal",
    "SqliteReader",
    "find_by_id",
    "list_sessions",
    "open_reader",
    "read_header",
]

TORN_TAIL_NOTICE = "the last record was still being written when its process ended; it is left out, and nothing depended on it"
_TOGETHER = 32
"""Rows of one statement. Each number of rows is a statement of its own, compiled once and kept by the connection."""

_KEEP = "The file is left as it is; mudroom journal repair makes a new one of all that can be read."

_WOKEN = 64
"""Waiters woken in one turn of the event loop."""

_Row = tuple[int, str, str, bytes, int]
_Failure = tuple[str, str]
_Waiting = tuple[list[_Row], "asyncio.Future[None]"]


class SqliteJournal:
    """The one writer of a session's file. `open` makes one; it belongs to the event loop of its first append.

    `notices`: what the person should know of the file as it was found.
    """

    def __init__(
        self, path: Path, meta: JournalMeta, connection: sqlite3.Connection, held: int, last: int
    ) -> None:
        self.path, self.meta = path, meta
        self._connection, self._held, self._last = connection, held, last
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Future[None] | None = None
        self._failure: _Failure | None = None
        self._closed = False
        self.notices: tuple[str, ...] = ()

    @classmethod
    def open(cls, path: str | Path, *, session: str, create: bool) -> SqliteJournal:
        """Open a session's file for writing.

        Arguments:
            path: the file. session: the id it holds, or shall hold.
            create: make a new file, with its folder; otherwise there must be one.

        Raises JournalBusy when another writer has it, JournalDamaged, JournalNewer, or JournalError with the remedy.
        """
        path = Path(path).absolute()
        with translate_errors(path):
            if create:
                make_private_folder(path.parent)
            held = lock(path)
            try:
                cut_off = not create and has_torn_tail(path)
                connection, meta = connect_writer(path, session, create=create)
                last = connection.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0]
                journal = cls(path, meta, connection, held, last)
                journal.notices = (TORN_TAIL_NOTICE,) if cut_off else ()
                return journal
            except BaseException:
                unlock(path, held)
                raise

    async def append(self, *events: StoredEvent) -> None:
        """Record events, in order; they are synced to the disk when this returns.

        Raises JournalError when they could not be; then nothing more can be appended. They are recorded also
        when the caller is cancelled while it waits.
        """
        rows, seq = list[_Row](), self._last
        for event in events:
            body, seq = encode(event), seq + 1
            rows.append(
                (
                    seq,
                    event.run if event.run.isascii() else replace_surrogates(event.run),
                    _tag(type(event)),
                    body,
                    crc32(body),
                )
            )
        if self._closed or self._failure:
            raise self._refused(self._failure or ("the journal is closed", ""))
        if not rows:
            return
        self._last = seq
        waiter = (self._loop or self._begin()).create_future()
        self._queue.put((rows, waiter))
        await waiter

    def read(self) -> Iterator[StoredEvent]:
        """All events recorded so far, oldest first; blocks while it reads."""
        return open_reader(self.path).read()

    async def close(self) -> None:
        """Finish what is under way and let go of the file. May be called again."""
        first, self._closed = not self._closed, True
        if first and self._ended is None:
            self._let_go()
        elif first:
            self._queue.put(None)
        if self._ended is not None:
            await asyncio.shield(self._ended)

    def _begin(self) -> asyncio.AbstractEventLoop:
        self._loop = loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        Thread(
            target=self._write,
            args=(loop, self._ended),
            name=f"journal {self.meta.session}",
            daemon=True,
        ).start()
        return loop

    def _write(self, loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None]) -> None:
        """The writer thread: one transaction for all that waits, one wake-up of the loop for all waiters."""
        queue, item = self._queue, self._queue.get()
        with suppress(RuntimeError):  # the loop is closed: nobody waits for an answer any more
            while item is not None:
                batch = [item]
                while not queue.empty() and (item := queue.get()) is not None:
                    batch.append(item)
                failure = self._failure or self._commit([row for rows, _ in batch for row in rows])
                loop.call_soon_threadsafe(self._settle, [waiter for _, waiter in batch], failure)
                item = item and queue.get()
        self._let_go()
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, ended)

    def _commit(self, rows: list[_Row]) -> _Failure | None:
        try:
            if len(rows) <= _TOGETHER:
                self._insert(rows)
            else:
                self._connection.execute("BEGIN IMMEDIATE")
                for first in range(0, len(rows), _TOGETHER):
                    self._insert(rows[first : first + _TOGETHER])
                self._connection.execute("COMMIT")
        except (sqlite3.Error, MemoryError) as error:
            self._failure = explain_write_failure(error)
            with suppress(sqlite3.Error):
                self._connection.rollback()
        return self._failure

    def _insert(self, rows: list[_Row]) -> None:
        """All rows by one statement: every further one would have to wait for the interpreter's lock, which the event loop holds."""
        self._connection.execute(_insertion(len(rows)), tuple(chain.from_iterable(rows)))

    def _settle(self, waiters: list[asyncio.Future[None]], failure: _Failure | None) -> None:
        """Wake them up, some at a time: thousands that go on in one turn of the loop would hold up everybody else."""
        if len(waiters) > _WOKEN and self._loop:
            self._loop.call_soon(self._settle, waiters[_WOKEN:], failure)
        for waiter in waiters[:_WOKEN]:
            if not waiter.done():
                if failure:
                    waiter.set_exception(self._refused(failure))
                else:
                    waiter.set_result(None)

    def _refused(self, failure: _Failure) -> JournalError:
        message, remedy = failure
        return JournalError(message, where=str(self.path), remedy=remedy)

    def _let_go(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.close()
        unlock(self.path, self._held)


class SqliteReader:
    """A session's file, for reading only; a writer may be at work beside it. `read_only` makes one."""

    def __init__(self, path: Path, meta: JournalMeta) -> None:
        self.path, self.meta = path, meta

    def read(self) -> Iterator[StoredEvent]:
        """All events recorded so far, oldest first. Raises JournalDamaged at the first that is not as it was written."""
        done = 0
        with translate_errors(self.path), closing(connect_reader(self.path)) as connection:
            try:
                for seq, body, crc in connection.execute(
                    "SELECT seq, body, crc FROM events ORDER BY seq"
                ):
                    yield _checked(self.path, done + 1, seq, body, crc)
                    done += 1
            except sqlite3.DatabaseError as error:
                raise JournalDamaged(
                    f"record {done + 1} cannot be read: {error}", where=str(self.path), remedy=_KEEP
                ) from error

    def read_json(self, *, after: int = 0, tags: Sequence[str] = ()) -> Iterator[tuple[int, bytes]]:
        """Number and JSON of each event recorded after number `after`, as they were written; for screens that fold elsewhere.

        Arguments:
            kinds: tags of the only kinds wanted; () is all of them.

        Raises JournalDamaged at the first that is not as it was written.
        """
        chosen = f" AND type IN ({', '.join('?' * len(tags))})" if tags else ""
        query, last = f"SELECT seq, body, crc FROM events WHERE seq > ?{chosen} ORDER BY seq", after
        with translate_errors(self.path), closing(connect_reader(self.path)) as connection:
            try:
                for seq, body, crc in connection.execute(query, (after, *tags)):
                    if not isinstance(body, bytes) or crc32(body) != crc:
                        raise JournalDamaged(
                            f"record {seq} is damaged", where=str(self.path), remedy=_KEEP
                        )
                    if not tags and seq != last + 1:
                        raise JournalDamaged(
                            f"record {last + 1} is missing", where=str(self.path), remedy=_KEEP
                        )
                    yield seq, body
                    last = seq
            except sqlite3.DatabaseError as error:
                raise JournalDamaged(
                    f"a record after {last} cannot be read: {error}",
                    where=str(self.path),
                    remedy=_KEEP,
                ) from error


def open_reader(path: str | Path) -> SqliteReader:
    """Open a session's file for reading, also beside its writer and on a read-only disk.

    Raises JournalDamaged, JournalNewer, or JournalError when there is none or it cannot be read.
    """
    path = Path(path).absolute()
    with translate_errors(path), closing(connect_reader(path)) as connection:
        return SqliteReader(path, read_meta(connection, path))


def read_header(path: Path) -> tuple[JournalMeta, StoredEvent | None]:
    """What a journal says about itself, and its first event; for lists of many. Raises as `read_only` does."""
    with translate_errors(path), closing(connect_briefly(path)) as connection:
        meta = read_meta(connection, path)
        row = connection.execute(
            "SELECT seq, body, crc FROM events ORDER BY seq LIMIT 1"
        ).fetchone()
        return meta, _checked(path, 1, *row) if row else None


def _checked(path: Path, expected: int, seq: int, body: Any, crc: int) -> StoredEvent:
    where = str(path)
    if seq != expected:
        raise JournalDamaged(f"record {expected} is missing", where=where, remedy=_KEEP)
    if not isinstance(body, bytes) or crc32(body) != crc:
        raise JournalDamaged(f"record {seq} is damaged", where=where, remedy=_KEEP)
    try:
        return decode(body)
    except ValueError as error:
        raise JournalDamaged(
            f"record {seq} is no event: {error}", where=where, remedy=_KEEP
        ) from error


@cache
def _tag(kind: type[StoredEvent]) -> str:
    return str(kind.__struct_config__.tag)


@cache
def _insertion(rows: int) -> str:
    return "INSERT INTO events VALUES " + ", ".join(["(?, ?, ?, ?, ?)"] * rows)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
