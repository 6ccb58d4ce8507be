"""Lines of a file descriptor, read in a thread: pipes, sockets, terminals and files alike."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator

MAX_LINE = 16 << 20
"""Bytes of the longest line; longer ones are skipped."""

_CHUNK = 1 << 16
_MAX_WAITING = 1_000
"""Lines that wait for the reader; the thread reads on when there are fewer."""


class LineInput:
    """The lines of a file descriptor, without their line feeds.

    Arguments:
        descriptor: stays open.

    Attributes:
        skipped: number of lines that were longer than MAX_LINE.
    """

    def __init__(self, descriptor: int) -> None:
        self.skipped = 0
        self._descriptor = descriptor
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._slots = threading.Semaphore(_MAX_WAITING)
        self._loop = asyncio.get_running_loop()

    async def read(self) -> AsyncIterator[bytes]:
        """Yield the lines until the end of the input."""
        threading.Thread(target=self._read_all, name="line input", daemon=True).start()
        while (line := await self._queue.get()) is not None:
            self._slots.release()
            yield line

    def _read_all(self) -> None:
        rest = bytearray()
        is_skipping = False
        while chunk := self._read_chunk():
            *lines, tail = chunk.split(b"\n")
            for line in lines:
                if not is_skipping:
                    self._put(bytes(rest) + line)
                is_skipping = False
                rest.clear()
            rest += tail
            if len(rest) > MAX_LINE:
                self.skipped += not is_skipping
                is_skipping = True
                rest.clear()
        if rest and not is_skipping:
            self._put(bytes(rest))
        self._call(None)

    def _read_chunk(self) -> bytes:
        try:
            return os.read(self._descriptor, _CHUNK)
        except OSError:
            return b""

    def _put(self, line: bytes) -> None:
        self._slots.acquire()
        self._call(line)

    def _call(self, line: bytes | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, line)
        except RuntimeError:  # the loop is closed: the program ends
            return
