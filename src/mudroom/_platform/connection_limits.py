"""Limits on the connections a server accepts, whichever framework answers the requests.

Web frameworks bound the requests they have read, but not connections that never send one: a client
that opens hundreds, each with half a header, would hold them and their descriptors for as long as
it likes. Every listener of mudroom accepts its connections here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

from msgspec import Struct

from .own_process import count_allowed_connections

_MAX_CONNECTIONS = 1000
# How long a refused client has to send something, after which it can read the answer.
_REFUSAL_SECONDS = 1.0
_REFUSAL_TEXT = b"The server has too many open connections. Close some, or try again later.\n"
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nRetry-After: 1\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_REFUSAL_TEXT), _REFUSAL_TEXT)
)


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    """Limits on the connections to one server.

    Arguments:
        head_seconds: time for the head of a request, from the opening of the connection or the
            first byte of a later head. The TLS handshake has the same time.
        idle_seconds: how long a connection may stay open between requests, and how long a client
            may pause while reading a response. Longer than the 60 s reverse proxies keep theirs, so
            that they do not send a request into a closing connection.
        total: concurrent connections; None for a quarter of the files the process may have
            open, at most 1,000.
        per_address: connections from one client address; None for half of `total`.

    Example:
        ConnectionLimits(head_seconds=5, total=200)
    """

    head_seconds: float = 20.0
    idle_seconds: float = 75.0
    total: int | None = None
    per_address: int | None = None


class LimitedConnections:
    """The connections to one server. A connection working on a request is never cut.

    At the limit, a new connection replaces the one that has waited longest without a request, so
    that half-open connections cannot lock others out. If all are working, the new one gets HTTP
    status 503. Behind a proxy, all clients have its address, so no limit per address applies.
    """

    def __init__(self, limits: ConnectionLimits, *, is_behind_proxy: bool = False) -> None:
        total = limits.total
        if total is None:
            total = count_allowed_connections(0.25, _MAX_CONNECTIONS)
        per_address = max(1, total // 2) if limits.per_address is None else limits.per_address
        self.limits = limits
        self._total = total
        self._per_address = total if is_behind_proxy else per_address
        # A dict for its order: the connection that has waited longest comes first.
        self._waiting: dict[_Connection, None] = {}
        self._open: set[_Connection] = set()
        self._by_peer: dict[object, _Connection] = {}
        self._by_address: Counter[object] = Counter()

    def limit(
        self, make_protocol: Callable[..., asyncio.Protocol]
    ) -> Callable[..., asyncio.Protocol]:
        """Wrap a protocol factory for `loop.create_server` so that the limits apply."""

        def make(*args: Any, **options: Any) -> asyncio.Protocol:
            return _Connection(self, make_protocol(*args, **options))

        return make

    @contextmanager
    def work(self, peer: object) -> Generator[None]:
        """Mark a connection as working, from the head of a request until its response is made.

        `peer` is the client's address as the transport reports it. An unknown one is ignored.
        """
        connection = self._by_peer.get(_make_key(peer))
        if connection is None:
            yield
            return
        connection.requests += 1
        self._waiting.pop(connection, None)
        connection.stop_timer()
        try:
            yield
        finally:
            connection.requests -= 1
            if not connection.requests and connection.is_open:
                self._waiting[connection] = None
                connection.start_timer(self.limits.idle_seconds)

    def add(self, connection: _Connection) -> bool:
        host = connection.host
        is_crowded = self._by_address.get(host, 0) >= self._per_address
        if is_crowded or len(self._open) >= self._total:
            candidates = (each for each in self._waiting if not is_crowded or each.host == host)
            oldest = next(candidates, None)
            if oldest is None:
                return False
            oldest.cut()
        self._open.add(connection)
        self._by_address[host] += 1
        self._by_peer[connection.peer] = connection
        self._waiting[connection] = None
        return True

    def remove(self, connection: _Connection) -> None:
        if connection not in self._open:
            return
        self._open.remove(connection)
        if self._by_peer.get(connection.peer) is connection:
            del self._by_peer[connection.peer]
        self._waiting.pop(connection, None)
        self._by_address[connection.host] -= 1
        if not self._by_address[connection.host]:
            del self._by_address[connection.host]


class _Connection(asyncio.Protocol):
    """A connection that passes everything on to the framework's protocol.

    `requests` counts requests whose heads have arrived but whose responses are not yet made.
    """

    def __init__(self, connections: LimitedConnections, protocol: asyncio.Protocol) -> None:
        self.peer: object = None
        self.host: object = None
        self.requests = 0
        self.is_open = False
        self._connections = connections
        self._protocol = protocol
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._has_head_begun = True
        self._unsent = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transports of some event loops do not inherit from asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self.peer = peer = _make_key(transport.get_extra_info("peername"))
        self.host = cast("tuple[object, ...]", peer)[0] if isinstance(peer, tuple) else peer
        self.is_open = self._connections.add(self)
        if self.is_open:
            self.start_timer(self._connections.limits.head_seconds, is_head=True)
            self._protocol.connection_made(transport)
        else:
            self.start_timer(_REFUSAL_SECONDS, is_head=True)

    def data_received(self, data: bytes) -> None:
        if not self.is_open:
            self._refuse()
            return
        if not self.requests and not self._has_head_begun:
            self.start_timer(self._connections.limits.head_seconds, is_head=True)
        self._protocol.data_received(data)

    def _refuse(self) -> None:
        """Answer once the client has sent something: before that, it could not read an answer."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.write(_REFUSAL)
            transport.close()

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received() if self.is_open else None

    def connection_lost(self, exc: Exception | None) -> None:
        self.stop_timer()
        self._connections.remove(self)
        if self.is_open:
            self.is_open = False
            self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        if self.is_open:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self.is_open:
            self._protocol.resume_writing()

    def start_timer(self, seconds: float, *, is_head: bool = False) -> None:
        """Cut the connection after this time, unless a request begins."""
        self.stop_timer()
        self._has_head_begun = is_head
        self._timer = asyncio.get_running_loop().call_later(seconds, self._end_wait, seconds)

    def stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_wait(self, seconds: float) -> None:
        unsent = self._transport.get_write_buffer_size() if self._transport else 0
        if unsent and unsent != self._unsent and not self._has_head_begun:
            # The client is still reading its response.
            self._unsent = unsent
            self.start_timer(seconds)
            return
        self.cut()

    def cut(self) -> None:
        self._connections.remove(self)
        if self._transport is not None:
            self._transport.abort()


def _make_key(peer: object) -> object:
    # An IPv6 address has more fields than host and port.
    return cast("tuple[object, ...]", peer)[:2] if isinstance(peer, tuple) else peer
