"""A local web server's host names, to refuse pages whose name another site points here."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
ALL_INTERFACES = frozenset({"0.0.0.0", "::", ""})


def is_own_host(
    header: str, host: str, port: int, *, names: Collection[str] = (), default_port: str = "80"
) -> bool:
    """Return whether a Host header names this server, which is bound to `host` and `port`.

    It may also name one of `names`, with any port. `default_port` applies to a header without one.
    """
    name, port_text = split_host(header, default_port)
    if name in names:
        return True
    if port_text != str(port):
        return False
    if name in LOOPBACK or name == host.lower():
        return True
    if host not in ALL_INTERFACES:
        return False
    return is_ip_address(name) or name == socket.gethostname().lower()


def split_host(header: str, default_port: str) -> tuple[str, str]:
    """Split a Host header into the name, in lower case and without brackets, and the port."""
    name = header
    port_text = default_port
    if ":" in header and not header.endswith("]"):
        name, _, port_text = header.rpartition(":")
    return name.strip("[]").lower(), port_text


def is_ip_address(name: str) -> bool:
    """Return whether a name is an IP address, which another site cannot point here."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
