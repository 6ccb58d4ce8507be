"""Addresses of HTTP servers: where they listen, and which requests are meant for them."""

from __future__ import annotations

import os
import socket
import ssl

from msgspec import Struct

from .._platform.connection_limits import ConnectionLimits
from .._platform.own_hosts import LOOPBACK, is_own_host
from ..errors import UsageError

_BACKLOG = 128
_PLACE = " (while attempting"
"""Begin of the address in a reason of the module socket."""
_SHOWN_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"}
"""Addresses that clients on this machine can use; a socket for `::` takes no IPv4."""


class ListenOptions(Struct, frozen=True, kw_only=True):
    """Where a server listens.

    Arguments:
        host, port: address to listen on; port 0 is any.
        tls_cert, tls_key: files; "" for none.
        is_behind_proxy: a proxy receives the requests and does TLS.
        host_names: names of this server beside its address.
        connection_limits: of the connections that clients open.
    """

    host: str = "127.0.0.1"
    port: int = 8700
    tls_cert: str = ""
    tls_key: str = ""
    is_behind_proxy: bool = False
    host_names: tuple[str, ...] = ()
    connection_limits: ConnectionLimits = ConnectionLimits()


class ListenFlags(Struct, frozen=True, kw_only=True):
    """Flags of a command that listens, as the user gave them.

    Arguments:
        listen: HOST:PORT. tls_cert, tls_key: files, "" for none.
        is_behind_proxy: a proxy does TLS. host_names: names of this server.
    """

    listen: str
    tls_cert: str
    tls_key: str
    is_behind_proxy: bool
    host_names: tuple[str, ...]

    @property
    def has_details(self) -> bool:
        """True if a flag beside the address was given."""
        return bool(self.tls_cert or self.tls_key or self.is_behind_proxy or self.host_names)


class ServerAddress(Struct, frozen=True):
    """Address of a running server."""

    url: str
    port: int


class Refusal(Struct, frozen=True):
    """A request that is not meant for the server. `status`: of HTTP. `code`: a short name."""

    status: int
    code: str
    message: str


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
    )


def parse_address(text: str) -> tuple[str, int]:
    """Return the host and the port of HOST:PORT. Raises UsageError."""
    host, colon, port = text.rpartition(":")
    is_number = port.isascii() and port.isdecimal() and len(port) < 6
    if not (colon and host and is_number and int(port) < 65_536):
        raise UsageError(
            f"{text!r} is no address", where="--listen", remedy="Use HOST:PORT, 127.0.0.1:8700."
        )
    return host.strip("[]"), int(port)


def check_listen_options(options: ListenOptions) -> None:
    """Raise UsageError for an address that is not protected."""
    if bool(options.tls_cert) != bool(options.tls_key):
        raise UsageError(
            "TLS needs a certificate and a key", remedy="Use --tls-cert and --tls-key."
        )
    if options.is_behind_proxy and not options.host_names:
        raise UsageError(
            "the name that clients use for the proxy is missing", remedy="Name it with --host-name."
        )
    is_local = options.host in LOOPBACK
    if not (is_local or options.tls_cert or options.is_behind_proxy):
        raise UsageError(
            "tokens and answers would cross the network as plain text",
            where=f"--listen {_join(options.host, options.port)}",
            remedy="Use --tls-cert and --tls-key, or --behind-proxy if a proxy does TLS.",
        )


def make_tls_context(options: ListenOptions) -> ssl.SSLContext | None:
    """Return the context for TLS, None without it. Raises UsageError."""
    if not options.tls_cert:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(options.tls_cert, options.tls_key)
    except OSError as error:
        reason = str(error)
        if error.errno and not isinstance(error, ssl.SSLError):
            reason = os.strerror(error.errno)
        raise UsageError(
            f"the certificate cannot be used: {reason}",
            where=f"{options.tls_cert}, {options.tls_key}",
            remedy="Name PEM files with --tls-cert and --tls-key.",
        ) from error
    return context


def make_listen_error(options: ListenOptions, error: OSError) -> UsageError:
    """Return the error for an address that cannot be used."""
    reason = str(error.strerror or error)
    if error.errno and error.errno > 0:  # a number below 0 is from the search for a name
        reason = os.strerror(error.errno)
    return UsageError(
        f"the server cannot listen: {reason.partition(_PLACE)[0]}",
        where=_join(options.host, options.port),
        remedy="Choose another address with --listen.",
    )


def open_socket(options: ListenOptions) -> socket.socket:
    """Return a socket that listens. Raises UsageError."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        return socket.create_server((options.host, options.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise make_listen_error(options, error) from error


def make_address(options: ListenOptions, port: int) -> ServerAddress:
    """Return the address of a server that listens on a port."""
    scheme = "https" if options.tls_cert else "http"
    host = _SHOWN_HOSTS.get(options.host, options.host)
    return ServerAddress(f"{scheme}://{_join(host, port)}", port)


def find_refusal(
    options: ListenOptions, port: int, *, host: str, origin: str | None
) -> Refusal | None:
    """Return why a request is refused: it is for another host, or from a page of another site.

    Arguments:
        port: that the request came to.
        host, origin: headers of the request.
    """
    is_tls = bool(options.tls_cert) or options.is_behind_proxy
    default_port = "443" if is_tls else "80"
    names = options.host_names
    if not is_own_host(host, options.host, port, names=names, default_port=default_port):
        return Refusal(
            421,
            "wrong_host",
            "the server is not known by this host name. Use its address, or start it with "
            "--host-name",
        )
    if origin is not None and origin != f"http{'s' if is_tls else ''}://{host}":
        return Refusal(403, "wrong_origin", "a page of another site sent this request")
    return None


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
