"""HttpServer: sessions over HTTP, until it is told to stop."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

from aiohttp import web
from msgspec import Struct

from ..._core.ports import SessionStore
from ..._platform.own_hosts import LOOPBACK
from ...errors import UsageError
from .access import add_headers, make_access_middleware, make_endpoint
from .event_stream import EventRoutes
from .fair_slots import FairSlots
from .hosted_session import ServerParts
from .hosted_sessions import HostedSessions
from .information_routes import InformationRoutes
from .metrics import Metrics
from .openai.chat import ChatRoutes
from .openai.responses import ResponseRoutes
from .openapi import make_openapi
from .records.inputs import InputRecords
from .records.sessions import SessionRecords
from .records.spending import SpendingRecords
from .records.state_file import StateFile
from .records.tokens import TokenRecords
from .route import Route
from .routes import make_information_routes, make_openai_routes, make_session_routes
from .session_routes import SessionRoutes
from .setup import CommandLine, ServerOptions

_CLEANUP_SECONDS = 1.0
"""Seconds that responses have to end after their streams were told to."""


class ServerAddress(Struct, frozen=True):
    """Address of a running server."""

    url: str
    port: int


class HttpServer:
    """The server.

    Arguments:
        store: has the sessions. notify: takes a line for stderr.

    Attributes:
        routes: all paths.
    """

    def __init__(
        self,
        command_line: CommandLine,
        options: ServerOptions,
        store: SessionStore,
        notify: Callable[[str], object],
    ) -> None:
        check_options(options)
        self._options = options
        self._notify = notify
        self._stopping = asyncio.Event()
        self._closing = asyncio.Event()
        self._metrics = Metrics()
        self._state = StateFile(options.home)
        self._tokens = TokenRecords(self._state)
        self._slots = FairSlots(options.parallel, options.per_owner)
        records = SessionRecords(self._state)
        parts = ServerParts(
            options,
            command_line,
            store,
            InputRecords(self._state),
            SpendingRecords(self._state),
            self._slots,
            notify,
        )
        self._hosts = HostedSessions(parts, self._state, records)
        is_draining = self._stopping.is_set
        information = InformationRoutes(parts, self._hosts, self._metrics, is_draining)
        sessions = SessionRoutes(parts, records, self._hosts, information.find_agents, is_draining)
        events = EventRoutes(
            sessions, parts, self._hosts, self._tokens, self._metrics, self._closing
        )
        self.routes: list[Route] = [
            *make_session_routes(sessions, events),
            *make_openai_routes(
                ChatRoutes(sessions, parts, self._hosts, self._closing),
                ResponseRoutes(sessions, parts, self._hosts, self._closing),
            ),
            *make_information_routes(information),
        ]
        information.description = make_openapi(self.routes)

    def stop(self) -> bool:
        """Start no more prompts, let those that work end, and end. Return False if it does."""
        if self._stopping.is_set():
            return False
        self._stopping.set()
        return True

    async def serve(self, on_open: Callable[[ServerAddress], object]) -> None:
        """Serve until `stop` is called. Raises UsageError if the address cannot be used."""
        async with self.open() as address:
            on_open(address)
            await self._stopping.wait()
            await self._drain()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[ServerAddress]:
        """Serve in the `async with` block. What works at its end, a later process continues."""
        app = web.Application(
            middlewares=[make_access_middleware(self._options, self._metrics, self._notify)],
            client_max_size=self._options.max_body,
        )
        app.on_response_prepare.append(add_headers)
        for route in self.routes:
            endpoint = make_endpoint(route, self._tokens, self._options)
            app.router.add_route(route.method, route.path, endpoint)
        runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=_CLEANUP_SECONDS,
            handler_cancellation=True,
            keepalive_timeout=75.0,
        )
        await runner.setup()
        watching = asyncio.create_task(self._hosts.watch_others())
        try:
            port = await self._listen(runner)
            scheme = "https" if self._options.tls_cert else "http"
            yield ServerAddress(f"{scheme}://{format_host(self._options.host)}:{port}", port)
        finally:
            self._closing.set()
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await self._hosts.close()
            await runner.cleanup()
            self._state.close()

    async def _listen(self, runner: web.AppRunner) -> int:
        options = self._options
        try:
            site = web.TCPSite(
                runner, options.host, options.port, ssl_context=make_tls_context(options)
            )
            await site.start()
        except OSError as error:
            raise UsageError(
                f"the server cannot listen: {error.strerror or error}",
                where=f"{options.host}:{options.port}",
                remedy="Choose another address with --listen.",
            ) from error
        return runner.addresses[-1][1]

    async def _drain(self) -> None:
        self._slots.close()
        if self._slots.working:
            self._notify(
                f"The server stops. Prompts that work have {self._options.drain_seconds:g} s to "
                "end; the others continue when it is started again."
            )
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.drain_seconds):
                await self._slots.wait_until_idle()


def check_options(options: ServerOptions) -> None:
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
            where=f"--listen {options.host}:{options.port}",
            remedy="Use --tls-cert and --tls-key, or --behind-proxy if a proxy does TLS.",
        )


def make_tls_context(options: ServerOptions) -> ssl.SSLContext | None:
    """Return the context for TLS, None without it. Raises UsageError."""
    if not options.tls_cert:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(options.tls_cert, options.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"the certificate cannot be used: {error}",
            where=f"{options.tls_cert}, {options.tls_key}",
            remedy="Name PEM files with --tls-cert and --tls-key.",
        ) from error
    return context


def format_host(host: str) -> str:
    """Return a host as an address that clients on this machine can use."""
    if host in ("0.0.0.0", "::", "localhost"):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
