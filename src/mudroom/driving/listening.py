"""Listener: an HTTP server's address, and the connections and requests it accepts."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from .._platform.connection_limits import ConnectionLimits, LimitedConnections
from .._platform.own_hosts import LOOPBACK, is_own_host
from ..errors import UsageError

if TYPE_CHECKING:
    import asyncio
    from logging import Logger

    from aiohttp import web

_BACKLOG = 128
_CLEANUP_SECONDS = 1.0
"""Time that responses have to finish once the server has stopped."""
_PLACE = " (while attempting"
"""Text before the address in the error messages of the module socket."""
_SHOWN_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"}
"""Addresses to show to clients on this machine; a socket for `::` does not accept IPv4."""


class ListenOptions(Struct, frozen=True, kw_only=True):
    """Address a server listens on, with its limits.

    Arguments:
        host, port: address to listen on; port 0 picks any free port.
        tls_cert, tls_key: PEM files; "" for none.
        is_behind_proxy: a proxy receives the requests and handles TLS.
        host_names: further names of this server.
        allowed_origins: other sites whose pages may send requests, such as "https://app.example".
        connection_limits: limits on the connections that clients open.

    Example:
        ListenOptions(host="0.0.0.0", is_behind_proxy=True, host_names=("mud.example",))
    """

    host: str = "127.0.0.1"
    port: int = 8700
    tls_cert: str = ""
    tls_key: str = ""
    is_behind_proxy: bool = False
    host_names: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    connection_limits: ConnectionLimits = ConnectionLimits()

    @property
    def is_local(self) -> bool:
        """True if only programs on this machine can connect."""
        return self.host in LOOPBACK and not self.is_behind_proxy


class ServerAddress(Struct, frozen=True):
    """Address of a running server.

    Arguments:
        url: URL for clients on this machine, without a path.
        port: the actual port, even if the options asked for any.

    Example:
        ServerAddress("http://127.0.0.1:8700", 8700)
    """

    url: str
    port: int


class Refusal(Struct, frozen=True):
    """The reason why a server refuses a request.

    Arguments:
        status: HTTP status code.
        code: short name of the reason, such as "wrong_host".
        message: the fault and its remedy.

    Example:
        Refusal(401, "wrong_token", "the token is missing or wrong")
    """

    status: int
    code: str
    message: str


class Listener:
    """Opens an HTTP server's socket, and guards it.

    Refuses addresses at which tokens would cross a network as plain text, and requests sent by
    pages of other sites. Limits clients' connections, so that idle ones do not lock others out.

    Arguments:
        options: the address, and its limits.

    Attributes:
        options: as passed.

    Errors: UsageError for an unprotected address.

    Example:
        from aiohttp import web

        async def greet(request: web.Request) -> web.Response:
            origin = request.headers.get("Origin")
            refusal: Refusal | None = listener.find_refusal(host=request.host, origin=origin)
            return web.Response(text=refusal.message if refusal else "Hello.")

        listener = Listener(ListenOptions(port=0))
        app = web.Application()
        app.router.add_get("/", greet)
        async with listener.serve(app) as address:
            print(address.url)
    """

    def __init__(self, options: ListenOptions) -> None:
        check_listen_options(options)
        self.options = options
        self._connections = LimitedConnections(
            options.connection_limits, is_behind_proxy=options.is_behind_proxy
        )
        self._port = options.port

    @property
    def address(self) -> ServerAddress:
        """The address for clients. Its port is known once the listener is open."""
        options = self.options
        scheme = "https" if options.tls_cert else "http"
        host = _SHOWN_HOSTS.get(options.host, options.host)
        return ServerAddress(f"{scheme}://{_join(host, self._port)}", self._port)

    @asynccontextmanager
    async def serve(
        self, app: web.Application, *, logger: Logger | None = None
    ) -> AsyncGenerator[ServerAddress]:
        """Serve an aiohttp application during the `async with` block; yield the address.

        Arguments:
            app: the application. After the block its responses have a second to finish.
            logger: receives aiohttp's errors; None for aiohttp's own logger.

        Raises UsageError if the address or the certificate cannot be used.
        """
        from .._platform.web_listener import open_listener  # imports aiohttp

        options = self.options
        async with AsyncExitStack() as stack:
            listening = open_listener(
                app,
                self._connections,
                (options.host, options.port),
                tls=make_tls_context(options),
                shutdown_seconds=_CLEANUP_SECONDS,
                logger=logger,
            )
            try:
                self._port = await stack.enter_async_context(listening)
            except OSError as error:
                raise make_listen_error(options, error) from error
            yield self.address

    def open_socket(self) -> socket.socket:
        """Open a listening socket for a server other than an aiohttp application.

        Such a server passes its protocol to `limit`, and marks its requests with `work`. Raises
        UsageError if the address or the certificate cannot be used.
        """
        options = self.options
        make_tls_context(options)  # its error is clearer than those of web servers
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        address = (options.host, options.port)
        try:
            opened = socket.create_server(address, family=family, backlog=_BACKLOG)
        except OSError as error:
            raise make_listen_error(options, error) from error
        self._port = opened.getsockname()[1]
        return opened

    def limit(
        self, make_protocol: Callable[..., asyncio.Protocol]
    ) -> Callable[..., asyncio.Protocol]:
        """Make a protocol factory for `loop.create_server` that limits connections.

        Arguments:
            make_protocol: the web server's own factory.
        """
        return self._connections.limit(make_protocol)

    def work(self, peer: object) -> AbstractContextManager[None]:
        """Mark the time from a request's headers to its response, as a context manager.

        Meanwhile its connection is not dropped.

        Arguments:
            peer: the client's address, as the transport reports it.
        """
        return self._connections.work(peer)

    def find_refusal(self, *, host: str, origin: str | None) -> Refusal | None:
        """Find why a request is refused: it is for another host, or from another site's page.

        Arguments:
            host: the header Host, "" if it is missing.
            origin: the header Origin, None if it is missing.
        """
        options = self.options
        is_tls = bool(options.tls_cert) or options.is_behind_proxy
        default_port = "443" if is_tls else "80"
        names = options.host_names
        if not is_own_host(host, options.host, self._port, names=names, default_port=default_port):
            return Refusal(
                421,
                "wrong_host",
                "the server is not known by this host name. Use its address, or start it with "
                "--host-name",
            )
        own_origin = f"http{'s' if is_tls else ''}://{host}"
        if origin is not None and origin not in (own_origin, *options.allowed_origins):
            return Refusal(403, "wrong_origin", "a page of another site sent this request")
        return None


def check_listen_options(options: ListenOptions) -> None:
    """Raise UsageError for an unprotected address."""
    if bool(options.tls_cert) != bool(options.tls_key):
        raise UsageError(
            "TLS needs a certificate and a key", remedy="Use --tls-cert and --tls-key."
        )
    if options.is_behind_proxy and not options.host_names:
        raise UsageError(
            "the name that clients use for the proxy is missing", remedy="Name it with --host-name."
        )
    if not (options.is_local or options.tls_cert or options.is_behind_proxy):
        raise UsageError(
            "tokens and answers would cross the network as plain text",
            where=f"--listen {_join(options.host, options.port)}",
            remedy="Use --tls-cert and --tls-key, or --behind-proxy if a proxy does TLS.",
        )


def make_tls_context(options: ListenOptions) -> ssl.SSLContext | None:
    """Make the TLS context, None if TLS is off. Raises UsageError."""
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
    """Make the error for an address that cannot be used."""
    reason = str(error.strerror or error)
    if error.errno and error.errno > 0:  # negative numbers come from name resolution
        reason = os.strerror(error.errno)
    return UsageError(
        f"the server cannot listen: {reason.partition(_PLACE)[0]}",
        where=_join(options.host, options.port),
        remedy="Choose another address with --listen.",
    )


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
