"""The viewer's server: one static page, a list of sessions, their events, and those to come. It only ever reads."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import msgspec
from aiohttp import web
from msgspec import Struct

from ..errors import JournalError, UsageError
from .auth import add_security_headers, make_auth_middleware
from .export import load_page_files
from .sources import EventPage, SessionSource, encode_page

T = TypeVar("T")

FIRST_PORT, PORT_TRIES = 7575, 25
"""Where the viewer is looked for, and how many ports are tried after it."""

POLL_SECONDS = 0.25
"""Seconds between two looks at a session that is being written."""

KEEPALIVE_SECONDS = 3.0
"""Seconds without a sign of news after which a live stream says that it lives, and looks all the same: file times are coarse."""

_KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


class ViewerAddress(Struct, frozen=True):
    """Where a viewer is to be found. `url` has the token in it; `port` is the one that was free."""

    url: str
    port: int
    token: str


@asynccontextmanager
async def open_viewer(
    source: SessionSource, *, host: str = "127.0.0.1", port: int = FIRST_PORT, token: str = ""
) -> AsyncGenerator[ViewerAddress]:
    """A server for as long as the block runs.

    Arguments:
        source: what it shows. host: the address it is bound to; beyond loopback the token is all that guards it.
        port: the first one tried; 0 is any. token: "" makes a new one.

    Raises UsageError when no port is free, or the host is not one of this machine.
    """
    token = token or secrets.token_urlsafe(24)
    app = web.Application(middlewares=[make_auth_middleware(token, host)])
    desk = _Handlers(source)
    app.add_routes(
        [
            web.get("/", desk.page),
            web.get("/api/sessions", desk.sessions),
            web.get("/api/sessions/{session}/events", desk.events),
            web.get("/api/sessions/{session}/live", desk.live),
            web.get("/{name}", desk.part),
        ]
    )
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2, handler_cancellation=True)
    await runner.setup()
    try:
        bound = await _bind(runner, host, port)
        named = (
            "127.0.0.1"
            if host in ("0.0.0.0", "::", "localhost")
            else f"[{host}]"
            if ":" in host
            else host
        )
        yield ViewerAddress(f"http://{named}:{bound}/?token={token}", bound, token)
    finally:
        desk.closing.set()
        await runner.cleanup()


async def _bind(runner: web.AppRunner, host: str, port: int) -> int:
    for candidate in [port] if port == 0 else range(port, port + PORT_TRIES):
        try:
            await web.TCPSite(runner, host, candidate).start()
        except OSError as error:
            if error.errno not in (98, 48, 13):  # in use here, on a Mac, or not ours to use
                raise UsageError(
                    f"the viewer cannot listen: {error.strerror}", where=f"{host}:{candidate}"
                ) from error
            continue
        return runner.addresses[-1][1]
    raise UsageError(
        "no port is free for the viewer",
        where=f"{host}:{port}-{port + PORT_TRIES - 1}",
        remedy="Name another with --port.",
    )


class _Handlers:
    """Answers requests that the guard has let through."""

    def __init__(self, source: SessionSource) -> None:
        self._source = source
        self._parts = load_page_files()
        self.closing = asyncio.Event()

    async def page(self, _: web.Request) -> web.Response:
        return self._static("index.html")

    async def part(self, request: web.Request) -> web.Response:
        return self._static(request.match_info["name"])

    def _static(self, name: str) -> web.Response:
        kind = _KINDS.get(name[name.rfind(".") :])
        if name not in self._parts or kind is None:
            raise web.HTTPNotFound(text="There is no such page.\n")
        return web.Response(body=self._parts[name], content_type=kind, charset="utf-8")

    async def sessions(self, _: web.Request) -> web.Response:
        try:
            body = msgspec.json.encode(await asyncio.to_thread(self._source.list_sessions))
        except OSError as error:
            raise web.HTTPInternalServerError(
                text=f"The records cannot be listed: {error.strerror}\n"
            ) from error
        return web.Response(body=body, content_type="application/json")

    async def events(self, request: web.Request) -> web.Response:
        """One page of events after number `after`."""
        return web.Response(
            body=encode_page(await self._look(request, _number(request.query.get("after")))),
            content_type="application/json",
        )

    async def live(self, request: web.Request) -> web.StreamResponse:
        """Events as they are recorded: id is their number. It begins after `Last-Event-ID`, or after number `after`."""
        after = _number(request.headers.get("Last-Event-ID") or request.query.get("after"))
        stamp = await self._stamp(request)
        page = await self._look(request, after)
        stream = add_security_headers(
            web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        )
        await stream.prepare(request)
        await stream.write(b"retry: 1000\n\n")
        while not self.closing.is_set():
            if page.events or page.error:
                await stream.write(_frames(page))
                after = page.events[-1][0] if page.events else after
            if page.error:
                break
            if not page.more:
                stamp = await self._news(request, stream, stamp)
            page = await self._look(request, after)
        return stream

    async def _news(
        self, request: web.Request, stream: web.StreamResponse, stamp: object
    ) -> object:
        """Wait until events may have been added, or the viewer closes; the new stamp."""
        for _ in range(round(KEEPALIVE_SECONDS / POLL_SECONDS)):
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self.closing.wait()
            if (now := await self._stamp(request)) != stamp or self.closing.is_set():
                return now
        await stream.write(b":\n\n")
        return stamp

    async def _stamp(self, request: web.Request) -> object:
        return await _found(self._source.read_change_stamp, request.match_info["session"])

    async def _look(self, request: web.Request, after: int) -> EventPage:
        return await _found(self._source.read_page, request.match_info["session"], after)


async def _found(ask: Callable[..., T], *arguments: object) -> T:
    """What the source says, with its errors as answers."""
    try:
        return await asyncio.to_thread(ask, *arguments)
    except UsageError as error:
        raise web.HTTPNotFound(text=f"{error}\n") from error
    except JournalError as error:
        raise web.HTTPInternalServerError(text=f"{error}\n") from error


def _frames(page: EventPage) -> bytes:
    frames = [b"id: %d\ndata: %b\n\n" % (seq, body) for seq, body in page.events]
    if page.error:
        frames.append(b"event: trouble\ndata: %b\n\n" % msgspec.json.encode(page.error))
    return b"".join(frames)


def _number(given: str | None) -> int:
    if given and not given.isdecimal():
        raise web.HTTPBadRequest(text="`after` is the number of an event.\n")
    return int(given or 0)
