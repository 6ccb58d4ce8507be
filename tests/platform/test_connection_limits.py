"""Tests of the limits of accepted connections, with real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from mudroom._platform.connection_limits import ConnectionLimits, LimitedConnections
from mudroom._platform.web_listener import open_listener

from ..half_open import HALF_HEAD, check_half_open, open_half
from ..waiting import SECONDS
from .test_http1 import make_certificate

LONG = 60.0
REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


class Server:
    """A server whose paths `/wait` and `/stream` answer when the test says so."""

    def __init__(self, **options: Any) -> None:
        limits: dict[str, Any] = {"head_seconds": LONG, "idle_seconds": LONG}
        behind_proxy = options.pop("is_behind_proxy", False)
        self.connections = LimitedConnections(
            ConnectionLimits(**{**limits, **options}), is_behind_proxy=behind_proxy
        )
        self.go = asyncio.Event()
        self.started = asyncio.Semaphore(0)
        self.port = 0

    async def send(self, _: web.Request) -> web.Response:
        return web.Response(text="Hello.")

    async def send_much(self, _: web.Request) -> web.Response:
        return web.Response(body=b"x" * (16 << 20))

    async def wait(self, _: web.Request) -> web.Response:
        self.started.release()
        await self.go.wait()
        return web.Response(text="Late.")

    async def stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        self.started.release()
        await self.go.wait()
        await response.write(b"Late.")
        return response

    @asynccontextmanager
    async def open(self, **options: Any) -> AsyncGenerator[int]:
        app = web.Application()
        app.router.add_get("/", self.send)
        app.router.add_get("/much", self.send_much)
        app.router.add_get("/wait", self.wait)
        app.router.add_get("/stream", self.stream)
        place = ("127.0.0.1", 0)
        async with open_listener(
            app, self.connections, place, shutdown_seconds=0.1, **options
        ) as self.port:
            yield self.port

    async def ask(self, path: str = "/") -> str:
        async with aiohttp.ClientSession() as http:
            async with http.get(f"http://127.0.0.1:{self.port}{path}") as response:
                return await response.text()


@pytest.mark.parametrize("trickle", [b"", b"x"])
@pytest.mark.parametrize("begin", [b"", b"G", HALF_HEAD, REQUEST + HALF_HEAD])
async def test_a_head_that_does_not_end_is_cut(begin: bytes, trickle: bytes) -> None:
    # What came in one read with a request counts as idle after it.
    server = Server(head_seconds=0.2, idle_seconds=0.4)
    async with server.open() as port:
        client = await open_half(port, begin)
        await client.wait_until_cut(trickle if begin else b"")
        client.close()
        assert await server.ask() == "Hello."


async def test_an_idle_connection_is_cut() -> None:
    async with Server(idle_seconds=0.2).open() as port:
        client = await open_half(port, REQUEST)
        await client.wait_until_cut()
        client.close()


async def test_a_handshake_that_does_not_end_is_cut(tmp_path: Path) -> None:
    _, tls = make_certificate(tmp_path)
    async with Server(head_seconds=0.2).open(tls=tls) as port:
        client = await open_half(port, b"\x16\x03\x01")
        await client.wait_until_cut()
        client.close()


@pytest.mark.parametrize("path", ["/wait", "/stream"])
async def test_a_silent_answer_is_not_cut(path: str) -> None:
    server = Server(head_seconds=0.1, idle_seconds=0.1)
    async with server.open() as port:
        answer = asyncio.create_task(server.ask(path))
        async with asyncio.timeout(SECONDS):
            await server.started.acquire()
        for _ in range(3):  # All limits have passed several times.
            client = await open_half(port)
            await client.wait_until_cut()
            client.close()
        server.go.set()
        assert await answer == "Late."


async def test_a_client_that_reads_slowly_gets_the_whole_answer() -> None:
    async with Server(idle_seconds=0.4).open() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
        writer.write(REQUEST.replace(b"/ ", b"/much "))
        received = 0
        async with asyncio.timeout(SECONDS):
            while received < 16 << 20:
                data = await reader.read(1 << 20)
                assert data
                received += len(data)
                await asyncio.sleep(0.005)
        writer.close()


async def test_a_client_that_does_not_read_is_cut() -> None:
    server = Server(idle_seconds=0.2, total=1)
    async with server.open() as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(REQUEST.replace(b"/ ", b"/much "))
        async with asyncio.timeout(SECONDS):
            while not writer.transport.is_closing():
                with suppress(ConnectionError):
                    writer.write(b"x")
                await asyncio.sleep(0.02)
        assert await server.ask() == "Hello."


async def test_half_open_connections_do_not_keep_others_out() -> None:
    server = Server(head_seconds=0.5, total=4)
    async with server.open() as port:
        await check_half_open(port, 40, server.ask)


async def test_the_connection_that_waited_longest_makes_room() -> None:
    server = Server(total=3, per_address=3)
    async with server.open() as port:
        first, second, third = [await open_half(port) for _ in range(3)]
        assert await server.ask() == "Hello."
        await first.wait_until_cut()
        assert not (second.is_cut or third.is_cut)
        for each in (first, second, third):
            each.close()


async def test_a_server_whose_connections_all_work_says_so() -> None:
    server = Server(total=2, per_address=2)
    async with server.open() as port:
        working = [asyncio.create_task(server.ask("/wait")) for _ in range(2)]
        async with asyncio.timeout(SECONDS):
            for _ in working:
                await server.started.acquire()
        async with aiohttp.ClientSession() as http:
            async with http.get(f"http://127.0.0.1:{port}/") as response:
                assert response.status == 503
                assert response.headers["Retry-After"] == "1"
                assert "too many open connections" in await response.text()
        silent = await open_half(port, b"")
        await silent.wait_until_cut()
        silent.close()
        server.go.set()
        assert await asyncio.gather(*working) == ["Late."] * 2
        assert await server.ask() == "Hello."


@pytest.mark.parametrize("is_behind_proxy", [False, True])
async def test_one_address_has_a_share_of_the_connections(is_behind_proxy: bool) -> None:
    server = Server(total=4, per_address=2, is_behind_proxy=is_behind_proxy)
    async with server.open() as port:
        try:
            other = await open_half(port, b"", source="127.0.0.2")
        except OSError:
            pytest.skip("this system has one loopback address")
        crowd = [await open_half(port) for _ in range(3)]
        assert await server.ask() == "Hello."
        assert not other.is_cut or is_behind_proxy
        if not is_behind_proxy:
            await crowd[0].wait_until_cut()
        for each in (other, *crowd):
            each.close()
