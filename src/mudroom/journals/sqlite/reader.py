"""Reader of a journal file, also beside its writer and on a read-only disk. All functions block."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

from ..._core.events import StoredEvent
from ...errors import JournalDamaged
from .. import version_1
from ..encoding import decode
from .errors import REPAIR_REMEDY, translate_errors
from .schema import JournalMeta, connect_briefly, connect_reader, read_meta


class SqliteReader:
    """Reader of one journal file. Create it with `open_reader`."""

    def __init__(self, path: Path, meta: JournalMeta) -> None:
        self.path = path
        self.meta = meta

    def read(self) -> Iterator[StoredEvent]:
        """Yield all recorded events, oldest first. Raises JournalDamaged at the first damaged or missing one."""
        done = 0
        with translate_errors(self.path), closing(connect_reader(self.path)) as connection:
            try:
                for seq, body, crc in connection.execute(
                    "SELECT seq, body, crc FROM events ORDER BY seq"
                ):
                    yield _decode_row(self.path, self.meta, done + 1, seq, body, crc)
                    done += 1
            except sqlite3.DatabaseError as error:
                raise self._damage(f"record {done + 1} cannot be read: {error}") from error

    def read_json(self, *, after: int = 0, tags: Sequence[str] = ()) -> Iterator[tuple[int, bytes]]:
        """Yield number and JSON of the events after number `after`, in the current version.

        Arguments:
            tags: tags of the wanted event types; () is all of them.

        Raises JournalDamaged at the first damaged or missing record.
        """
        tags = [*tags, *(old for old, new in version_1.EVENT_TAGS.items() if new in tags)]
        type_filter = f" AND type IN ({', '.join('?' * len(tags))})" if tags else ""
        query = f"SELECT seq, body, crc FROM events WHERE seq > ?{type_filter} ORDER BY seq"
        last = after
        with translate_errors(self.path), closing(connect_reader(self.path)) as connection:
            try:
                for seq, body, crc in connection.execute(query, (after, *tags)):
                    if not isinstance(body, bytes) or crc32(body) != crc:
                        raise self._damage(f"record {seq} is damaged")
                    if not tags and seq != last + 1:
                        raise self._damage(f"record {last + 1} is missing")
                    yield seq, version_1.upgrade(body) if seq <= self.meta.last_version_1 else body
                    last = seq
            except sqlite3.DatabaseError as error:
                raise self._damage(f"a record after {last} cannot be read: {error}") from error

    def _damage(self, message: str) -> JournalDamaged:
        return JournalDamaged(message, where=str(self.path), remedy=REPAIR_REMEDY)


def open_reader(path: str | Path) -> SqliteReader:
    """Open a journal file for reading. Raises JournalDamaged, JournalNewer or JournalError."""
    path = Path(path).absolute()
    with translate_errors(path), closing(connect_reader(path)) as connection:
        return SqliteReader(path, read_meta(connection, path))


def read_header(path: Path) -> tuple[JournalMeta, StoredEvent | None]:
    """Return the facts of a journal file and its first event, None if it has none. Raises as `open_reader` does."""
    with translate_errors(path), closing(connect_briefly(path)) as connection:
        meta = read_meta(connection, path)
        query = "SELECT seq, body, crc FROM events ORDER BY seq LIMIT 1"
        row = connection.execute(query).fetchone()
        return meta, _decode_row(path, meta, 1, *row) if row else None


def _decode_row(
    path: Path, meta: JournalMeta, expected: int, seq: int, body: Any, crc: int
) -> StoredEvent:
    where = str(path)
    if seq != expected:
        message = f"record {expected} is missing"
        raise JournalDamaged(message, where=where, remedy=REPAIR_REMEDY)
    if not isinstance(body, bytes) or crc32(body) != crc:
        raise JournalDamaged(f"record {seq} is damaged", where=where, remedy=REPAIR_REMEDY)
    try:
        return decode(version_1.upgrade(body) if seq <= meta.last_version_1 else body)
    except ValueError as error:
        message = f"record {seq} is no event: {error}"
        raise JournalDamaged(message, where=where, remedy=REPAIR_REMEDY) from error
