"""Reads a command's output, passing it on as it arrives, without blocking."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

_CHUNK_BYTES = 1 << 16
_PIPE_BYTES = 1 << 20  # more than a pipe can hold


class OutputPipe:
    """The reading end of a command's stdout and stderr; `close` closes the descriptor.

    Arguments:
        finished: set when the sink raises. `sink_error` then holds the exception.
    """

    def __init__(
        self, descriptor: int, sink: Callable[[bytes], None], finished: asyncio.Event
    ) -> None:
        self.sink_error: Exception | None = None
        self._descriptor = descriptor
        self._sink = sink
        self._finished = finished
        self._loop = asyncio.get_running_loop()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)

    def drain(self) -> None:
        """Read the pipe until empty, but no more bytes than it can hold at once.

        A process may keep writing meanwhile.
        """
        remaining = _PIPE_BYTES
        while remaining > 0 and (count := self._read()):
            remaining -= count

    def close(self) -> None:
        try:
            self.drain()
        finally:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)

    def _read(self) -> int:
        try:
            chunk = os.read(self._descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return 0
        if chunk and not self.sink_error:
            self._pass_on(chunk)
        else:
            self._loop.remove_reader(self._descriptor)
        return len(chunk)

    def _pass_on(self, chunk: bytes) -> None:
        try:
            self._sink(chunk)
        except Exception as error:  # noqa: BLE001  `run` re-raises it for its caller
            self.sink_error = error
            self._finished.set()
