"""A journal and session store in memory, for tests and sessions that are not kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Sequence

from ..._core.events import SessionOpened, StoredEvent, decode_event, encode_event
from ..._core.ports import SessionHeader, SessionInfo
from ..._core.ports.journal import (
    check_session_name,
    make_busy_error,
    make_missing_session_error,
    select_session,
)
from ..._version import __version__
from ...errors import JournalError

# Bytes found in the body of every opening: a quick test before decoding.
_OPENING = str(SessionOpened.__struct_config__.tag).encode()


class _Record:
    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.name = ""
        self.created = time.time()
        self.modified = self.created
        self.has_writer = False
        self.appended = asyncio.Event()

    def notify(self) -> None:
        self.appended.set()
        self.appended = asyncio.Event()


class MemoryJournal:
    """A journal in memory.

    Arguments:
        capacity: number of appends before the journal fails like a full disk; None
            for no limit.
    """

    def __init__(self, *, capacity: int | None = None) -> None:
        self._record = _Record()
        self._capacity = capacity
        self._is_read_only = False
        self._is_open = True

    @classmethod
    def of_record(cls, record: _Record, *, read_only: bool) -> MemoryJournal:
        journal = cls()
        journal._record = record
        journal._is_read_only = read_only
        record.has_writer = record.has_writer or not read_only
        return journal

    async def append(self, *events: StoredEvent) -> int:
        """Append events in order.

        Raises JournalError, keeping none of them, if closed, read-only or full.
        """
        if not self._is_open:
            raise JournalError("the journal is closed")
        if self._is_read_only:
            raise JournalError("the journal is open for reading only", remedy="Open it to write.")
        bodies = [encode_event(event) for event in events]
        if self._capacity is not None:
            if self._capacity <= 0:
                raise JournalError("the journal is full", remedy="Nothing more can be recorded.")
            self._capacity -= 1
        record = self._record
        record.bodies += bodies
        record.modified = time.time()
        record.notify()
        position = len(record.bodies)
        # There is nothing to wait for, but other tasks, such as a cancel or a time limit, must get
        # a turn, as with a real journal.
        await asyncio.sleep(0)
        return position

    @property
    def events(self) -> list[StoredEvent]:
        """All recorded events, oldest first."""
        return [decode_event(body) for body in self._record.bodies]

    async def read(
        self, after: int = 0, *, types: Collection[type[StoredEvent]] = ()
    ) -> AsyncIterator[StoredEvent]:
        """Yield the events recorded before this call, oldest first."""
        for body in self._record.bodies[after:]:
            event = decode_event(body)
            if not types or type(event) in types:
                yield event

    async def follow(self, after: int = 0) -> AsyncIterator[StoredEvent]:
        """Yield the events after a position, then each new one, until this journal is closed."""
        record = self._record
        while True:
            appended = record.appended
            while after < len(record.bodies):
                after += 1
                yield decode_event(record.bodies[after - 1])
            if not self._is_open:
                return
            await appended.wait()

    async def close(self) -> None:
        """Refuse further appends. Recorded events can still be read."""
        if self._is_open and not self._is_read_only:
            self._record.has_writer = False
        self._is_open = False
        self._record.notify()


class MemoryStore:
    """A session store in memory. Its sessions live as long as the object."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}

    async def create(self, session: str) -> MemoryJournal:
        """Create a session and open its journal. Raises JournalError if it exists."""
        if session in self._records:
            message = "this session exists already"
            raise JournalError(message, where=session, remedy="Resume it, or use another id.")
        record = self._records[session] = _Record()
        return MemoryJournal.of_record(record, read_only=False)

    async def open(self, session: str, *, read_only: bool = False) -> MemoryJournal:
        """Open a session's journal. Raises UnknownName, JournalBusy."""
        record = self._get(session)
        if not read_only:
            self._require_no_writer(session, record)
        return MemoryJournal.of_record(record, read_only=read_only)

    async def list(self) -> Sequence[SessionInfo]:
        """List all sessions, last written first."""
        infos = [
            await self.read_info(session)
            for session, record in self._records.items()
            if record.bodies
        ]
        return sorted(infos, key=lambda info: info.modified, reverse=True)

    async def read_info(self, session: str) -> SessionInfo:
        """Read a session's list entry. Raises UnknownName."""
        record = self._get(session)
        size = sum(len(body) for body in record.bodies)
        return SessionInfo(id=session, modified=record.modified, size=size)

    async def read_header(self, session: str) -> SessionHeader:
        """Read a session's facts. Raises UnknownName."""
        record = self._get(session)
        events = (decode_event(body) for body in reversed(record.bodies) if _OPENING in body)
        folders = (event.cwd for event in events if isinstance(event, SessionOpened))
        return SessionHeader(
            id=session,
            name=record.name,
            created=record.created,
            program=__version__,
            folder=next(folders, ""),
        )

    async def find(self, text: str) -> str:
        """Find the id of the session with this id, unique beginning of an id, or name."""
        ids = [info.id for info in await self.list()]
        return select_session(text, ids, self._list_names())

    async def check_name(self, name: str, session: str = "") -> None:
        """Check that a session can have this name. Raises UsageError."""
        check_session_name(name, self._list_names(), session)

    async def rename(self, session: str, name: str) -> None:
        """Name a session, "" for none. Raises UnknownName, UsageError."""
        record = self._records.get(session) or self._get(session)
        check_session_name(name, self._list_names(), session)
        record.name = name

    async def delete(self, session: str) -> None:
        """Delete a session. Raises UnknownName, JournalBusy."""
        self._require_no_writer(session, self._get(session))
        del self._records[session]

    async def find_writer(self, session: str) -> str:
        """Return "this process" while a journal of the session is open for writing."""
        record = self._records.get(session)
        return "this process" if record and record.has_writer else ""

    def _list_names(self) -> list[tuple[str, str]]:
        return [(record.name, session) for session, record in self._records.items() if record.name]

    def _get(self, session: str) -> _Record:
        record = self._records.get(session)
        if record is None or not record.bodies:
            raise make_missing_session_error(session)
        return record

    def _require_no_writer(self, session: str, record: _Record) -> None:
        if record.has_writer:
            raise make_busy_error("this process", session)
