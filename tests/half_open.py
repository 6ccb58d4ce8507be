"""Clients that open connections and never send a whole request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from .waiting import SECONDS

HALF_HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "


class HalfOpen:
    """A connection with half a head. It never reads an answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def wait_until_cut(self, trickle: bytes = b"") -> None:
        """Wait until the server has closed the connection, sending bytes all the time."""
        async with asyncio.timeout(SECONDS):
            ending = asyncio.create_task(self._reader.read())
            while trickle and not ending.done():
                self._writer.write(trickle)
                await asyncio.sleep(0.02)
            with suppress(ConnectionError):
                await ending

    @property
    def is_cut(self) -> bool:
        """True if the server has closed the connection."""
        return self._reader.at_eof() or self._reader.exception() is not None

    def close(self) -> None:
        self._writer.close()


async def open_half(port: int, begin: bytes = HALF_HEAD, source: str = "127.0.0.1") -> HalfOpen:
    """Open a connection to a server on loopback, and send the begin of something."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    writer.write(begin)
    return HalfOpen(reader, writer)


@asynccontextmanager
async def hold_half_open(port: int, count: int) -> AsyncGenerator[list[HalfOpen]]:
    """Keep connections with half a head open in the block."""
    connections = [await open_half(port) for _ in range(count)]
    try:
        yield connections
    finally:
        for each in connections:
            each.close()


async def check_half_open(port: int, count: int, ask: Callable[[], Awaitable[object]]) -> None:
    """Check that a server cuts half-open connections, and answers another client meanwhile.

    Arguments:
        count: more connections than the server accepts at the same time.
        ask: sends a whole request and checks the answer.
    """
    async with hold_half_open(port, count) as connections:
        async with asyncio.timeout(SECONDS):
            await ask()
        for each in connections:
            await each.wait_until_cut()
