"""The viewer's web server: a static page, the list of sessions and their events, read-only."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar
from urllib.parse import urlencode

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from .._platform.connection_limits import ConnectionLimits, LimitedConnections
from .._platform.own_hosts import is_own_host
from .._platform.time_limits import time_limit
from .._platform.web_listener import open_listener
from ..errors import JournalError, UsageError
from .export import load_page_files
from .listener import FIRST_PORT, Listener, ViewerAddress, listen
from .sources import MAX_LISTED, EventPage, SessionSource, encode_page
from .work import WorkQuery

T = TypeVar("T")

# Seconds between checks of a session being written.
POLL_SECONDS = 0.25

# Without changes for this long, a live stream sends a comment and reads the session anyway,
# because file times are too coarse to be relied on.
KEEPALIVE_SECONDS = 3.0

# Time that responses get to finish once the viewer is closed.
_CLEANUP_SECONDS = 0.2

_CONTENT_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


@asynccontextmanager
async def open_viewer(
    source: SessionSource, *, host: str = "127.0.0.1", port: int = FIRST_PORT
) -> AsyncGenerator[ViewerAddress]:
    """Serve the viewer while the block runs. Raises UsageError like `listen`."""
    async with serve(source, listen(host=host, port=port)) as address:
        yield address


@asynccontextmanager
async def serve(
    source: SessionSource, listener: Listener, limits: ConnectionLimits | None = None
) -> AsyncGenerator[ViewerAddress]:
    """Serve the viewer while the block runs, then close the listener."""
    token = listener.address.token
    app = web.Application(middlewares=[make_auth_middleware(token, listener.host)])
    app.on_response_prepare.append(add_security_headers)
    handlers = _Handlers(source)
    app.add_routes(
        [
            web.get("/", handlers.send_file),
            web.get("/api/sessions", handlers.send_sessions),
            web.get("/api/sessions/{session}/events", handlers.send_events),
            web.get("/api/sessions/{session}/live", handlers.stream_events),
            web.get("/api/sessions/{session}/work", handlers.send_work),
            web.get("/{name}", handlers.send_file),
        ]
    )
    connections = LimitedConnections(limits or ConnectionLimits())
    try:
        async with open_listener(
            app, connections, listener.sockets, shutdown_seconds=_CLEANUP_SECONDS
        ):
            try:
                yield listener.address
            finally:
                handlers.closing.set()
    finally:
        listener.close()


class _Handlers:
    def __init__(self, source: SessionSource) -> None:
        self._source = source
        self._files = load_page_files()
        self.closing = asyncio.Event()

    async def send_file(self, request: web.Request) -> web.Response:
        name = request.match_info.get("name", "index.html")
        content_type = _CONTENT_TYPES.get(name[name.rfind(".") :])
        if name not in self._files or content_type is None:
            raise web.HTTPNotFound(text="There is no such page.\n")
        return web.Response(body=self._files[name], content_type=content_type, charset="utf-8")

    async def send_sessions(self, request: web.Request) -> web.Response:
        """Respond with at most `limit` sessions whose ids begin with `start`."""
        limit = request.query.get("limit")
        error = "`limit` must be a number of sessions.\n"
        maximum = _parse_number(limit, error) or MAX_LISTED
        try:
            listed = await self._source.list_sessions(maximum, request.query.get("start", ""))
        except JournalError as error:
            raise web.HTTPInternalServerError(text=f"{error}\n") from error
        return web.Response(body=msgspec.json.encode(listed), content_type="application/json")

    async def send_events(self, request: web.Request) -> web.Response:
        page = await self._read_page(request, _parse_position(request.query.get("after")))
        return web.Response(body=encode_page(page), content_type="application/json")

    async def send_work(self, request: web.Request) -> web.Response:
        """Respond with what a run changed; the parameters are the fields of WorkQuery."""
        get = request.query.get
        query = WorkQuery(
            get("base", ""),
            get("tree", ""),
            get("ours", ""),
            get("both", ""),
            tuple(request.query.getall("conflict", ())),
        )
        page = await _await_source(self._source.read_work(request.match_info["session"], query))
        return web.Response(body=msgspec.json.encode(page), content_type="application/json")

    async def stream_events(self, request: web.Request) -> web.StreamResponse:
        """Stream events as they are recorded, after `Last-Event-ID` or `after`.

        The id of an event is its position.
        """
        last_id = request.headers.get("Last-Event-ID")
        after = _parse_position(last_id or request.query.get("after"))
        # Before the page, so that an event recorded in between counts as a change.
        stamp = await self._read_stamp(request)
        page = await self._read_page(request, after)
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        await stream.write(b"retry: 1000\n\n")
        while not self.closing.is_set():
            if page.events or page.error:
                await stream.write(_encode_frames(page))
                after = page.events[-1][0] if page.events else after
            if page.error:
                break
            if not page.has_more:
                stamp = await self._wait_for_change(request, stream, stamp)
            page = await self._read_page(request, after)
        return stream

    async def _wait_for_change(
        self, request: web.Request, stream: web.StreamResponse, stamp: object
    ) -> object:
        """Wait until the session may have new events or the viewer closes; return the stamp."""
        for _ in range(round(KEEPALIVE_SECONDS / POLL_SECONDS)):
            with suppress(TimeoutError):
                async with time_limit(POLL_SECONDS):
                    await self.closing.wait()
            new_stamp = await self._read_stamp(request)
            if new_stamp != stamp or self.closing.is_set():
                return new_stamp
        await stream.write(b":\n\n")
        return stamp

    async def _read_stamp(self, request: web.Request) -> object:
        return await _await_source(self._source.read_change_stamp(request.match_info["session"]))

    async def _read_page(self, request: web.Request, after: int) -> EventPage:
        return await _await_source(self._source.read_page(request.match_info["session"], after))


async def _await_source(work: Awaitable[T]) -> T:
    """Await a call of the source, turning its errors into HTTP errors."""
    try:
        return await work
    except UsageError as error:
        raise web.HTTPNotFound(text=f"{error}\n") from error
    except JournalError as error:
        raise web.HTTPInternalServerError(text=f"{error}\n") from error


def _encode_frames(page: EventPage) -> bytes:
    frames = [b"id: %d\ndata: %b\n\n" % (position, body) for position, body in page.events]
    if page.error:
        frames.append(b"event: failure\ndata: %b\n\n" % msgspec.json.encode(page.error))
    return b"".join(frames)


def _parse_position(text: str | None) -> int:
    return _parse_number(text, "`after` must be the number of an event.\n")


def _parse_number(text: str | None, error: str) -> int:
    if text and not text.isdecimal():
        raise web.HTTPBadRequest(text=error)
    return int(text or 0)


# Nothing from other sites, nothing inline, no text parsed as markup: transcripts contain strangers'
# text.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)

_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_USE_PRINTED_ADDRESS = "Use the whole address that `mudroom view` printed.\n"


def make_auth_middleware(token: str, host: str) -> Middleware:
    """Refuse requests without the token, or for a host name other than the bound one.

    The token is expected in the query of the first request and then in a cookie, or in an
    Authorization header.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = _refuse(request, token, host) or _move_token_to_cookie(request, token)
        return await handler(request) if response is None else response

    return check


async def add_security_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


def get_cookie_name(request: web.Request) -> str:
    """Name the cookie by its port, because all ports share cookies."""
    return f"mudroom-{request.url.port}"


def _refuse(request: web.Request, token: str, host: str) -> web.Response | None:
    """Return the response that refuses a request, None if it is allowed."""
    # A page of another site can point its own host name at this address (DNS rebinding).
    if not is_own_host(request.headers.get("Host", ""), host, _get_bound_port(request)):
        text = f"The viewer is not known by this host name. {_USE_PRINTED_ADDRESS}"
        return web.Response(status=421, text=text)
    origin = request.headers.get("Origin")
    if origin is not None and origin != f"http://{request.headers['Host']}":
        return web.Response(status=403, text="A page of another site sent this request.\n")
    tokens = (
        request.cookies.get(get_cookie_name(request), ""),
        request.headers.get("Authorization", "").removeprefix("Bearer "),
        request.query.get("token", ""),
    )
    expected = token.encode()
    if any(hmac.compare_digest(each.encode("utf-8", "replace"), expected) for each in tokens):
        return None
    text = f"The token is missing or wrong. {_USE_PRINTED_ADDRESS}"
    return web.Response(status=401, text=text)


def _move_token_to_cookie(request: web.Request, token: str) -> web.Response | None:
    """Redirect to an address without the token, setting the cookie; None if it has no token."""
    if "token" not in request.query or request.method != "GET" or request.path != "/":
        return None
    query = urlencode([(key, value) for key, value in request.query.items() if key != "token"])
    location = f"{request.path}?{query}" if query else request.path
    response = web.Response(status=303, headers={"Location": location})
    response.set_cookie(get_cookie_name(request), token, httponly=True, samesite="Strict", path="/")
    return response


def _get_bound_port(request: web.Request) -> int:
    transport = request.transport
    return transport.get_extra_info("sockname")[1] if transport else 0
