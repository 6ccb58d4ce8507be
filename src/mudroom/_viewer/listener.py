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
    """A socket that browsers can connect to. A server accepts the connections later."""

    host: str
    address: ViewerAddress
    socket: socket.socket


def listen(*, host: str = "127.0.0.1", port: int = FIRST_PORT) -> Listener:
    """Listen on the first free port from `port` on, 0 for any.

    Beyond loopback, only the token protects the sessions. Raises UsageError if no port is free or
    the host is not an address of this machine.
    """
    token = secrets.token_urlsafe(24)
    opened = _bind_first(host, port)
    bound_port: int = opened.getsockname()[1]
    url = f"http://{_format_host(host)}:{bound_port}/?token={token}"
    return Listener(host, ViewerAddress(url, bound_port, token), opened)


def _bind_first(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    candidates = [port] if port == 0 else range(port, min(port + PORT_TRIES, 65_536))
    for candidate in candidates:
        try:
            return socket.create_server((host, candidate), family=family, backlog=_BACKLOG)
        except OSError as error:
            if error.errno in _PORT_UNAVAILABLE:
                continue
            # The module adds the address, which is named anyway.
            reason = str(error.strerror).partition(" (while attempting")[0]
            raise UsageError(
                f"the viewer cannot listen: {reason}", where=f"{host}:{candidate}"
            ) from error
    raise UsageError(
        "no port is free for the viewer",
        where=f"{host}:{port}-{candidates[-1]}",
        remedy="Choose another one with --port.",
    )


def _format_host(host: str) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"}.get(host, host)
    return f"[{host}]" if ":" in host else host
