"""A command's output: read by the event loop as it comes, never waited for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

_CHUNK = 1 << 16
_PIPE = 1 << 20


class OutputPipe:
    """The reading end of a command's stdout and stderr.

    Arguments:
        descriptor: it is closed by `close`. sink: gets what comes. over: set when `sink` raises; `broken` then holds what it raised.
    """

    def __init__(
        self, descriptor: int, sink: Callable[[bytes], None], finished: asyncio.Event
    ) -> None:
        self.sink_error: Exception | None = None
        self._descriptor, self._sink, self._over = descriptor, sink, finished
        self._loop = asyncio.get_running_loop()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)

    def drain(self) -> None:
        """Take what is there now, no more than a pipe can hold: whoever holds the other end may go on writing."""
        left = _PIPE
        while left > 0 and (taken := self._read()):
            left -= taken

    def close(self) -> None:
        """Take the rest and let go."""
        try:
            self.drain()
        finally:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)

    def _read(self) -> int:
        try:
            chunk = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return 0
        if chunk and not self.sink_error:
            self._feed(chunk)
        else:
            self._loop.remove_reader(self._descriptor)
        return len(chunk)

    def _feed(self, chunk: bytes) -> None:
        try:
            self._sink(chunk)
        except Exception as error:  # noqa: BLE001  raised again by `run`, where the caller is
            self.sink_error = error
            self._over.set()
