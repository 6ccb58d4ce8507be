"""Journal that stores the opening of a session together with its next events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

from .._core.events import SessionOpened, StoredEvent
from .._core.ports import Journal
from ..errors import JournalError


class JournalWithOpening:
    """A journal that stores the opening of a session with the next events, in one durable step.

    So the record of a new session begins with its opening and its first prompt, or not at all.

    Attributes:
        opening: the event that is not stored yet, None if there is none.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.opening: SessionOpened | None = None

    async def append(self, *events: StoredEvent) -> int:
        """Append the opening, if there is one, and the events. Raises JournalError."""
        opening = self.opening
        if opening is None or not events:
            return await self._journal.append(*events)
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
