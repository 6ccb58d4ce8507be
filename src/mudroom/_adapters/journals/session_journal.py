"""The journal of an open session: holds back its opening, and shows events to an observer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import suppress
from types import CoroutineType
from typing import Any

from ..._core.events import SessionOpened, StoredEvent
from ..._core.ports import Journal
from ...errors import JournalError, SessionPaused


class SessionJournal:
    """A journal that stores the opening of a session together with the next events.

    That way the record of a new session begins with its opening and first prompt, or not at all.

    Attributes:
        observe: called with each event except the opening, before it is stored.
        is_sealed: true once the session is paused. Every append then raises SessionPaused, so a
            run can take no further step and never reaches its end: a later process finds the
            record as a crash would have left it.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._held: list[StoredEvent] = []
        self._flushing: asyncio.Task[None] | None = None
        self._appends = 0
        self.observe: Callable[[StoredEvent], None] | None = None
        self.is_sealed = False

    @property
    def is_used(self) -> bool:
        """True once there is an event after the opening."""
        return not self._held or type(self._held[-1]) is not SessionOpened

    def hold(self, opening: SessionOpened) -> None:
        """Store the opening with the next event."""
        self._held.append(opening)

    def append_soon(self, event: StoredEvent) -> None:
        """Store an event in the next step of the event loop, before all later events.

        If it cannot be stored, the next `append` stores it first or raises. It is dropped if later
        events have been stored in the meantime, since it would be read as the latest.
        """
        if self.is_sealed:
            raise _make_pause_error()
        if self.observe is not None:
            self.observe(event)
        self._held.append(event)
        self._flushing = asyncio.get_running_loop().create_task(self._flush())

    def append(self, *events: StoredEvent) -> CoroutineType[Any, Any, int]:
        """Append these events after those held back. Raises JournalError."""
        if self.is_sealed:
            raise _make_pause_error()
        if self.observe is not None:
            for event in events:
                self.observe(event)
        self._appends += 1
        if not self._held or not events:
            return self._journal.append(*events)
        return self._append_after_held(events)

    async def _flush(self) -> None:
        if self.is_used:  # a pause drops nothing that was accepted before it
            with suppress(JournalError):  # the events are held again
                await self._append_after_held(())

    async def _append_after_held(self, events: tuple[StoredEvent, ...]) -> int:
        held = self._held
        self._held = []
        appends = self._appends
        try:
            return await self._journal.append(*held, *events)
        except JournalError:
            if self._appends == appends:
                self._held = held + self._held
            raise

    def read(
        self, after: int = 0, *, types: Collection[type[StoredEvent]] = ()
    ) -> AsyncIterator[StoredEvent]:
        return self._journal.read(after, types=types)

    def follow(self, after: int = 0) -> AsyncIterator[StoredEvent]:
        return self._journal.follow(after)

    async def close(self) -> None:
        """Close the journal. An opening without further events is not stored."""
        await self._flush()
        await self._journal.close()


def _make_pause_error() -> SessionPaused:
    return SessionPaused(
        "the session is paused", remedy="Resume it: its runs continue where they stopped."
    )
