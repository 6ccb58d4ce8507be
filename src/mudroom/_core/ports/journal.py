"""Journal port: the append-only record of one session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from ..events import StoredEvent


class Journal(Protocol):
    """The append-only record of one session.

    Example:
        class ListJournal:
            def __init__(self):
                self.events = []

            async def append(self, *events):
                self.events += events

            def read(self):
                return iter(self.events)

            async def close(self): ...

        journal: Journal = ListJournal()
        Session(journal=journal)
    """

    async def append(self, *events: StoredEvent) -> None:
        """Append events in order; they are durable when this returns.

        If the caller is cancelled while it waits, the events are recorded nevertheless, before
        later ones.

        Raises JournalError; then none of the events is stored.
        """
        ...

    def read(self) -> Iterator[StoredEvent]:
        """Yield all recorded events, oldest first."""
        ...

    async def close(self) -> None:
        """Finish writing and release the session."""
        ...
