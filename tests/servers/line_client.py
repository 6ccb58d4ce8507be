"""The client's end of a protocol of lines of JSON, played by a test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from tests.waiting import SECONDS

Line = dict[str, Any]


class LineClient:
    """Writes lines to a server that runs in this process, and keeps those that it sends.

    Attributes:
        lines: of the server so far.
        notices: of the server to the terminal.
    """

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.notices: list[str] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self._input: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._written = asyncio.Condition()

    @asynccontextmanager
    async def run_server(self, server: Any) -> AsyncGenerator[None]:
        """Run a server until the end of the block, and close its input."""
        running = asyncio.create_task(server.serve(self._read()))
        try:
            yield
            self.close()
            async with asyncio.timeout(SECONDS):
                await running
        finally:
            for task in (running, *self.tasks):
                task.cancel()
            await asyncio.gather(running, *self.tasks, return_exceptions=True)

    @asynccontextmanager
    async def use_pipes(
        self, output: asyncio.StreamReader, input: asyncio.StreamWriter
    ) -> AsyncGenerator[None]:
        async def receive_all() -> None:
            async for line in output:
                self.receive(line)

        async def send_all() -> None:
            async for data in self._read():
                input.write(data + b"\n")
            input.close()

        working = [asyncio.create_task(receive_all()), asyncio.create_task(send_all())]
        try:
            yield
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, *self.tasks, return_exceptions=True)

    async def _read(self) -> AsyncIterator[bytes]:
        while (data := await self._input.get()) is not None:
            yield data

    def send_bytes(self, data: bytes) -> None:
        """Send a line that may be no JSON."""
        self._input.put_nowait(data)

    def close(self) -> None:
        self._input.put_nowait(None)

    def receive(self, data: bytes) -> None:
        assert data.endswith(b"\n")
        assert b"\n" not in data[:-1]
        line: Line = json.loads(data)
        self.handle(line)
        self.lines.append(line)
        self.start_task(self._notify())

    def handle(self, line: Line) -> None:
        """Check a line of the server, and answer it if it is a request."""

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _notify(self) -> None:
        async with self._written:
            self._written.notify_all()

    async def wait_for(self, matches: Callable[[Line], bool]) -> Line:
        await self.wait_until(lambda: any(map(matches, self.lines)))
        return next(filter(matches, self.lines))

    async def wait_until(self, is_true: Callable[[], object]) -> None:
        async with asyncio.timeout(SECONDS), self._written:
            await self._written.wait_for(is_true)
