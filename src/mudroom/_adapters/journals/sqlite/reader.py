"""Reads a journal file, beside its writer or on a read-only disk, also in batches."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Generator
from contextlib import closing
from pathlib import Path
from zlib import crc32

from msgspec.structs import replace

from ...._core.events import StoredEvent, decode_event
from ...._projections.session_summary import decode_state
from ....errors import JournalDamaged, JournalError
from .schema import (
    REPAIR_REMEDY,
    JournalMeta,
    connect_briefly,
    connect_reader,
    read_last_number,
    read_meta,
    translate_errors,
)

_QUERY = "SELECT seq, type, body, crc FROM events WHERE seq > ? ORDER BY seq LIMIT ?"


class SqliteReader:
    """Reads a journal file. Create it with `open_reader`."""

    def __init__(self, path: Path, meta: JournalMeta) -> None:
        self.path = path
        self.meta = meta

    def read(
        self, after: int = 0, *, types: Collection[type[StoredEvent]] = ()
    ) -> Generator[StoredEvent]:
        """Yield the events recorded so far after a position, oldest first.

        Events of other types than `types` are only checked. Raises JournalDamaged at the first
        damaged or missing event of any type.
        """
        with translate_errors(self.path), closing(connect_reader(self.path)) as connection:
            yield from self.read_with(connection, after, types)

    def read_with(
        self,
        connection: sqlite3.Connection,
        after: int = 0,
        types: Collection[type[StoredEvent]] = (),
        limit: int = -1,
    ) -> Generator[StoredEvent]:
        """Yield events like `read`, over an open connection; check at most `limit` of them."""
        tags = {str(event_type.__struct_config__.tag) for event_type in types}
        last = after
        try:
            for seq, tag, body, crc in connection.execute(_QUERY, (after, limit)):
                if seq != last + 1:
                    raise self._make_damage_error(f"record {last + 1} is missing")
                if not isinstance(body, bytes) or crc32(body) != crc:
                    raise self._make_damage_error(f"record {seq} is damaged")
                last = seq
                if not tags or tag in tags:
                    yield self._decode(seq, body)
        except sqlite3.DatabaseError as error:
            raise self._make_damage_error(
                f"a record after {last} cannot be read: {error}"
            ) from error

    def _decode(self, seq: int, body: bytes) -> StoredEvent:
        try:
            return decode_event(body)
        except ValueError as error:
            raise self._make_damage_error(f"record {seq} is no event: {error}") from error

    def _make_damage_error(self, message: str) -> JournalDamaged:
        return JournalDamaged(message, where=str(self.path), remedy=REPAIR_REMEDY)


def open_reader(path: str | Path) -> SqliteReader:
    """Open a journal file for reading. Raises JournalDamaged, JournalNewer or JournalError."""
    path = Path(path).absolute()
    with translate_errors(path), closing(connect_reader(path)) as connection:
        return SqliteReader(path, read_meta(connection, path))


def read_header(path: Path) -> tuple[JournalMeta, StoredEvent | None]:
    """Read a journal file's facts and its first event, None if it has no event.

    Raises like `open_reader`.
    """
    with translate_errors(path), closing(connect_briefly(path)) as connection:
        meta = read_valid_meta(connection, path)
        return meta, next(SqliteReader(path, meta).read_with(connection, limit=1), None)


def read_valid_meta(connection: sqlite3.Connection, path: Path) -> JournalMeta:
    """Read a journal file's facts, without its summary if the end of the file is lost.

    Raises like `open_reader`.
    """
    meta = read_meta(connection, path)
    if meta.summary and not _has_summarized_events(connection, meta):
        return replace(meta, summary="")
    return meta


def _has_summarized_events(connection: sqlite3.Connection, meta: JournalMeta) -> bool:
    try:
        return decode_state(meta.summary).position <= read_last_number(connection)
    except sqlite3.DatabaseError:
        return False


# Events a thread reads at a time; the event loop runs in between.
_BATCH = 256


async def read_in_batches(
    start: Callable[[], Generator[StoredEvent]],
) -> AsyncIterator[StoredEvent]:
    """Yield the events of a blocking generator.

    It runs in threads, but only in one at a time, and is closed when no thread is running it.
    """
    import asyncio  # a list of sessions reads without an event loop, and starts sooner

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
