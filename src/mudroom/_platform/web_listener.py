"""Serves an application of `aiohttp.web`, with limits on its connections.

Import this module late, because it imports that package.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from logging import Logger
from socket import socket
from typing import Any

from aiohttp import web
from aiohttp.log import server_logger
from aiohttp.typedefs import Middleware

from .connection_limits import LimitedConnections

# Connections the kernel queues until the server accepts them.
_BACKLOG = 128


@asynccontextmanager
async def open_listener(
    app: web.Application,
    connections: LimitedConnections,
    place: list[socket] | tuple[str, int],
    *,
    tls: ssl.SSLContext | None = None,
    shutdown_seconds: float,
    logger: Logger | None = None,
) -> AsyncGenerator[int]:
    """Serve an application inside the block; yield the port. Raises OSError if it cannot listen.

    `place` is either sockets already listening, or host and port. After the block, responses get
    `shutdown_seconds` to finish.
    """
    limits = connections.limits
    app.middlewares.insert(0, _make_middleware(connections))
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=logger or server_logger,
        shutdown_timeout=shutdown_seconds,
        handler_cancellation=True,
        keepalive_timeout=limits.idle_seconds,
    )
    listeners: list[asyncio.Server] = []
    try:
        await runner.setup()
        assert runner.server is not None
        loop = asyncio.get_running_loop()
        factory = connections.limit(runner.server)
        seconds = limits.head_seconds if tls else None
        where: list[dict[str, Any]] = (
            [{"host": place[0], "port": place[1]}]
            if isinstance(place, tuple)
            else [{"sock": each} for each in place]
        )
        for each in where:
            listener = await loop.create_server(
                factory, **each, backlog=_BACKLOG, ssl=tls, ssl_handshake_timeout=seconds
            )
            listeners.append(listener)
        yield listeners[-1].sockets[-1].getsockname()[1]
    finally:
        for listener in listeners:
            listener.close()
        await runner.cleanup()


def _make_middleware(connections: LimitedConnections) -> Middleware:
    @web.middleware
    async def work(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        transport = request.transport
        peer = transport.get_extra_info("peername") if transport else None
        with connections.work(peer):
            return await handler(request)

    return work
