"""A proxy on loopback that cuts or holds the connections to a server."""

from __future__ import annotations

import asyncio
from contextlib import suppress

_CHUNK = 1 << 20


class CuttingProxy:
    """A proxy before a PostgreSQL server.

    Attributes:
        faults: what happens to the next messages with events: "before" drops one, "half" sends half
            of it, "after" sends it and drops the answer; then the connection is cut. "stall" holds
            it until the client gives up.
        text: what the messages contain that the faults happen to; b"" for all messages.
        cuts: number of faults so far.
    """

    def __init__(self, port: int) -> None:
        self.faults: list[str] = []
        self.text = b"COPY"
        self.cuts = 0
        self._target = port
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Start and return the port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut_all()
        await asyncio.gather(*self._links, return_exceptions=True)

    def cut_all(self) -> None:
        """Cut all connections."""
        for link in self._links:
            link.cancel()

    def take_fault(self, chunk: bytes) -> str:
        """Return what happens to a message, "" for nothing."""
        if self.text not in chunk or not self.faults:
            return ""
        self.cuts += 1
        return self.faults.pop(0)

    def _accept(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        link = asyncio.create_task(self._link(client, to_client))
        self._links.add(link)
        link.add_done_callback(self._links.discard)

    async def _link(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:  # the server has ended
            to_client.close()
            return
        link = _Link(self)
        tasks = [
            asyncio.create_task(link.send(client, to_server)),
            asyncio.create_task(link.answer(server, to_client)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            to_client.close()
            to_server.close()


class _Link:
    """Two directions of one connection."""

    def __init__(self, proxy: CuttingProxy) -> None:
        self._proxy = proxy
        self._fault = ""

    async def send(self, client: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await client.read(_CHUNK):
                self._fault = self._fault or self._proxy.take_fault(chunk)
                if self._fault == "before":
                    return
                if self._fault == "stall":
                    continue
                to_server.write(chunk[: len(chunk) // 2] if self._fault == "half" else chunk)
                await to_server.drain()
                if self._fault == "half":
                    return

    async def answer(self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await server.read(_CHUNK):
                if self._fault == "after" and b"COPY " in chunk:
                    return
                if self._fault != "after":
                    to_client.write(chunk)
                    await to_client.drain()
