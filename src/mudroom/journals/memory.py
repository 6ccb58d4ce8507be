"""Journal in memory: for tests, and for sessions that are not kept."""

from __future__ import annotations

from collections.abc import Iterator

from .._core.events import StoredEvent
from ..errors import JournalError
from .encoding import decode, encode


class MemoryJournal:
    """Journal that keeps events in memory, encoded as a file would hold them.

    Arguments:
        capacity: number of appends that succeed before the journal fails like a full disk; None is no limit.
    """

    def __init__(self, *, capacity: int | None = None) -> None:
        self._bodies: list[bytes] = []
        self._capacity = capacity
        self._is_open = True

    async def append(self, *events: StoredEvent) -> None:
        """Append events in order. Raises JournalError if closed or full; then none of them is kept."""
        if not self._is_open:
            raise JournalError("the journal is closed")
        bodies = [encode(event) for event in events]
        if self._capacity is not None:
            if self._capacity <= 0:
                raise JournalError("the journal is full", remedy="Nothing more can be recorded.")
            self._capacity -= 1
        self._bodies += bodies

    def read(self) -> Iterator[StoredEvent]:
        """Yield all events recorded before this call, oldest first."""
        return map(decode, tuple(self._bodies))

    async def close(self) -> None:
        """End appending. Recorded events can still be read."""
        self._is_open = False
