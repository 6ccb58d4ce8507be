"""MCP servers over HTTP that answer without end, too slowly, or with the address of another."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import repeat
from pathlib import Path

import pytest

from mudroom import ServerSpec
from mudroom._adapters.integrations.mcp_servers.server_connection import Connection, ServerError

from ...waiting import SECONDS

KEY = "very-secret"
OK = b"HTTP/1.1 200 OK\r\n"
JSON = OK + b"Content-Type: application/json\r\n"
EVENTS = OK + b"Content-Type: text/event-stream\r\n\r\n"
BLOCK = b" " * 65_536


class RudeServer:
    """A server that sends bytes again and again.

    Arguments:
        begin: sent once. part: sent until the client ends the connection.
        pause: seconds between two parts.
    """

    def __init__(self, begin: bytes, part: bytes = b"", pause: float = 0.0) -> None:
        self.port = 0
        self.received = b""
        self.sent = 0
        self._begin = begin
        self._part = part
        self._pause = pause

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.received += await reader.read(65_536)
        try:
            writer.write(self._begin)
            for part in repeat(self._part):
                if not part:
                    break
                writer.write(part)
                self.sent += len(part)
                await writer.drain()
                await asyncio.sleep(self._pause)
        except ConnectionError:
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[str]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        try:
            self.port = server.sockets[0].getsockname()[1]
            yield f"http://127.0.0.1:{self.port}/mcp"
        finally:
            server.close()


async def connect(folder: Path, url: str, seconds: float) -> str:
    """Return why a server cannot be used."""
    spec = ServerSpec(
        name="web",
        origin="test",
        scope="option",
        transport="http",
        url=url,
        headers={"Authorization": f"Bearer {KEY}", "X-Team": KEY},
        start_timeout=seconds,
    )
    connection = Connection(spec, str(folder), {}, print)
    try:
        async with asyncio.timeout(SECONDS):
            with pytest.raises(ServerError) as caught:
                await connection.open()
    finally:
        await connection.close()
    return str(caught.value)


ENDLESS = {
    "a status line": (b"HTTP/1.1 200 " + BLOCK, BLOCK),
    "a header": (JSON + b"A: " + BLOCK, BLOCK),
    "headers": (JSON, b"A: b\r\n" * 1_000),
    "interim responses": (b"", b"HTTP/1.1 103 Hints\r\nA: b\r\n\r\n" * 1_000),
    "a JSON answer": (JSON + b"\r\n", BLOCK),
    "chunks of a JSON answer": (
        JSON + b"Transfer-Encoding: chunked\r\n\r\n",
        b"10000\r\n" + BLOCK + b"\r\n",
    ),
    "a refusal": (JSON.replace(b"200 OK", b"400 No") + b"\r\n", BLOCK),
    "a text": (OK + b"Content-Type: text/html\r\n\r\n", BLOCK),
    "an event": (EVENTS + b"data: ", BLOCK),
    "compressed zeros": (
        JSON + b"Content-Encoding: gzip\r\n\r\n",
        gzip.compress(bytes(10_000_000)),
    ),
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_an_answer_without_an_end_is_bounded(tmp_path: Path, name: str) -> None:
    server = RudeServer(*ENDLESS[name])
    async with server.open() as url:
        # The package skips interim responses without a count: only the time bounds them.
        text = await connect(tmp_path, url, seconds=1.0 if name == "interim responses" else 10.0)
    assert text.startswith("server web ")
    assert KEY not in text
    assert server.sent < 64 << 20


SLOW = {
    "a status line": (b"HTTP/1.1 200 ", b"x"),
    "headers": (JSON, b"A: b\r\n"),
    "a JSON answer": (JSON + b"\r\n", b" "),
    "events": (EVENTS, b": still here\n\n"),
}


@pytest.mark.parametrize("name", SLOW)
async def test_an_answer_that_trickles_has_a_time_limit(tmp_path: Path, name: str) -> None:
    async with RudeServer(*SLOW[name], pause=0.02).open() as url:
        text = await connect(tmp_path, url, seconds=0.5)
    assert "0.5 s" in text


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_takes_no_header_to_another_server(tmp_path: Path, status: int) -> None:
    other = RudeServer(b"")
    async with other.open() as url:
        location = url.replace("127.0.0.1", "localhost") if status == 303 else url
        answer = f"HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
        async with RudeServer(answer.encode()).open() as first:
            text = await connect(tmp_path, first, seconds=10.0)
    assert other.received == b""
    assert "Redirect to" in text and url.rpartition("/")[0].rpartition(":")[2] in text
    assert KEY not in text
