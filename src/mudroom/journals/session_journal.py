"""Journal of an open session: delays its opening event, and passes each event to an observer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from types import CoroutineType
from typing import Any

from .._core.events import SessionOpened, StoredEvent
from .._core.ports import Journal
from ..errors import JournalError


class SessionJournal:
    """A journal that stores the opening of a session with the next events, in one durable step.

    So the record of a new session begins with its opening and its first prompt, or not at all.

    Attributes:
        opening: the event that is not stored yet, None if there is none.
        observe: called with each other event, before it is stored.
        is_sealed: true if later events are dropped. The open runs then continue in a later
            process, as after a crash.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.opening: SessionOpened | None = None
        self.observe: Callable[[StoredEvent], None] | None = None
        self.is_sealed = False

    def append(self, *events: StoredEvent) -> CoroutineType[Any, Any, int]:
        """Append the opening, if there is one, and the events. Raises JournalError."""
        if self.is_sealed:
            return self._journal.append()
        if self.observe is not None:
            for event in events:
                self.observe(event)
        if self.opening is None or not events:
            return self._journal.append(*events)
        return self._append_with_opening(self.opening, events)

    async def _append_with_opening(
        self, opening: SessionOpened, events: tuple[StoredEvent, ...]
    ) -> int:
        self.opening = None
        try:
            return await self._journal.append(opening, *events)
        except JournalError:
            self.opening = opening
            raise

    def read(
        self, after: int = 0, *, types: Collection[type[StoredEvent]] = ()
    ) -> AsyncIterator[StoredEvent]:
        """Yield the events recorded so far."""
        return self._journal.read(after, types=types)

    def follow(self, after: int = 0) -> AsyncIterator[StoredEvent]:
        """Yield the events after a position, then each new one."""
        return self._journal.follow(after)

    async def close(self) -> None:
        """Close the journal. An opening without events after it is not stored."""
        await self._journal.close()
