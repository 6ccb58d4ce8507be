"""A journal in memory: the public fake, and the record of sessions that nobody wants to keep."""

from __future__ import annotations

from collections.abc import Iterator

from .._core.events import StoredEvent
from ..errors import JournalError
from .encoding import decode, encode


class MemoryJournal:
    """Keeps events as the bytes a file would hold, so that what is read is what any journal would give back.

    Arguments:
        room: appends that succeed before the journal fails as a full disk does; None is no end.
    """

    def __init__(self, *, capacity: int | None = None) -> None:
        self._bodies: list[bytes] = []
        self._room = capacity
        self._open = True

    async def append(self, *events: StoredEvent) -> None:
        """Record events, in order. Raises JournalError when closed or full, and then none of them is kept."""
        if not self._open:
            raise JournalError("the journal is closed")
        bodies = [encode(event) for event in events]
        if self._room is not None:
            if self._room <= 0:
                raise JournalError("the journal is full", remedy="Nothing more can be recorded.")
            self._room -= 1
        self._bodies += bodies

    def read(self) -> Iterator[StoredEvent]:
        """All events recorded before this call, oldest first."""
        return map(decode, tuple(self._bodies))

    async def close(self) -> None:
        """Append no more; what was recorded can still be read."""
        self._open = False
