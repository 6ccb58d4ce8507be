"""Listens for the viewer, so that its address is known before the web server is imported."""

from __future__ import annotations

import errno
import secrets
import socket

from msgspec import Struct

from ..errors import UsageError

FIRST_PORT = 7575
# Number of ports tried, counting from the first.
PORT_TRIES = 25

# Connections the kernel queues until the server accepts them.
_BACKLOG = 128

_PORT_UNAVAILABLE = frozenset({errno.EADDRINUSE, errno.EACCES})


class ViewerAddress(Struct, frozen=True):
    """The address of a viewer; `url` contains the token."""

    url: str
    port: int
    token: str


class Listener(Struct, frozen=True):
    """Sockets that browsers can connect to. A server accepts the connections later."""

    host: str
    address: ViewerAddress
    sockets: list[socket.socket]

    def close(self) -> None:
        for each in self.sockets:
            each.close()


def listen(*, host: str = "127.0.0.1", port: int = FIRST_PORT) -> Listener:
    """Listen on the first free port from `port` on, 0 for any.

    Beyond loopback, only the token protects the sessions. Raises UsageError if no port is free or
    the host is not an address of this machine.
    """
    token = secrets.token_urlsafe(24)
    sockets = _bind_first(host, port)
    bound_port: int = sockets[-1].getsockname()[1]
    url = f"http://{_format_host(host)}:{bound_port}/?token={token}"
    return Listener(host, ViewerAddress(url, bound_port, token), sockets)


def _bind_first(host: str, port: int) -> list[socket.socket]:
    candidates = [port] if port == 0 else range(port, min(port + PORT_TRIES, 65_536))
    for candidate in candidates:
        try:
            return _bind(host, candidate)
        except OSError as error:
            if error.errno in _PORT_UNAVAILABLE:
                continue
            raise UsageError(
                f"the viewer cannot listen: {error.strerror}", where=f"{host}:{candidate}"
            ) from error
    raise UsageError(
        "no port is free for the viewer",
        where=f"{host}:{port}-{candidates[-1]}",
        remedy="Choose another one with --port.",
    )


def _bind(host: str, port: int) -> list[socket.socket]:
    """Bind sockets to all addresses of a host name, on one port. Raises OSError.

    An address family this machine lacks is skipped as long as another one remains.
    """
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                bound = socket.socket(family, kind, protocol)
            except OSError as error:
                missing = error
                continue
            sockets.append(bound)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            first_port: int = sockets[0].getsockname()[1]
            bound.bind((address[0], port or first_port, *address[2:]))
            bound.listen(_BACKLOG)
    except BaseException:
        for each in sockets:
            each.close()
        raise
    if missing and not sockets:
        raise missing
    return sockets


def _format_host(host: str) -> str:
    # The socket for `::` takes no IPv4.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"}.get(host, host)
    return f"[{host}]" if ":" in host else host
