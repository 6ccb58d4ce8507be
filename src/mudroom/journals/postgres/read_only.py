"""Read-only journal of a session in a database, beside its writer or without one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from uuid import UUID

from ..._core.events import StoredEvent
from ...errors import JournalError
from .connections import Database
from .reader import read_events

_POLL_SECONDS = 0.2
"""Seconds between two polls for events that another process has appended."""


class PostgresReader:
    """Journal of a session that another process may write."""

    def __init__(self, database: Database, session: UUID) -> None:
        self.place = f"{database.place}, session {session}"
        self._database = database
        self._session = session
        self._closed = asyncio.Event()

    async def append(self, *events: StoredEvent) -> int:
        """Raise JournalError."""
        raise JournalError(
            "the journal is open for reading only", where=self.place, remedy="Open it to write."
        )

    def read(
        self, after: int = 0, *, types: Collection[type[StoredEvent]] = ()
    ) -> AsyncIterator[StoredEvent]:
        """Yield the events recorded so far, oldest first."""
        return read_events(self._database, self._session, after, types)

    async def follow(self, after: int = 0) -> AsyncIterator[StoredEvent]:
        """Yield the events after a position, then each new one, until this journal is closed."""
        while True:
            is_closed = self._closed.is_set()
            async for event in self.read(after):
                after += 1
                yield event
            if is_closed:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await self._closed.wait()

    async def close(self) -> None:
        """End `follow`. Recorded events can still be read."""
        self._closed.set()
