"""Lines between a client and a server, read and written in threads on any descriptor.

Pipes, sockets, terminals and files are served alike, and a slow client does not block the event
loop.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import select
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

MAX_LINE = 16 << 20  # bytes of the longest line; longer ones are skipped

_CHUNK = 1 << 16
_MAX_UNREAD = 1_000  # unread lines; the thread reads on when there are fewer

MAX_WAITING = 64 << 20  # bytes that may wait for a reader; beyond that, the output closes

_END_SECONDS = 1.0  # time for a reader to take the last lines after `hurry`


class LineInput:
    """The lines of a file descriptor, without their line feeds. The descriptor stays open."""

    def __init__(self, descriptor: int) -> None:
        self.skipped = 0  # lines longer than MAX_LINE
        self._descriptor = descriptor
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._slots = threading.Semaphore(_MAX_UNREAD)
        self._loop = asyncio.get_running_loop()

    async def read(self) -> AsyncIterator[bytes]:
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


class LineOutput:
    """Writes whole lines in order, without ever blocking the event loop.

    Arguments:
        descriptor: stays open.
        on_closed: called once in the event loop, when no more lines will be written, with the
            reason, "" if the reader has closed its end.
    """

    def __init__(
        self,
        descriptor: int,
        on_closed: Callable[[str], object],
        *,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._descriptor = descriptor
        self._on_closed = on_closed
        self._max_waiting = max_waiting
        self._loop = asyncio.get_running_loop()
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._waiting_bytes = 0
        self._waiting_lines = 0
        self._is_closed = False
        self.has_failed = False  # lines were lost
        self._drained = asyncio.Event()
        self._drained.set()
        self._hurried = asyncio.Event()
        threading.Thread(target=self._write_all, name="line output", daemon=True).start()

    def write(self, line: bytes) -> None:
        """Add a line; dropped if the output is closed."""
        if self._is_closed:
            return
        self._waiting_bytes += len(line)
        self._waiting_lines += 1
        self._drained.clear()
        if self._waiting_bytes > self._max_waiting:
            size = f"{self._max_waiting >> 20} MiB" if self._max_waiting >> 20 else "its limit"
            self._close(f"the program that started mudroom does not read: more than {size} waits")
            return
        self._lines.put(line)

    async def drain(self) -> None:
        await self._drained.wait()

    def hurry(self) -> None:
        self._hurried.set()

    async def close(self) -> None:
        """Wait until all lines are written, then end the thread."""
        drained = asyncio.create_task(self.drain())
        hurried = asyncio.create_task(self._hurried.wait())
        try:
            await asyncio.wait({drained, hurried}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({drained}, timeout=_END_SECONDS)
        finally:
            drained.cancel()
            hurried.cancel()
            await asyncio.gather(drained, hurried, return_exceptions=True)
            self.end()

    def end(self) -> None:
        """Take no more lines; the thread ends after those it has."""
        self._is_closed = True
        self._lines.put(None)

    def _write_all(self) -> None:
        while line := self._lines.get():
            reason = self._write(line)
            try:
                self._loop.call_soon_threadsafe(self._settle, len(line), reason)
            except RuntimeError:  # the loop is closed: the program ends
                return
            if reason is not None:
                return

    def _write(self, line: bytes) -> str | None:
        """Write a line; return why it cannot be written, None on success."""
        rest = memoryview(line)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # the other end has made the descriptor non-blocking
                select.select((), (self._descriptor,), ())
            except BrokenPipeError:
                return ""
            except OSError as error:
                return f"stdout takes no more data: {error.strerror}"
        return None

    def _settle(self, size: int, reason: str | None) -> None:
        self._waiting_bytes -= size
        self._waiting_lines -= 1
        if reason is not None:
            self._close(reason)
        elif not self._waiting_lines:
            self._drained.set()

    def _close(self, reason: str) -> None:
        if self.has_failed:
            return
        self._is_closed = True
        self.has_failed = True
        self._drained.set()
        self._on_closed(reason)


def encode_json_line(message: Mapping[str, Any]) -> bytes:
    """Encode a message as JSON with a line feed. Lone surrogates become question marks."""
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"
