"""Tests of the HTTP/1.1 client: framing, faults, reuse of connections, proxies, encryption."""

import asyncio
import gc
import os
import ssl
import subprocess
import sys
import weakref
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mudroom._platform.http1.connection import MAX_UNREAD
from mudroom._platform.http1.parser import (
    CannotConnect,
    ConnectionLost,
    HttpError,
    InvalidRequest,
    MalformedResponse,
    ResponseParser,
    SilentServer,
    UntrustedServer,
)
from mudroom._platform.http1.pool import ConnectionPool, parse_url

from ..waiting import SECONDS

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
HELLO = OK + b"Content-Length: 5\r\n\r\nhello"

FRAMINGS = {
    "length": HELLO,
    "chunks": OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    "chunks with extensions and trailers": OK
    + b"transfer-encoding: Chunked\r\n\r\n5;a=b\r\nhello\r\n0;end\r\nX-Sum: 1\r\n\r\n",
    "until the connection ends": OK + b"\r\nhello",
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\nhello",
    "line feeds only": HELLO.replace(b"\r\n", b"\n"),
    "an interim response first": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\n"
    + HELLO,
    "a folded header": OK + b"X-Long: a\r\n b\r\nContent-Length: 5\r\n\r\nhello",
    "a length that is repeated": OK + b"Content-Length: 5\r\ncontent-length: 5\r\n\r\nhello",
    "no reason phrase": HELLO.replace(b" OK", b""),
}

MALFORMED = {
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "HTTP/2": b"HTTP/2 200\r\n\r\n",
    "a status that is no number": b"HTTP/1.1 OK\r\n\r\n",
    "a header without a colon": b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
    "a space in a header name": b"HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\n",
    "a negative length": OK + b"Content-Length: -5\r\n\r\n",
    "two different lengths": OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
    "a huge length": OK + b"Content-Length: 9999999999999999\r\n\r\n",
    "an unknown transfer encoding": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    "a chunk size that is no number": OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "a chunk that is too long": OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n",
    "an endless chunk line": OK + b"Transfer-Encoding: chunked\r\n\r\n5;" + b"a" * 5000,
    "endless headers": OK + b"X: y\r\n" * 20_000,
    "another protocol after the head": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n",
}


def parse(parts: list[bytes]) -> tuple[ResponseParser, bytes]:
    parser = ResponseParser()
    body = b"".join([parser.feed(part) for part in parts])
    if not parser.is_complete:
        parser.feed_end()
    return parser, body


@pytest.mark.parametrize("name", FRAMINGS)
def test_a_response_reads_the_same_however_its_bytes_are_cut(name: str) -> None:
    data = FRAMINGS[name]
    cuts = [[data[:cut], data[cut:]] for cut in range(1, len(data))]
    single = [data[at : at + 1] for at in range(len(data))]
    for parts in ([data], single, *cuts):
        parser, body = parse(parts)
        assert (parser.status, body) == (200, b"hello"), parts
        assert parser.headers["content-type"] == "text/event-stream"
        assert not parser.has_surplus


@pytest.mark.parametrize("name", ["length", "chunks", "chunks with extensions and trailers"])
def test_a_response_that_ends_early_is_lost_at_every_byte(name: str) -> None:
    data = FRAMINGS[name]
    for cut in range(len(data)):
        with pytest.raises(ConnectionLost):
            parse([data[:cut]])


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_response_is_refused(name: str) -> None:
    data = MALFORMED[name]
    with pytest.raises(MalformedResponse):
        parse([data])
    size = max(7, len(data) // 1_000)
    with pytest.raises(MalformedResponse):
        parse([data[at : at + size] for at in range(0, len(data), size)])


@pytest.mark.parametrize(
    ("name", "is_reusable"),
    [("length", True), ("chunks", True), ("until the connection ends", False), ("HTTP/1.0", False)],
)
def test_a_connection_is_reusable_after_a_body_with_a_known_end(
    name: str, is_reusable: bool
) -> None:
    assert parse([FRAMINGS[name]])[0].is_reusable is is_reusable
    asks_to_close = FRAMINGS[name].replace(OK, OK + b"Connection: Close\r\n")
    assert not parse([asks_to_close])[0].is_reusable


class RawServer:
    """A server that answers each request on a connection with bytes of the test.

    `requests`: heads and bodies. `connections`: number of accepted connections. `ended`: number of
    those that have ended. `end`: close each connection after its first answer.
    """

    def __init__(self, *answers: bytes, end: bool = False) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[str, bytes]] = []
        self.connections = 0
        self.ended = 0
        self.requested = asyncio.Event()
        self.closed = asyncio.Event()
        self.port = 0
        self._end = end

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                body = b""
                if "Content-Length: " in head:
                    length = int(head.split("Content-Length: ")[1].split("\r\n")[0])
                    body = await reader.readexactly(length)
                self.requests.append((head, body))
                self.requested.set()
                writer.write(self.answers[min(len(self.requests), len(self.answers)) - 1])
                await writer.drain()
                if self._end:
                    return
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()
            self.ended += 1
            self.closed.set()


@asynccontextmanager
async def open_pool(
    server: RawServer, *, read_timeout: float = SECONDS, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[ConnectionPool]:
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    pool = ConnectionPool(read_timeout=read_timeout)
    try:
        yield pool
    finally:
        await pool.close()
        listener.close()


async def post(pool: ConnectionPool, url: str, body: bytes = b"question") -> bytes:
    response = await pool.post(url, {"Content-Type": "application/json"}, lambda: body)
    answer = b""
    try:
        while data := await response.read():
            answer += data
    except BaseException:
        response.close(is_answered=False)
        raise
    response.close(is_answered=True)
    return answer


NAMES = (
    x509.DNSName("localhost"),
    x509.DNSName("models.invalid"),
    x509.IPAddress(ip_address("127.0.0.1")),
)


class ApiKey(str):
    """A header value that can have a weak reference."""


async def test_the_process_keeps_no_key_of_a_closed_pool() -> None:
    key = ApiKey("k-of-one-session")
    find_key = weakref.ref(key)
    server = RawServer(HELLO)
    async with open_pool(server) as pool:
        url = f"http://127.0.0.1:{server.port}/"
        first = await pool.post(url, {"X-Api-Key": key}, lambda: b"")
        assert await first.read() == b"hello"
        first.close(is_answered=True)
        second = await pool.post(url, {"X-Api-Key": key}, lambda: b"")
        assert await second.read() == b"hello"
        second.close(is_answered=True)
        del key
    gc.collect()
    assert find_key() is None
    (head, _), repeated = server.requests
    assert "X-Api-Key: k-of-one-session\r\n" in head
    assert repeated == (head, b"")


@pytest.mark.parametrize("name", FRAMINGS)
async def test_a_request_and_its_answer_go_through_a_real_socket(name: str) -> None:
    server = RawServer(FRAMINGS[name], end=True)
    async with open_pool(server) as pool:
        url = f"http://127.0.0.1:{server.port}/v1/messages?beta=true"
        assert await post(pool, url) == b"hello"
    head, body = server.requests[0]
    assert head.startswith("POST /v1/messages?beta=true HTTP/1.1\r\n")
    assert f"Host: 127.0.0.1:{server.port}\r\n" in head
    assert body == b"question"


async def test_one_connection_carries_many_requests() -> None:
    server = RawServer(HELLO, FRAMINGS["chunks"])
    async with open_pool(server) as pool:
        for _ in range(5):
            assert await post(pool, f"http://127.0.0.1:{server.port}/") == b"hello"
    assert (server.connections, len(server.requests)) == (1, 5)


async def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    server = RawServer(HELLO, end=True)
    async with open_pool(server) as pool:
        for _ in range(3):
            await post(pool, f"http://127.0.0.1:{server.port}/")
            async with asyncio.timeout(SECONDS):
                await server.closed.wait()
            server.closed.clear()
            await asyncio.sleep(0.05)  # The client reads the end in the next turns of the loop.
    assert server.connections == 3


async def test_bytes_after_an_answer_do_not_become_the_next_answer() -> None:
    server = RawServer(HELLO + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", HELLO)
    async with open_pool(server) as pool:
        answers = [await post(pool, f"http://127.0.0.1:{server.port}/") for _ in range(2)]
    assert answers == [b"hello", b"hello"]
    assert server.connections == 2


async def test_a_cancelled_request_closes_its_connection() -> None:
    server = RawServer(OK + b"Content-Length: 5\r\n\r\nhe")
    async with open_pool(server) as pool:
        request = asyncio.create_task(post(pool, f"http://127.0.0.1:{server.port}/"))
        async with asyncio.timeout(SECONDS):
            await server.requested.wait()
        request.cancel()
        await asyncio.wait([request])
        async with asyncio.timeout(SECONDS):
            await server.closed.wait()


async def test_the_rest_of_an_answered_response_is_dropped_and_the_connection_kept() -> None:
    server = RawServer(HELLO)
    async with open_pool(server) as pool:
        url = f"http://127.0.0.1:{server.port}/"
        response = await pool.post(url, {}, bytes)
        response.close(is_answered=True)
        assert await post(pool, url) == b"hello"
    assert server.connections == 1


async def test_a_rest_that_does_not_arrive_closes_the_connection() -> None:
    server = RawServer(OK + b"Content-Length: 5\r\n\r\nhe")
    async with open_pool(server, read_timeout=0.4) as pool:
        response = await pool.post(f"http://127.0.0.1:{server.port}/", {}, bytes)
        response.close(is_answered=True)
        async with asyncio.timeout(SECONDS):
            await server.closed.wait()


@pytest.mark.parametrize("answer", [b"", OK, OK + b"Content-Length: 5\r\n\r\nhe"])
async def test_a_silent_server_ends_the_request_after_the_read_timeout(answer: bytes) -> None:
    server = RawServer(answer)
    async with open_pool(server, read_timeout=0.3) as pool:
        started_at = asyncio.get_running_loop().time()
        with pytest.raises(SilentServer):
            await post(pool, f"http://127.0.0.1:{server.port}/")
        assert 0.25 < asyncio.get_running_loop().time() - started_at < SECONDS
        async with asyncio.timeout(SECONDS):
            await server.closed.wait()


@pytest.mark.parametrize("answer", [b"", OK, OK + b"Content-Length: 5\r\n\r\nhe"])
async def test_a_connection_that_ends_early_is_lost(answer: bytes) -> None:
    server = RawServer(answer, end=True)
    async with open_pool(server) as pool:
        with pytest.raises(ConnectionLost):
            await post(pool, f"http://127.0.0.1:{server.port}/")


async def test_a_body_in_an_unknown_compression_is_refused() -> None:
    server = RawServer(HELLO.replace(b"200 OK", b"200 OK\r\nContent-Encoding: br"))
    async with open_pool(server) as pool:
        with pytest.raises(MalformedResponse, match=r"compressed \(br\)"):
            await post(pool, f"http://127.0.0.1:{server.port}/")
    assert "Accept-Encoding: identity\r\n" in server.requests[0][0]


async def test_a_large_body_waits_in_the_socket_while_nothing_reads_it() -> None:
    size = 30_000_000
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"Content-Length: %d\r\n\r\n" % size)
        while sent < size:
            writer.write(b"x" * 100_000)
            sent += 100_000
            await writer.drain()
        writer.close()

    server = RawServer(HELLO)
    server.serve = serve
    async with open_pool(server, read_timeout=0.4) as pool:
        response = await pool.post(f"http://127.0.0.1:{server.port}/", {}, bytes)
        await asyncio.sleep(0.8)  # longer than the read timeout: a slow reader is not a fault
        assert sent < size / 2
        received = 0
        while data := await response.read():
            received += len(data)
        response.close(is_answered=True)
    assert received == size


async def test_the_read_timeout_begins_again_when_a_slow_reader_reads_on() -> None:
    first = b"x" * (MAX_UNREAD + 1)  # the client stops reading the socket after it
    reads_on = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"Content-Length: %d\r\n\r\n" % (len(first) + 5) + first)
        await reads_on.wait()
        await asyncio.sleep(0.2)  # shorter than the read timeout, with checks of it in between
        writer.write(b"hello")
        writer.close()

    server = RawServer(HELLO)
    server.serve = serve
    async with open_pool(server, read_timeout=0.8) as pool:
        response = await pool.post(f"http://127.0.0.1:{server.port}/", {}, bytes)
        await asyncio.sleep(1)
        received = await response.read()
        reads_on.set()
        while data := await response.read():
            received += data
        response.close(is_answered=True)
    assert received == first + b"hello"


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\0b"])
async def test_a_header_with_a_line_break_is_never_sent(value: str) -> None:
    server = RawServer(HELLO)
    async with open_pool(server) as pool:
        with pytest.raises(InvalidRequest, match="line break"):
            await pool.post(f"http://127.0.0.1:{server.port}/", {"X-Key": value}, bytes)
    assert not server.requests


async def test_parallel_requests_to_a_name_have_connections_of_their_own() -> None:
    server = RawServer(HELLO)
    async with open_pool(server) as pool:
        url = f"http://localhost:{server.port}/"
        assert await asyncio.gather(*[post(pool, url) for _ in range(20)]) == [b"hello"] * 20
    assert server.connections == 20


async def test_a_server_that_cannot_be_reached_is_named() -> None:
    listener = await asyncio.start_server(RawServer().serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    listener.close()
    for host in ("127.0.0.1", "localhost"):
        pool = ConnectionPool(read_timeout=SECONDS)
        with pytest.raises(CannotConnect, match="Connection refused"):
            await post(pool, f"http://{host}:{port}/")
        await pool.close()


def make_certificate(
    folder: Path,
    names: Sequence[x509.GeneralName] = NAMES,
    *,
    common_name: str = "test",
    days: tuple[int, int] = (-1, 1),
) -> tuple[Path, ssl.SSLContext]:
    """Write a certificate; return its path and a server's context.

    Arguments:
        names: the hosts that it is for.
        days: from now until it begins and ends to be valid.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(key, hashes.SHA256())
    certificate_path = folder / "certificate.pem"
    certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path = folder / "key.pem"
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate_path, key_path)
    return certificate_path, context


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_an_encrypted_connection_is_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    certificate, tls = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    server = RawServer(HELLO)
    async with open_pool(server, tls=tls) as pool:
        for _ in range(3):
            assert await post(pool, f"https://{host}:{server.port}/", b"x" * 300_000) == b"hello"
    assert server.connections == 1


async def test_a_server_with_an_unknown_certificate_is_not_trusted(tmp_path: Path) -> None:
    _, tls = make_certificate(tmp_path)
    server = RawServer(HELLO)
    async with open_pool(server, tls=tls) as pool:
        with pytest.raises(UntrustedServer, match="certificate"):
            await post(pool, f"https://127.0.0.1:{server.port}/")
    assert not server.requests


class ProxyServer:
    """A proxy that opens tunnels, and answers plain requests itself. `heads`: what it received."""

    def __init__(self, target_port: int, refusal: bytes = b"") -> None:
        self.target_port = target_port
        self.refusal = refusal
        self.heads: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        if self.refusal or not head.startswith("CONNECT "):
            writer.write(self.refusal or HELLO)
            await writer.drain()
            writer.close()
            return
        target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(copy(reader, target_writer), copy(target_reader, writer))


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def open_proxy(proxy: ProxyServer) -> AsyncGenerator[str]:
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()


@pytest.fixture
def example_host(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a host that only a proxy can reach; requests to this machine take no proxy."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return "models.invalid"


async def test_a_plain_request_goes_through_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, example_host: str
) -> None:
    proxy = ProxyServer(0)
    pool = ConnectionPool(read_timeout=SECONDS)
    async with open_proxy(proxy) as address:
        monkeypatch.setenv("HTTP_PROXY", f"http://ada:se%40cret@{address}")
        assert await post(pool, f"http://{example_host}/v1?a=b") == b"hello"
        await pool.close()
    assert proxy.heads[0].startswith(f"POST http://{example_host}/v1?a=b HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic YWRhOnNlQGNyZXQ=\r\n" in proxy.heads[0]


def test_this_machine_is_reached_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch, example_host: str
) -> None:
    assert example_host
    monkeypatch.setenv("ALL_PROXY", "http://proxy.invalid:3128")
    for host in ("127.0.0.1:80", "localhost", "[::1]:8080"):
        assert parse_url(f"http://{host}/").proxy is None
    assert parse_url("http://models.invalid/").proxy is not None


def test_a_proxy_of_another_protocol_is_refused(
    monkeypatch: pytest.MonkeyPatch, example_host: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:1080")
    with pytest.raises(InvalidRequest, match="not an HTTP proxy"):
        parse_url(f"https://{example_host}/")


@pytest.mark.parametrize(
    ("url", "target", "host_header"),
    [
        ("https://a.invalid", "/", "a.invalid"),
        ("https://a.invalid:443/v1", "/v1", "a.invalid"),
        ("http://a.invalid:8080/v1/x y?q=ü#f", "/v1/x%20y?q=%C3%BC", "a.invalid:8080"),
        ("http://[::1]:8080/%41", "/%41", "[::1]:8080"),
        ("https://bücher.invalid/", "/", "xn--bcher-kva.invalid"),
    ],
)
def test_a_url_becomes_a_target_and_a_host_header(url: str, target: str, host_header: str) -> None:
    address = parse_url(url)
    assert (address.target, address.host_header) == (target, host_header)


def test_a_user_name_in_a_url_becomes_a_header() -> None:
    assert parse_url("http://ada:pw@a.invalid/").authorization == "Basic YWRhOnB3"


@pytest.mark.parametrize(
    "url", ["", "nonsense", "http://", "ftp://a.invalid", "http://a.invalid:99999", "http://[::1"]
)
def test_what_is_not_a_url_is_refused(url: str) -> None:
    with pytest.raises(HttpError, match="is not a URL"):
        parse_url(url)


def test_a_request_without_a_proxy_does_not_load_the_slow_module_for_proxies() -> None:
    program = (
        "import sys; from mudroom._platform.http1.pool import parse_url\n"
        "assert parse_url('https://example.org/v1').proxy is None\n"
        "assert 'urllib.request' not in sys.modules"
    )
    environ = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    subprocess.run([sys.executable, "-c", program], env=environ, check=True)
