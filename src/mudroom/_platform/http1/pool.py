"""Connections to servers: opened when needed, through proxies if necessary, and reused."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
import sys
from base64 import b64encode
from collections.abc import Callable, Coroutine, Mapping
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

from msgspec import Struct

from ..own_process import count_allowed_connections
from ..time_limits import time_limit
from .connection import Connection, make_shared_parts
from .parser import (
    CannotConnect,
    Decompressor,
    ForbiddenAddress,
    HttpError,
    InvalidRequest,
    ResponseParser,
    TooManyOpenFiles,
    UntrustedServer,
)

log = logging.getLogger("mudroom")

# Seconds to open a connection, including name look-up, proxy and encryption.
_CONNECT_TIMEOUT = 10.0
# Seconds an unused connection stays open.
_KEEP_ALIVE = 30.0
# Seconds to drain the rest of a body its reader no longer needs.
_DRAIN_SECONDS = 0.5
# Seconds that a name's look-up is reused.
_NAME_SECONDS = 10.0
# Seconds after which a name's next address is tried in parallel (RFC 8305).
_ATTEMPT_DELAY = 0.25
_MAX_CHECK_INTERVAL = 1.0
_MAX_CONNECTIONS = 10_000
# Connections closed in one iteration of the event loop, about 0.05 ms each.
_CLOSED_AT_ONCE = 64
# Parsed URLs that are cached.
_MAX_URLS = 64
# Request heads that are cached.
_MAX_HEADS = 64

SocketAddress = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, SocketAddress]
"""An address of a name as returned by `getaddrinfo`."""


class Response:
    """A response whose head has arrived, with lower-case header names. Call `close` at the end."""

    __slots__ = ("_connection", "_decompressor", "_pool", "headers", "request_size", "status")

    def __init__(
        self,
        pool: ConnectionPool,
        connection: Connection,
        head: ResponseParser,
        request_size: int,
    ) -> None:
        self._pool = pool
        self._connection = connection
        self.status = head.status
        self.headers = head.headers
        self.request_size = request_size
        encoding = head.headers.get("content-encoding", "identity")
        self._decompressor = None if encoding == "identity" else Decompressor(encoding)

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def read(self) -> bytes:
        decompressor = self._decompressor
        if decompressor is None:
            return await self._connection.read()
        while True:
            data = b"" if decompressor.has_waiting else await self._connection.read()
            if not data and not decompressor.has_waiting:
                return b""
            if piece := decompressor.read(data):
                return piece

    def close(self, *, is_answered: bool) -> None:
        """Stop using the response.

        If it is answered, the rest of the body is dropped and the connection reused. Otherwise the
        connection is closed, so that the server notices the cancelled request.
        """
        self._pool.give_back(self._connection, is_reusable=is_answered)


class ConnectionPool:
    """Connections for one event loop.

    `read_timeout` is in seconds without a byte. With `allows_address`, all addresses of a name must
    be allowed, and no proxy is used.
    """

    def __init__(
        self, *, read_timeout: float, allows_address: Callable[[str], bool] | None = None
    ) -> None:
        self._read_timeout = read_timeout
        self._allows_address = allows_address
        self._check_interval = min(_MAX_CHECK_INTERVAL, read_timeout / 8)
        self._idle: dict[tuple[object, ...], list[Connection]] = {}
        self._busy: dict[Connection, tuple[object, ...]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._max_connections = count_allowed_connections(0.75, _MAX_CONNECTIONS)
        self._slots = asyncio.Semaphore(self._max_connections)
        self._addresses: dict[str, Address] = {}
        # Heads contain API keys, so they must not outlive the pool: no cache of the module.
        self._heads: dict[tuple[object, ...], bytes] = {}
        # When a look-up of a name expires, and the look-up.
        self._names: dict[tuple[str, int], tuple[float, asyncio.Task[list[AddressInfo]]]] = {}
        self._tls: ssl.SSLContext | None = None
        self._has_warned = False
        self._shared = make_shared_parts(self._add_idle)

    def post(
        self, url: str, headers: Mapping[str, str], make_body: Callable[[], bytes]
    ) -> Coroutine[Any, Any, Response]:
        """Send a POST request and return the response once its head has arrived. Raises HttpError.

        The body is made when it is sent, and not kept in memory while the response is awaited.
        """
        return self._request("POST", url, headers, make_body)

    def get(self, url: str, headers: Mapping[str, str]) -> Coroutine[Any, Any, Response]:
        return self._request("GET", url, headers, bytes)

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], make_body: Callable[[], bytes]
    ) -> Response:
        address = self._addresses.get(url) or self._parse_url(url)
        key = (address.host, address.port, address.is_tls, address.proxy)
        if self._slots.locked():
            self._warn_of_limit()
        await self._slots.acquire()
        try:
            connection = self._take_idle(key) or await self._connect(address)
        except BaseException:
            self._slots.release()
            raise
        self._busy[connection] = key
        self._start_timer()
        try:
            size = self._send_request(connection, method, address, headers, make_body())
            response = Response(self, connection, await connection.read_head(), size)
        except BaseException:
            self.give_back(connection, is_reusable=False)
            raise
        return response

    def _warn_of_limit(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "%d connections to models are open, as many as the limit of open files allows. "
                "More requests wait. Raise the limit with `ulimit -n`.",
                self._max_connections,
            )

    def give_back(self, connection: Connection, *, is_reusable: bool) -> None:
        self._slots.release()
        if is_reusable:
            connection.release()
        else:
            connection.abort()
        if connection.is_closed:
            self._busy.pop(connection, None)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        idle = [connection for connections in self._idle.values() for connection in connections]
        self._idle.clear()
        connections = [*self._busy, *idle]
        self._busy.clear()
        self._heads.clear()
        try:
            while connections:
                for connection in connections[-_CLOSED_AT_ONCE:]:
                    connection.abort()
                del connections[-_CLOSED_AT_ONCE:]
                # The event loop closes the sockets in its next iteration: let other tasks run.
                await asyncio.sleep(0)
        finally:
            for connection in connections:  # from a cancelled call
                connection.abort()

    def _parse_url(self, url: str) -> Address:
        if len(self._addresses) >= _MAX_URLS:
            self._addresses.clear()
        self._addresses[url] = address = parse_url(url, allows_proxy=self._allows_address is None)
        return address

    def _send_request(
        self,
        connection: Connection,
        method: str,
        address: Address,
        headers: Mapping[str, str],
        body: bytes,
    ) -> int:
        """Send a request; return the size of its body."""
        key = (method, address, *headers.items())
        head = self._heads.get(key)
        if head is None:
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            self._heads[key] = head = _build_head(method, address, headers)
        length = b"" if method == "GET" else b"Content-Length: %d\r\n" % len(body)
        connection.send(b"%b%b\r\n" % (head, length), body)
        return len(body)

    def _take_idle(self, key: tuple[object, ...]) -> Connection | None:
        connections = self._idle.get(key)
        while connections:
            connection = connections.pop()
            if not connection.is_closed:
                return connection
        return None

    def _add_idle(self, connection: Connection) -> None:
        key = self._busy.pop(connection, None)
        if key is not None and not connection.is_closed:
            self._idle.setdefault(key, []).append(connection)

    def _start_timer(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._check_interval, self._check_connections)

    def _check_connections(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for connection in list(self._busy):
            if not connection.is_draining:
                connection.check_silence(now, self._read_timeout)
            elif connection.is_closed or now - connection.last_active > _DRAIN_SECONDS:
                connection.abort()
                del self._busy[connection]
        for key, connections in list(self._idle.items()):
            for connection in connections:
                if now - connection.last_active > _KEEP_ALIVE:
                    connection.abort()
            self._idle[key] = [each for each in connections if not each.is_closed]
            if not self._idle[key]:
                del self._idle[key]
        if self._busy or self._idle:
            self._start_timer()

    async def _connect(self, address: Address) -> Connection:
        connection = Connection(self._shared)
        peer = address.proxy or address
        try:
            async with time_limit(_CONNECT_TIMEOUT):
                await self._open_transport(connection, peer.host, peer.port)
                if peer.is_tls:
                    await connection.encrypt(self._get_tls(), peer.host)
                if address.proxy is not None and address.is_tls:
                    await self._open_tunnel(connection, address)
        except BaseException as error:
            connection.abort()
            if isinstance(error, TimeoutError):
                reason = f"{peer.host} did not answer within {_CONNECT_TIMEOUT:g} s"
                raise CannotConnect(reason) from None
            if isinstance(error, ssl.SSLError):
                raise UntrustedServer(str(error)) from error
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
                raise TooManyOpenFiles(_describe(error)) from error
            if isinstance(error, OSError):
                raise CannotConnect(_describe(error)) from error
            raise
        return connection

    async def _open_transport(self, connection: Connection, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        if self._allows_address is None and _is_ip_address(host):
            await loop.create_connection(lambda: connection, host, port)
            return
        import aiohappyeyeballs

        addresses = await self._resolve(host, port)
        self._check_addresses(host, addresses)
        connected = await aiohappyeyeballs.start_connection(
            addresses, happy_eyeballs_delay=_ATTEMPT_DELAY, interleave=1
        )
        await loop.create_connection(lambda: connection, sock=connected)

    def _check_addresses(self, host: str, addresses: list[AddressInfo]) -> None:
        """Raise ForbiddenAddress if any of a host's addresses may not be contacted.

        The connection is made to the addresses checked here. Resolving the name again could give
        others, which is how DNS rebinding attacks work.
        """
        for *_, (address, *_) in addresses:
            if self._allows_address is not None and not self._allows_address(str(address)):
                raise ForbiddenAddress(f"{host} has the address {address}")

    async def _open_tunnel(self, connection: Connection, address: Address) -> None:
        proxy = address.proxy
        assert proxy is not None
        where = f"[{address.host}]" if ":" in address.host else address.host
        where = f"{where}:{address.port}"
        lines = [f"CONNECT {where} HTTP/1.1", f"Host: {where}"]
        if proxy.authorization:
            lines.append(f"Proxy-Authorization: {proxy.authorization}")
        head = "\r\n".join((*lines, "", "")).encode()
        connection.send(head, b"", is_tunnel=True)
        name = f"the proxy {proxy.host}:{proxy.port}"
        try:
            response = await connection.read_head()
        except HttpError as error:
            raise CannotConnect(f"{name} opened no tunnel: {error}") from error
        if response.status >= 300:
            raise CannotConnect(f"{name} answered {response.status}")
        if response.has_surplus:
            # The server says nothing before the handshake, so these bytes are not from it.
            raise CannotConnect(f"{name} sent more than its answer")
        await connection.encrypt(self._get_tls(), address.host)

    async def _resolve(self, host: str, port: int) -> list[AddressInfo]:
        """Look up a name. Requests that start together share one look-up."""
        loop = asyncio.get_running_loop()
        expires, lookup = self._names.get((host, port), (0.0, None))
        if lookup is None or loop.time() >= expires:
            lookup = loop.create_task(loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
            self._names[host, port] = (loop.time() + _NAME_SECONDS, lookup)
        try:
            return await asyncio.shield(lookup)
        except OSError:
            self._names.pop((host, port), None)
            raise

    def _get_tls(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
            # A common name is free text, but OpenSSL falls back to it if no host is named.
            self._tls.hostname_checks_common_name = False
            # Renegotiation in TLS 1.2 would block sending at arbitrary times.
            self._tls.options |= ssl.OP_NO_RENEGOTIATION
        return self._tls


def _build_head(method: str, address: Address, headers: Mapping[str, str]) -> bytes:
    """Build the head of a request without the length and the empty line."""
    lines = [f"{method} {address.target} HTTP/1.1", f"Host: {address.host_header}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if address.authorization and "authorization" not in map(str.lower, headers):
        lines.append(f"Authorization: {address.authorization}")
    if address.proxy is not None and address.proxy.authorization and not address.is_tls:
        lines.append(f"Proxy-Authorization: {address.proxy.authorization}")
    lines += ["Accept-Encoding: identity", ""]
    head = "\r\n".join(lines)
    if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1 or "\0" in head:
        raise InvalidRequest("a header has a line break or a null byte")
    return head.encode("utf-8", "replace")


def _is_ip_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdecimal()


def _describe(error: OSError) -> str:
    """Describe an error in the system's words, without the address that asyncio adds."""
    if isinstance(error, socket.gaierror) or not error.errno:
        return error.strerror or str(error)
    return os.strerror(error.errno)


_PORTS = {"http": 80, "https": 443}
_SAFE_IN_PATH = "/%:@!$&'()*+,;=~?"


class Proxy(Struct, frozen=True):
    """A proxy. `authorization` is the value of its header, "" if it needs none."""

    host: str
    port: int
    is_tls: bool
    authorization: str


class Address(Struct, frozen=True):
    """The destination of a request.

    `target` is path and query, or the whole URL for a plain request through a proxy.
    `authorization` is the value of the header for the user name in the URL, "" if there is none.
    """

    host: str
    port: int
    is_tls: bool
    target: str
    host_header: str
    authorization: str
    proxy: Proxy | None


def parse_url(url: str, *, allows_proxy: bool = True) -> Address:
    """Parse a URL, and find the proxy the environment names for it. Raises InvalidRequest."""
    parts = _split_url(url)
    host = _encode_host(parts.hostname or "")
    is_tls = parts.scheme == "https"
    port = parts.port or _PORTS[parts.scheme]
    shown_host = f"[{host}]" if ":" in host else host
    host_header = shown_host if port == _PORTS[parts.scheme] else f"{shown_host}:{port}"
    target = quote(parts.path or "/", safe=_SAFE_IN_PATH)
    if parts.query:
        target += f"?{quote(parts.query, safe=_SAFE_IN_PATH)}"
    proxy = _find_proxy(parts.scheme, host, f"{shown_host}:{port}") if allows_proxy else None
    if proxy is not None and not is_tls:
        target = f"http://{host_header}{target}"
    return Address(host, port, is_tls, target, host_header, _make_authorization(parts), proxy)


def _split_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in _PORTS and parts.hostname and parts.port != 0
    except ValueError:
        raise InvalidRequest("this is not a URL") from None
    if not is_valid:
        raise InvalidRequest("this is not a URL")
    return parts


def _encode_host(host: str) -> str:
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        raise InvalidRequest("this is not a URL") from None


def _make_authorization(parts: SplitResult) -> str:
    """Make the value of a Basic header from the user name in a URL, "" if there is none."""
    if parts.username is None:
        return ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {b64encode(pair.encode()).decode()}"


def is_this_machine(host: str) -> bool:
    return host.startswith("127.") or host in ("localhost", "::1")


def _find_proxy(scheme: str, host: str, host_and_port: str) -> Proxy | None:
    names_proxy = sys.platform == "darwin" or any(
        name.lower().endswith("_proxy") for name in os.environ
    )
    if is_this_machine(host) or not names_proxy:
        return None
    from urllib.request import getproxies, proxy_bypass  # takes about 20 ms

    # NO_PROXY may name a host, or one port of it.
    if proxy_bypass(host) or proxy_bypass(host_and_port):
        return None
    proxies = getproxies()
    url = proxies.get(scheme) or proxies.get("all")
    if not url:
        return None
    try:
        parts = _split_url(url if "://" in url else f"http://{url}")
    except InvalidRequest:
        raise InvalidRequest(
            f"the proxy in {scheme.upper()}_PROXY or ALL_PROXY is not an HTTP proxy"
        ) from None
    port = parts.port or _PORTS[parts.scheme]
    return Proxy(parts.hostname or "", port, parts.scheme == "https", _make_authorization(parts))
