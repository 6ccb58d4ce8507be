"""Pacer: reads long streams at intervals, since a read costs more than the bytes that it brings."""

from __future__ import annotations

import asyncio
from typing import Protocol

_READS_PER_SECOND = 2_000
"""Reads of all streams together; they take about a tenth of a core."""
_MIN_INTERVAL = 0.02
"""Seconds between two reads of a stream, so that text on a screen moves smoothly."""
_MAX_INTERVAL = 0.2
_MAX_DELAY_SHARE = 0.05
"""Maximum delay of a read, as a share of the age of its stream: short answers end in time."""


class PacedStream(Protocol):
    """A stream that the pacer reads at intervals."""

    def end_wait(self) -> None:
        """Read the stream again."""
        ...


class Pacer:
    """Streams that wait for their next read. One timer serves all of them.

    Attributes:
        open_streams: streams whose head has arrived and that have not ended.
    """

    def __init__(self) -> None:
        self.open_streams = 0
        self._loop = asyncio.get_running_loop()
        self._waiting: list[PacedStream] = []
        self._next_read = 0.0

    def start_wait(self, stream: PacedStream, now: float, age: float, gap: float) -> bool:
        """Return whether a stream waits for the next common read.

        Young streams do not wait, nor those with at most two reads in an interval.

        Arguments:
            now: time of the event loop.
            age: seconds since the stream began.
            gap: seconds since its last read, or since its last wait.
        """
        interval = max(_MIN_INTERVAL, min(_MAX_INTERVAL, self.open_streams / _READS_PER_SECOND))
        next_read = self._next_read if self._waiting else now + interval
        if next_read - now > age * _MAX_DELAY_SHARE or gap > interval / 2:
            return False
        if not self._waiting:
            self._next_read = next_read
            self._loop.call_at(next_read, self._read_all)
        self._waiting.append(stream)
        return True

    def _read_all(self) -> None:
        streams = self._waiting
        self._waiting = []
        for stream in streams:
            stream.end_wait()
