"""The flags of commands that listen for HTTP clients."""

from __future__ import annotations

from urllib.parse import urlsplit

from msgspec import Struct

from ...driving import ListenOptions
from ...errors import UsageError


class ListenFlags(Struct, frozen=True, kw_only=True):
    """Flags of a command that listens, as the user gave them.

    Arguments:
        listen: HOST:PORT. tls_cert, tls_key: files, "" for none.
        is_behind_proxy: a proxy does TLS. host_names: names of this server.
        allowed_origins: other sites whose pages may send requests.
    """

    listen: str
    tls_cert: str
    tls_key: str
    is_behind_proxy: bool
    host_names: tuple[str, ...]
    allowed_origins: tuple[str, ...] = ()

    @property
    def has_details(self) -> bool:
        """True if a flag beside the address was given."""
        return bool(
            self.tls_cert
            or self.tls_key
            or self.is_behind_proxy
            or self.host_names
            or self.allowed_origins
        )


def make_listen_options(flags: ListenFlags) -> ListenOptions:
    """Return where a server listens. Raises UsageError."""
    host, port = parse_address(flags.listen)
    return ListenOptions(
        host=host,
        port=port,
        tls_cert=flags.tls_cert,
        tls_key=flags.tls_key,
        is_behind_proxy=flags.is_behind_proxy,
        host_names=tuple(name.lower() for name in flags.host_names),
        allowed_origins=tuple(map(_check_origin, flags.allowed_origins)),
    )


def _check_origin(text: str) -> str:
    """Return an origin as browsers write it. Raises UsageError."""
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
    """Return the host and the port of HOST:PORT. Raises UsageError."""
    host, colon, port = text.rpartition(":")
    is_number = port.isascii() and port.isdecimal() and len(port) < 6
    if not (colon and host and is_number and int(port) < 65_536):
        raise UsageError(
            f"{text!r} is no address", where="--listen", remedy="Use HOST:PORT, 127.0.0.1:8700."
        )
    return host.strip("[]"), int(port)
