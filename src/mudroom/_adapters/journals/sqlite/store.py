"""Session store in a state folder: one SQLite file per session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from ...._core.events import StoredEvent
from ...._core.ports import SessionHeader, SessionInfo
from ...._core.ports.journal import check_session_name, make_missing_session_error, select_session
from ...._platform.time_limits import time_limit
from ...._projections.session_summary import (
    find_folder,
)
from ....errors import JournalError
from .folder import delete_session, find_writer_pid, get_session_path, list_sessions, read_info
from .journal import SqliteJournal
from .reader import SqliteReader, open_reader, read_header, read_in_batches
from .schema import (
    get_unpublished_path,
    translate_errors,
    write_name,
)

# Between polls for events appended by another process; SQLite has no notifications.
_POLL_SECONDS = 0.25


class SqliteStore:
    """A session store in a state folder, which may not exist yet."""

    def __init__(self, home: str | Path) -> None:
        self.home = Path(home).absolute()

    def get_path(self, session: str) -> Path:
        """Return the path of a session's file, which need not exist.

        Raises UnknownName if the id is not a valid file name.
        """
        if not session or "/" in session:
            raise make_missing_session_error(session)
        return get_session_path(self.home, session)

    async def create(self, session: str) -> SqliteJournal:
        return await _open_journal(self.get_path(session), session, create=True)

    async def open(
        self, session: str, *, read_only: bool = False
    ) -> SqliteJournal | ReadOnlyJournal:
        path = self._get_existing_path(session)
        if read_only:
            return ReadOnlyJournal(await asyncio.to_thread(open_reader, path))
        return await _open_journal(path, session, create=False)

    async def list(self) -> Sequence[SessionInfo]:
        return await asyncio.to_thread(self._list)

    async def read_info(self, session: str) -> SessionInfo:
        return await asyncio.to_thread(read_info, self._get_existing_path(session))

    async def read_header(self, session: str) -> SessionHeader:
        meta, first = await asyncio.to_thread(read_header, self._get_existing_path(session))
        return SessionHeader(
            id=session,
            name=meta.name,
            created=meta.created,
            program=meta.program,
            folder=find_folder(first, meta.summary),
            summary=meta.summary,
        )

    async def find(self, text: str) -> str:
        return await asyncio.to_thread(self._find, text)

    async def check_name(self, name: str, session: str = "") -> None:
        await asyncio.to_thread(check_session_name, name, self._list_names(), session)

    async def rename(self, session: str, name: str) -> None:
        path = self.get_path(session)
        if not get_unpublished_path(path).exists():
            self._get_existing_path(session)
        await self.check_name(name, session)
        await asyncio.to_thread(write_name, path, name)

    async def delete(self, session: str) -> None:
        await asyncio.to_thread(delete_session, self._get_existing_path(session))

    async def find_writer(self, session: str) -> str:
        """Return "process N" for the process writing a session, "" if there is none."""
        pid = await asyncio.to_thread(find_writer_pid, self.get_path(session))
        return f"process {pid}" if pid else ""

    def _find(self, text: str) -> str:
        if text and "/" not in text and self.get_path(text).exists():
            return text  # a full id, as servers use; listing all sessions would be slow
        return select_session(text, [info.id for info in self._list()], self._list_names())

    def _list_names(self) -> Iterator[tuple[str, str]]:
        for info in self._list():
            # A damaged file must not make the other sessions unreachable.
            with suppress(JournalError):
                if name := read_header(self.get_path(info.id))[0].name:
                    yield name, info.id

    def _list(self) -> Sequence[SessionInfo]:
        with translate_errors(self.home):
            return list_sessions(self.home)

    def _get_existing_path(self, session: str) -> Path:
        path = self.get_path(session)
        if not path.exists():
            raise make_missing_session_error(session)
        return path


async def _open_journal(path: Path, session: str, *, create: bool) -> SqliteJournal:
    """Open a journal in a thread. A cancel waits for the thread and closes what it opened."""
    open_now = partial(SqliteJournal.open, path, session=session, create=create)
    # Not a task: the end of the event loop cancels all tasks, even while their threads work.
    opening = asyncio.get_running_loop().run_in_executor(None, open_now)
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        while not opening.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([opening])
        if not opening.exception():
            await opening.result().close()
        raise


class ReadOnlyJournal:
    """A journal whose file another process may be writing."""

    def __init__(self, reader: SqliteReader) -> None:
        self.path: Path = reader.path
        self.meta = reader.meta
        self._reader = reader
        self._closed = asyncio.Event()

    async def append(self, *events: StoredEvent) -> int:
        raise JournalError(
            "the journal is open for reading only",
            where=str(self.path),
            remedy="Open it to write.",
        )

    def read(
        self, after: int = 0, *, types: Collection[type[StoredEvent]] = ()
    ) -> AsyncIterator[StoredEvent]:
        return read_in_batches(lambda: self._reader.read(after, types=types))

    async def follow(self, after: int = 0) -> AsyncIterator[StoredEvent]:
        while True:
            is_closed = self._closed.is_set()
            async for event in self.read(after):
                after += 1
                yield event
            if is_closed:
                return
            with suppress(TimeoutError):
                async with time_limit(_POLL_SECONDS):
                    await self._closed.wait()

    async def close(self) -> None:
        self._closed.set()
