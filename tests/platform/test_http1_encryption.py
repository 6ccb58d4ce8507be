"""Tests of encrypted connections: cut anywhere, ended anywhere, changed, and through a proxy."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from mudroom._platform.event_loop import run_event_loop
from mudroom._platform.http1.parser import CannotConnect, ConnectionLost, HttpError, UntrustedServer
from mudroom._platform.http1.pool import ConnectionPool

from ..waiting import SECONDS
from .test_http1 import (
    FRAMINGS,
    HELLO,
    OK,
    ProxyServer,
    RawServer,
    make_certificate,
    open_pool,
    post,
)

Change = Callable[[bytes, int], list[bytes]]
"""(bytes of the server, number of its bytes before them) -> the pieces that the client gets.

An empty piece ends the connection.
"""


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """Return the context of a server whose certificate is trusted."""
    certificate, context = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    return context


class Relay:
    """A relay between client and server that changes what the server sends.

    Attributes:
        count: bytes that the server has sent.
        tasks: one for each connection.
    """

    def __init__(self, port: int, change: Change) -> None:
        self.count = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self._port = port
        self._change = change

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._port)
        upwards = asyncio.create_task(self._send_up(reader, server_writer))
        try:
            while data := await server_reader.read(65_536):
                pieces = self._change(data, self.count)
                self.count += len(data)
                for piece in pieces:
                    if not piece:
                        return
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
        except ConnectionError:
            pass
        finally:
            upwards.cancel()
            for each in (writer, server_writer):
                each.close()
                with suppress(ConnectionError):
                    await each.wait_closed()

    async def _send_up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)


class EndingProxy(ProxyServer):
    """A proxy that tells when its tunnel has ended."""

    def __init__(self, target_port: int) -> None:
        super().__init__(target_port)
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await super().serve(reader, writer)
            with suppress(ConnectionError):
                await writer.wait_closed()
        finally:
            self.ended.set()


@asynccontextmanager
async def open_relay(port: int, change: Change) -> AsyncGenerator[tuple[Relay, str]]:
    relay = Relay(port, change)
    listener = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    try:
        yield relay, f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"
    finally:
        listener.close()
        for task in relay.tasks:
            task.cancel()
        await asyncio.gather(*relay.tasks, return_exceptions=True)


async def ask(pool: ConnectionPool, url: str) -> bytes:
    async with asyncio.timeout(SECONDS):
        return await post(pool, url)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("size", [1, 7, 1_000])
async def test_answers_read_the_same_however_the_encrypted_bytes_are_cut(
    tls: ssl.SSLContext, version: ssl.TLSVersion, size: int
) -> None:
    tls.minimum_version = tls.maximum_version = version
    server = RawServer(HELLO, FRAMINGS["chunks"])

    def cut(data: bytes, _: int) -> list[bytes]:
        return [data[at : at + size] for at in range(0, len(data), size)]

    async with open_pool(server, tls=tls) as pool, open_relay(server.port, cut) as (_, url):
        for _ in range(3):
            assert await ask(pool, url) == b"hello"
    assert server.connections == 1


async def count_bytes(tls: ssl.SSLContext) -> int:
    """Return the number of bytes that the server sends for one answer."""
    server = RawServer(HELLO)
    async with (
        open_pool(server, tls=tls) as pool,
        open_relay(server.port, lambda data, _: [data]) as (relay, url),
    ):
        assert await ask(pool, url) == b"hello"
        return relay.count


async def test_an_encrypted_connection_that_ends_early_is_an_error_wherever_it_ends(
    tls: ssl.SSLContext,
) -> None:
    size = await count_bytes(tls)
    errors: set[type[HttpError]] = set()

    async def ask_until(end: int) -> None:
        def cut(data: bytes, before: int) -> list[bytes]:
            return [data] if before + len(data) < end else [data[: end - before], b""]

        async with open_relay(server.port, cut) as (_, url):
            with pytest.raises((CannotConnect, ConnectionLost)) as caught:
                await ask(pool, url)
            errors.add(caught.type)

    server = RawServer(HELLO)
    async with open_pool(server, tls=tls) as pool:
        # The length of a signature differs by a few bytes from one handshake to the next.
        for end in range(1, size - 10, 37):
            await ask_until(end)
    assert errors == {CannotConnect, ConnectionLost}


async def test_a_server_that_ends_the_handshake_is_named(tls: ssl.SSLContext) -> None:
    server = RawServer(HELLO)

    def end(_: bytes, before: int) -> list[bytes]:
        return [b""]

    async with open_pool(server, tls=tls) as pool, open_relay(server.port, end) as (_, url):
        with pytest.raises(CannotConnect, match="closed the connection before it was encrypted"):
            await ask(pool, url)


async def test_a_server_without_encryption_is_not_trusted() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(HELLO)
        await writer.drain()
        writer.close()

    server = RawServer(HELLO)
    server.serve = serve
    async with open_pool(server) as pool:
        with pytest.raises(UntrustedServer, match="WRONG_VERSION_NUMBER"):
            await ask(pool, f"https://127.0.0.1:{server.port}/")


async def test_an_answer_that_was_changed_on_its_way_is_lost(tls: ssl.SSLContext) -> None:
    server = RawServer(HELLO)

    def change(data: bytes, _: int) -> list[bytes]:
        if len(server.requests) == 1:
            return [data[:-1] + bytes([data[-1] ^ 1])]
        return [data]

    async with open_pool(server, tls=tls) as pool, open_relay(server.port, change) as (_, url):
        with pytest.raises(ConnectionLost, match=r"(?i)bad record mac"):
            await ask(pool, url)
        server.requests.append(("", b""))
        assert await ask(pool, url) == b"hello"
    assert server.connections == 2


@pytest.mark.parametrize("name", ["until the connection ends", "HTTP/1.0"])
async def test_an_answer_may_end_with_its_encrypted_connection(
    tls: ssl.SSLContext, name: str
) -> None:
    server = RawServer(FRAMINGS[name], end=True)
    async with open_pool(server, tls=tls) as pool:
        for _ in range(2):
            assert await ask(pool, f"https://127.0.0.1:{server.port}/") == b"hello"
    assert server.connections == 2


@pytest.mark.parametrize("answer", [b"", OK, OK + b"Content-Length: 5\r\n\r\nhe"])
async def test_an_encrypted_connection_that_the_server_ends_early_is_lost(
    tls: ssl.SSLContext, answer: bytes
) -> None:
    server = RawServer(answer, end=True)
    async with open_pool(server, tls=tls) as pool:
        with pytest.raises(ConnectionLost):
            await ask(pool, f"https://127.0.0.1:{server.port}/")


async def test_an_encrypted_connection_that_the_server_closed_is_not_used_again(
    tls: ssl.SSLContext,
) -> None:
    server = RawServer(HELLO, end=True)
    async with open_pool(server, tls=tls) as pool:
        for _ in range(2):
            assert await ask(pool, f"https://127.0.0.1:{server.port}/") == b"hello"
            async with asyncio.timeout(SECONDS):
                await server.closed.wait()
            server.closed.clear()
            await asyncio.sleep(0.05)  # The client reads the end in the next turns of the loop.
    assert server.connections == 2


async def test_a_large_encrypted_body_waits_while_nothing_reads_it(tls: ssl.SSLContext) -> None:
    size = 10_000_000
    server = RawServer(OK + b"Content-Length: %d\r\n\r\n" % size + b"x" * size)
    async with open_pool(server, tls=tls, read_timeout=0.4) as pool:
        response = await pool.get(f"https://127.0.0.1:{server.port}/", {})
        await asyncio.sleep(0.6)  # longer than the read timeout: a slow reader is not a fault
        received = 0
        while data := await response.read():
            assert len(data) < 2_000_000
            received += len(data)
        response.close(is_answered=True)
    assert received == size


async def test_a_tunnel_goes_through_a_proxy_that_is_encrypted_itself(
    tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = RawServer(HELLO, FRAMINGS["chunks"])
    async with open_pool(server, tls=tls) as pool:
        proxy = EndingProxy(server.port)
        listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, ssl=tls)
        address = f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        monkeypatch.setenv("HTTPS_PROXY", address)
        for _ in range(3):
            assert await post(pool, "https://models.invalid/v1", b"x" * 300_000) == b"hello"
        await pool.close()
        async with asyncio.timeout(SECONDS):
            await proxy.ended.wait()
            await server.closed.wait()
        listener.close()
    assert [head.split("\r\n")[0] for head in proxy.heads] == [
        "CONNECT models.invalid:443 HTTP/1.1"
    ]
    assert [len(body) for _, body in server.requests] == [300_000] * 3


def test_encrypted_requests_work_on_uvloop(tls: ssl.SSLContext) -> None:
    pytest.importorskip("uvloop")

    async def work() -> None:
        server = RawServer(HELLO, FRAMINGS["chunks"])
        async with open_pool(server, tls=tls) as pool:
            for _ in range(3):
                url = f"https://localhost:{server.port}/"
                assert await post(pool, url, b"x" * 300_000) == b"hello"
        assert server.connections == 1

    run_event_loop(work())
