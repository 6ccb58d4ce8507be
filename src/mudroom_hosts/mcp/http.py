"""Messages to and from hosts over HTTP.

Import this module late: it imports the package `mcp`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

import uvicorn
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import INVALID_REQUEST
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from mudroom.driving import Listener, Refusal
from mudroom.errors import MudroomError
from mudroom.ports import time_limit

from .host_tasks import OWNER_KEY, HostTasks, Owner

PATH = "/mcp"
FindOwner = Callable[[str], Awaitable[Owner | Refusal]]
"""Finds a token's owner, or why the token cannot be used."""

_MAX_BODY = 4 << 20  # bytes of a message. The package reads it whole and sets no limit.
_BODY_SECONDS = 30.0  # seconds for a message to arrive
_CLEANUP_SECONDS = 1  # time for responses to finish once their tasks have ended
_LOCAL_ORIGIN = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
"""Pages on this machine, on any port. They need a token like all others."""
_HEADERS = [
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
]

logging.getLogger("uvicorn").addHandler(logging.NullHandler())  # otherwise Python prints its errors


class _WebServer(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield  # the command line handles signals


class _Access:
    """Application that serves hosts with a token, and refuses all other requests."""

    def __init__(
        self,
        manager: StreamableHTTPSessionManager,
        listener: Listener,
        find_owner: FindOwner,
        notify: Callable[[str], object],
    ) -> None:
        options = listener.options
        self._is_local = options.is_local
        # Browsers first ask, without a token, whether a page may send a request's headers.
        self._app = CORSMiddleware(
            self._answer,
            allow_origins=options.allowed_origins,
            allow_origin_regex=_LOCAL_ORIGIN if self._is_local else None,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=("Mcp-Session-Id",),
        )
        self._manager = manager
        self._listener = listener
        self._find_owner = find_owner
        self._notify = notify

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._listener.work(scope["client"]):
            await self._app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            owner = await self._check(scope)
            if isinstance(owner, Refusal):
                await _make_response(owner)(scope, receive, send)
                return
            body = await _read_body(receive)
            if isinstance(body, Refusal):
                await _make_response(body)(scope, receive, send)
                return
            receive = _repeat_body(body, receive)
            scope[OWNER_KEY] = owner
            token = AccessToken(token="", client_id=owner.name, scopes=[])
            scope["user"] = AuthenticatedUser(token)  # binds a session to its owner
            await self._manager.handle_request(scope, receive, send)
        except Exception as error:
            self._notify(f"{scope['method']} {scope['path']}: {type(error).__name__}: {error}")
            raise

    async def _check(self, scope: Scope) -> Owner | Refusal:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        origin = headers.get("origin")
        if origin and self._is_local and re.fullmatch(_LOCAL_ORIGIN, origin):
            origin = None
        if refusal := self._listener.find_refusal(host=host, origin=origin):
            return refusal
        if scope["path"] != PATH:
            return Refusal(404, "not_found", f"the address of the server ends with {PATH}")
        kind, _, secret = headers.get("authorization", "").partition(" ")
        return await self._find_owner(secret.strip() if kind.lower() == "bearer" else "")


async def serve_http(
    server: Server[Any],
    host_tasks: HostTasks,
    opened: socket.socket,
    listener: Listener,
    find_owner: FindOwner,
    stop: asyncio.Event,
    notify: Callable[[str], object],
) -> None:
    """Serve hosts until `stop` is set; then all tasks end.

    The socket is closed at the end. Raises MudroomError if the server ends without `stop`.
    """
    manager = StreamableHTTPSessionManager(server)
    options = listener.options
    web = _WebServer(
        uvicorn.Config(
            _Access(manager, listener, find_owner, notify),
            # h11 bounds a request's headers, httptools does not.
            http=cast("type[asyncio.Protocol]", listener.limit(H11Protocol)),
            access_log=False,
            headers=_HEADERS,
            lifespan="off",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            ssl_certfile=options.tls_cert or None,
            ssl_keyfile=options.tls_key or None,
            timeout_graceful_shutdown=_CLEANUP_SECONDS,
            timeout_keep_alive=round(options.connection_limits.idle_seconds),
            ws="none",
        )
    )
    async with manager.run():
        serving = asyncio.create_task(web.serve([opened]))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            has_failed = serving.done()
            await host_tasks.close()  # before connections end, so that calls return
        finally:
            web.should_exit = True
            stopping.cancel()
            await asyncio.gather(serving, stopping, return_exceptions=True)
    if has_failed:
        error = serving.exception()
        reason = f": {type(error).__name__}: {error}" if error else ""
        raise MudroomError(f"the HTTP server has failed{reason}", remedy="Start it again.")


async def _read_body(receive: Receive) -> bytes | Refusal:
    parts: list[bytes] = []
    size = 0
    try:
        async with time_limit(_BODY_SECONDS):
            while (message := await receive())["type"] == "http.request":
                part = message.get("body", b"")
                size += len(part)
                if size <= _MAX_BODY:  # Read the rest too, or the client sees no answer.
                    parts.append(part)
                if not message.get("more_body"):
                    break
    except TimeoutError:
        return Refusal(408, "too_slow", f"the body did not come within {_BODY_SECONDS:g} s")
    if size > _MAX_BODY:
        text = f"the body of the request is larger than {_MAX_BODY >> 20} MiB"
        return Refusal(413, "too_large", text)
    return b"".join(parts)


def _repeat_body(body: bytes, receive: Receive) -> Receive:
    """Make a function that returns a body already read, then what follows it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def repeat() -> Message:
        return messages.pop() if messages else await receive()

    return repeat


def _make_response(refusal: Refusal) -> JSONResponse:
    error = {"code": INVALID_REQUEST, "message": refusal.message, "data": {"code": refusal.code}}
    headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
    body = {"jsonrpc": "2.0", "id": None, "error": error}
    return JSONResponse(body, refusal.status, headers)
