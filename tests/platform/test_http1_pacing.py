"""Tests of the pacer: long streams are read at intervals, and nothing is lost or late for it."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from mudroom._platform.http1 import connection as pacer_module
from mudroom._platform.http1.connection import Connection, Pacer, make_shared_parts
from mudroom._platform.http1.parser import ConnectionLost
from mudroom._platform.http1.pool import ConnectionPool

from ..waiting import SECONDS, wait_until
from .test_http1 import FRAMINGS, HELLO, OK, RawServer, make_certificate, open_pool, post

HEAD = OK + b"Transfer-Encoding: chunked\r\n\r\n"
PIECE = b"5\r\npiece\r\n"
END = b"0\r\n\r\n"

Send = Callable[[asyncio.StreamWriter], Coroutine[None, None, None]]


class PieceServer(RawServer):
    """A server that sends its first answer as the test does, and `HELLO` to later requests."""

    def __init__(self, send: Send) -> None:
        super().__init__(HELLO)
        self._send = send

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.requests:
            self.requests.append(((await reader.readuntil(b"\r\n\r\n")).decode(), b""))
            try:
                await self._send(writer)
            except ConnectionError:
                self.closed.set()
                return
        await super().serve(reader, writer)


@pytest.fixture
def paces_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every stream wait from its second read on."""
    monkeypatch.setattr(pacer_module, "_MAX_DELAY_SHARE", 1e9)


def set_interval(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(pacer_module, "_MIN_INTERVAL", seconds)


class Stream:
    def __init__(self) -> None:
        self.count = 0

    def end_wait(self) -> None:
        self.count += 1


def start_wait(pacer: Pacer, stream: Stream, age: float) -> bool:
    return pacer.start_wait(stream, asyncio.get_running_loop().time(), age, gap=0.0)


async def test_a_stream_waits_at_most_a_twentieth_of_its_age() -> None:
    pacer = Pacer()
    stream = Stream()
    assert not start_wait(pacer, stream, age=0.0)
    assert not start_wait(pacer, stream, age=0.39)
    assert start_wait(pacer, stream, age=0.41)
    await wait_until(lambda: stream.count)


async def test_one_timer_ends_the_waits_of_all_streams() -> None:
    pacer = Pacer()
    streams = [Stream() for _ in range(50)]
    now = asyncio.get_running_loop().time()
    assert all(pacer.start_wait(stream, now, 60.0, 0.0) for stream in streams)
    # Its delay is short, since the next read comes soon.
    young = Stream()
    assert not pacer.start_wait(young, now + 0.010, 0.19, 0.0)
    assert pacer.start_wait(young, now + 0.015, 0.19, 0.0)
    await wait_until(lambda: young.count)
    assert [stream.count for stream in streams] == [1] * 50


@pytest.mark.parametrize(("count", "seconds"), [(1, 0.02), (40, 0.02), (100, 0.05), (5_000, 0.2)])
async def test_the_interval_grows_with_the_number_of_streams(count: int, seconds: float) -> None:
    pacer = Pacer()
    pacer.open_streams = count
    stream = Stream()
    assert not start_wait(pacer, stream, age=20 * seconds - 0.01)
    assert start_wait(pacer, stream, age=20 * seconds + 0.01)
    await wait_until(lambda: stream.count)


async def test_a_stream_with_two_pieces_in_an_interval_does_not_wait() -> None:
    pacer = Pacer()
    now = asyncio.get_running_loop().time()
    assert not pacer.start_wait(Stream(), now, age=60.0, gap=0.011)
    pacer.open_streams = 100
    assert pacer.start_wait(Stream(), now, age=60.0, gap=0.011)


async def test_open_streams_are_counted() -> None:
    server = RawServer(OK + b"Content-Length: 5\r\n\r\nhel")
    async with open_pool(server) as pool:
        url = f"http://127.0.0.1:{server.port}/"
        pacer = pool._shared.pacer  # pyright: ignore[reportPrivateUsage]
        for is_answered in (True, False):
            response = await pool.get(url, {})
            assert pacer.open_streams == 1
            response.close(is_answered=is_answered)
            assert pacer.open_streams == 0


@pytest.mark.usefixtures("paces_all")
@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_a_long_stream_is_read_at_intervals(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_encrypted: bool
) -> None:
    set_interval(monkeypatch, 0.1)
    certificate, tls = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + PIECE)
        for _ in range(250):
            await asyncio.sleep(0.002)
            writer.write(PIECE)
        writer.write(END)

    server = PieceServer(send)
    reads = 0
    body = b""
    started = time.monotonic()
    async with open_pool(server, tls=tls if is_encrypted else None) as pool:
        scheme = "https" if is_encrypted else "http"
        response = await pool.get(f"{scheme}://127.0.0.1:{server.port}/", {})
        while data := await response.read():
            reads += 1
            body += data
        response.close(is_answered=True)
    assert body == b"piece" * 251
    # The first two reads come at once. All others are at least an interval apart.
    assert reads <= 3 + (time.monotonic() - started) / 0.1


@pytest.mark.usefixtures("paces_all")
async def test_paced_reads_give_the_same_wherever_bytes_are_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_interval(monkeypatch, 0.02)
    data = FRAMINGS["chunks with extensions and trailers"]

    async def read(cut: int) -> bytes:
        async def send(writer: asyncio.StreamWriter) -> None:
            for part in (data[:cut], data[cut : cut + 1], data[cut + 1 :]):
                writer.write(part)
                await asyncio.sleep(0.002)

        server = PieceServer(send)
        async with open_pool(server) as pool:
            return await post(pool, f"http://127.0.0.1:{server.port}/", b"")

    answers = await asyncio.gather(*[read(cut) for cut in range(1, len(data) - 1)])
    assert set(answers) == {b"hello"}


async def start_reading(pool: ConnectionPool, url: str) -> asyncio.Task[bytes]:
    response = await pool.get(url, {})

    async def read() -> bytes:
        body = b""
        try:
            while data := await response.read():
                body += data
        except BaseException:
            response.close(is_answered=False)
            raise
        response.close(is_answered=True)
        return body

    return asyncio.create_task(read())


async def send_two_pieces(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + PIECE)
    await asyncio.sleep(0.01)
    writer.write(PIECE)
    await asyncio.sleep(0.01)


@pytest.mark.usefixtures("paces_all")
async def test_a_stream_that_breaks_while_it_waits_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_interval(monkeypatch, 0.1)

    async def send(writer: asyncio.StreamWriter) -> None:
        await send_two_pieces(writer)
        writer.transport.abort()

    server = PieceServer(send)
    async with open_pool(server) as pool:
        reading = await start_reading(pool, f"http://127.0.0.1:{server.port}/")
        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(reading, SECONDS)


@pytest.mark.usefixtures("paces_all")
async def test_a_stream_is_cancelled_at_once_while_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_interval(monkeypatch, 10 * SECONDS)
    has_sent = asyncio.Event()

    async def send(writer: asyncio.StreamWriter) -> None:
        await send_two_pieces(writer)
        has_sent.set()

    server = PieceServer(send)
    async with open_pool(server) as pool:
        reading = await start_reading(pool, f"http://127.0.0.1:{server.port}/")
        await asyncio.wait_for(has_sent.wait(), SECONDS)
        reading.cancel()
        await asyncio.wait_for(server.closed.wait(), SECONDS)


@pytest.mark.usefixtures("paces_all")
async def test_the_rest_of_an_answer_is_read_at_once_for_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_interval(monkeypatch, 10 * SECONDS)

    async def send(writer: asyncio.StreamWriter) -> None:
        await send_two_pieces(writer)
        writer.write(PIECE + END)

    server = PieceServer(send)
    async with open_pool(server) as pool:
        url = f"http://127.0.0.1:{server.port}/"
        response = await pool.get(url, {})
        size = 0
        while size < 2 * len(b"piece"):
            size += len(await response.read())
        response.close(is_answered=True)
        await wait_until(lambda: not pool._busy)  # pyright: ignore[reportPrivateUsage]
        assert await post(pool, url, b"") == b"hello"
    assert server.connections == 1


class SilentTransport(asyncio.Transport):
    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Drop the data."""


class CountingPacer(Pacer):
    """A pacer that counts its calls and lets no stream wait."""

    count = 0

    def start_wait(self, stream: object, now: float, age: float, gap: float) -> bool:
        self.count += 1
        return False


def receive(connection: Connection, data: bytes) -> None:
    """Read data as an event loop does."""
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))


async def test_only_small_reads_of_incomplete_bodies_wait() -> None:
    pacer = CountingPacer()
    shared = make_shared_parts(lambda connection: None)
    shared.pacer = pacer
    connection = Connection(shared)
    connection.connection_made(SilentTransport())
    connection.send(b"", b"")
    receive(connection, OK + b"Content-Length: 50100\r\n\r\n")
    assert pacer.count == 1
    receive(connection, b"x" * 50_000)
    assert pacer.count == 1
    receive(connection, b"x" * 50)
    assert pacer.count == 2
    receive(connection, b"x" * 50)
    assert pacer.count == 2
