"""A session store whose journals show each event with its position as soon as it is durable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence

from ..._core.events import RunFinished, StoredEvent
from ..._core.ports import Journal, SessionStore
from ..._core.run_ids import is_child_id

Observe = Callable[[int, Sequence[StoredEvent]], None]
"""Function that takes the position of the first event and the events, in their order."""


class ObservedJournal:
    """The journal of a session that this process writes.

    Arguments:
        observe: called after each append. on_gap: called if events are durable that were not shown.

    Attributes:
        last_end: id of the last root run that has ended, and the position of its report.
    """

    def __init__(self, journal: Journal, observe: Observe, on_gap: Callable[[], None]) -> None:
        self._journal = journal
        self._observe = observe
        self._on_gap = on_gap
        self.last_end = ("", 0)

    async def append(self, *events: StoredEvent) -> int:
        """Append events and show them. Raises JournalError."""
        try:
            position = await self._journal.append(*events)
        except asyncio.CancelledError:
            self._on_gap()
            raise
        if events:
            first = position - len(events) + 1
            self._note_end(first, events)
            self._observe(first, events)
        return position

    def _note_end(self, first: int, events: Sequence[StoredEvent]) -> None:
        for position, event in enumerate(events, first):
            if isinstance(event, RunFinished) and not is_child_id(event.run):
                self.last_end = (event.run, position)

    def read(
        self, after: int = 0, *, types: Collection[type[StoredEvent]] = ()
    ) -> AsyncIterator[StoredEvent]:
        """Yield the events recorded so far."""
        return self._journal.read(after, types=types)

    def follow(self, after: int = 0) -> AsyncIterator[StoredEvent]:
        """Yield the events after a position, then each new one."""
        return self._journal.follow(after)

    async def close(self) -> None:
        """Close the journal."""
        await self._journal.close()


class ObservedStore:
    """A store that opens an observed journal for the one session that is written with it."""

    def __init__(self, store: SessionStore, observe: Observe, on_gap: Callable[[], None]) -> None:
        self._store = store
        self._observe = observe
        self._on_gap = on_gap
        self._written: ObservedJournal | None = None
        self.list = store.list
        self.read_info = store.read_info
        self.read_header = store.read_header
        self.find = store.find
        self.check_name = store.check_name
        self.rename = store.rename
        self.delete = store.delete
        self.find_writer = store.find_writer

    async def create(self, session: str) -> Journal:
        """Create the journal of a new session and open it for writing."""
        return self._watch(await self._store.create(session))

    async def open(self, session: str, *, read_only: bool = False) -> Journal:
        """Open the journal of a session."""
        journal = await self._store.open(session, read_only=read_only)
        return journal if read_only else self._watch(journal)

    def find_end(self, run: str) -> int:
        """Return the position of the report of the last root run that has ended, 0 for others."""
        last, position = self._written.last_end if self._written else ("", 0)
        return position if last == run else 0

    def _watch(self, journal: Journal) -> Journal:
        self._written = ObservedJournal(journal, self._observe, self._on_gap)
        return self._written
