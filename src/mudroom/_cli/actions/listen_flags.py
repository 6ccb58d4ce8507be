"""Flags of commands that listen for HTTP clients."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from ...driving import ListenOptions
from ...errors import UsageError

# Flags besides the address; not every command has them all.
_DETAILS = ("tls_cert", "tls_key", "is_behind_proxy", "host_names", "allowed_origins")


def take_listen_options(flags: dict[str, Any]) -> ListenOptions | None:
    """Take the listening flags out of the others; None without an address.

    Raises UsageError.
    """
    listen = flags.pop("listen")
    details = {name: value for name in _DETAILS if (value := flags.pop(name, None))}
    if not listen:
        if details:
            raise UsageError("these flags are for HTTP", remedy="Add --listen HOST:PORT.")
        return None
    host, port = parse_address(listen)
    names = tuple(name.lower() for name in details.pop("host_names", ()))
    origins = tuple(map(_check_origin, details.pop("allowed_origins", ())))
    return ListenOptions(host=host, port=port, host_names=names, allowed_origins=origins, **details)


def _check_origin(text: str) -> str:
    """Rewrite an origin as browsers send it. Raises UsageError."""
    parts = urlsplit(text.lower())
    origin = f"{parts.scheme}://{parts.netloc}"
    if parts.scheme not in ("http", "https") or not parts.netloc or origin != text.lower():
        raise UsageError(
            f"{text!r} is no origin",
            where="--allow-origin",
            remedy="Use SCHEME://HOST or SCHEME://HOST:PORT, https://app.example.com.",
        )
    return origin


def parse_address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT. Raises UsageError."""
    host, colon, port = text.rpartition(":")
    is_number = port.isascii() and port.isdecimal() and len(port) < 6
    if not (colon and host and is_number and int(port) < 65_536):
        raise UsageError(
            f"{text!r} is no address", where="--listen", remedy="Use HOST:PORT, 127.0.0.1:8700."
        )
    return host.strip("[]"), int(port)
