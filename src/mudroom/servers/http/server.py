"""HttpServer: sessions over HTTP, until it is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from aiohttp import web

from ..._core.ports import SessionStore
from ..._platform.connection_limits import LimitedConnections
from ..._platform.web_listener import open_listener
from ..fair_slots import FairSlots
from ..listening import (
    ServerAddress,
    check_listen_options,
    make_address,
    make_listen_error,
    make_tls_context,
)
from .access import add_headers, make_access_middleware, make_endpoint
from .event_stream import EventRoutes
from .hosted_session import ServerParts
from .hosted_sessions import HostedSessions
from .information_routes import InformationRoutes
from .metrics import Metrics
from .openai.chat import ChatRoutes
from .openai.responses import ResponseRoutes
from .openapi import make_openapi
from .proxy_login import make_proxy_login
from .records.inputs import InputRecords
from .records.sessions import SessionRecords
from .records.spending import SpendingRecords
from .records.state_file import StateFile
from .records.tokens import TokenRecords
from .request_log import make_request_log
from .route import Route
from .routes import (
    make_information_routes,
    make_openai_routes,
    make_session_routes,
)
from .session_routes import SessionRoutes
from .setup import CommandLine, ServerOptions

_CLEANUP_SECONDS = 1.0
"""Seconds that responses have to end after their streams were told to."""


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
        check_listen_options(options)
        self._login = make_proxy_login(options)
        self._options = options
        self._notify = notify
        self._stopping = asyncio.Event()
        self._closing = asyncio.Event()
        self._metrics = Metrics()
        self._state = StateFile(options.home)
        self._tokens = TokenRecords(self._state)
        self._slots = FairSlots(options.parallel, options.per_owner)
        records = SessionRecords(self._state)
        self._parts = parts = self._make_parts(command_line, store, records)
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

    def _make_parts(
        self, command_line: CommandLine, store: SessionStore, records: SessionRecords
    ) -> ServerParts:
        return ServerParts(
            options=self._options,
            command_line=command_line,
            store=store,
            sessions=records,
            inputs=InputRecords(self._state),
            spending=SpendingRecords(self._state),
            slots=self._slots,
            notify=self._notify,
        )

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
            endpoint = make_endpoint(route, self._tokens, self._options, self._login)
            app.router.add_route(route.method, route.path, endpoint)
        watching = asyncio.create_task(self._hosts.watch_others())
        try:
            async with AsyncExitStack() as stack:
                port = await self._listen(stack, app)
                try:
                    yield make_address(self._options, port)
                finally:
                    self._closing.set()
                    await _cancel(watching)
                    await self._hosts.close()
        finally:
            await _cancel(watching)
            self._state.close()

    async def _listen(self, stack: AsyncExitStack, app: web.Application) -> int:
        """Listen until the stack ends; return the port."""
        options = self._options
        connections = LimitedConnections(
            options.connection_limits, is_behind_proxy=options.is_behind_proxy
        )
        listener = open_listener(
            app,
            connections,
            (options.host, options.port),
            tls=make_tls_context(options),
            shutdown_seconds=_CLEANUP_SECONDS,
            logger=make_request_log(self._metrics, self._notify),
        )
        try:
            return await stack.enter_async_context(listener)
        except OSError as error:
            raise make_listen_error(options, error) from error

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


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
