"""Host names of a local web server: the answer to a page whose name another site points here."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
ALL_INTERFACES = frozenset({"0.0.0.0", "::", ""})


def is_own_host(
    header: str, host: str, port: int, *, names: Collection[str] = (), default_port: str = "80"
) -> bool:
    """Return True if a Host header names this server.

    Arguments:
        host: address that the server is bound to. port: its port.
        names: more names of the server, with any port.
        default_port: port of a header without one.
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
    """Return the name, in lower case and without brackets, and the port of a Host header."""
    name = header
    port_text = default_port
    if ":" in header and not header.endswith("]"):
        name, _, port_text = header.rpartition(":")
    return name.strip("[]").lower(), port_text


def is_ip_address(name: str) -> bool:
    """Return True for an IP address: another site can point its name here, but no address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
