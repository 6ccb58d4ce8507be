"""Tests that a redirect never takes a key, a prompt or a cookie to another server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from mudroom._adapters.models._errors import ProviderHints
from mudroom._adapters.models._http import HttpClient
from mudroom.errors import ModelRefused
from mudroom.testing.clock import FakeClock

from .wires import WIRES, Wire, ask

KEY = "sk-very-secret"
OWN_HEADERS = {"api-key": KEY, "Cookie": f"session={KEY}", "X-Team": KEY}
TARGETS = [
    "http://127.0.0.1:{port}/v1/messages",
    "https://127.0.0.1:{port}/v1/messages",
    "http://localhost:{port}/?key={key}",
    "//127.0.0.1:{port}/",
    "http://{key}@127.0.0.1:{port}/",
]


@asynccontextmanager
async def listen(answer: bytes) -> AsyncGenerator[tuple[int, list[bytes]]]:
    """Run a server; yield its port and what its clients send."""
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read(65_536))
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], received
    finally:
        server.close()


async def ask_redirected(wire: Wire, url: str) -> ModelRefused:
    """Return the error of a request whose answer is a redirect."""
    hints = ProviderHints("example", "EXAMPLE_API_KEY", "EXAMPLE_BASE_URL")
    http = HttpClient(clock=FakeClock(), hints=hints)
    model = wire.kind("some-model", http=http, key=KEY, base_url=url, headers=OWN_HEADERS)
    with pytest.raises(ModelRefused) as caught:
        await ask(model)
    await http.close()
    return caught.value


@pytest.mark.parametrize(("wire", "status"), [*zip(WIRES, [301, 302, 303, 307, 308], strict=True)])
async def test_a_redirected_request_ends_with_an_error(wire: Wire, status: int) -> None:
    async with listen(b"") as (port, received):
        for target in TARGETS:
            location = target.format(port=port, key=KEY)
            answer = f"HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
            async with listen(answer.encode()) as (first, asked):
                error = await ask_redirected(wire, f"http://127.0.0.1:{first}")
            text = str(error)
            assert "example redirects to another address" in text
            assert f"127.0.0.1:{first}" in text
            assert "EXAMPLE_BASE_URL" in text
            assert KEY not in text
            assert len(asked) == 1 and KEY.encode() in asked[0]
    assert received == []
