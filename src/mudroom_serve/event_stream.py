"""A session's recorded events, in pages and in streams that continue with new ones."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import msgspec
from aiohttp import web
from msgspec import Struct

from mudroom.errors import MudroomError, UnknownName
from mudroom.events import StoredEvent, encode_event
from mudroom.ports import time_limit
from mudroom.views import Redactor, redact_event, stream_events

from .feed import Frame, SessionFeed, get_kind, make_cursor, make_frame, parse_cursor
from .monitoring import Faults, Metrics
from .request_errors import make_not_found, make_wrong_request
from .response_bodies import EventPage, RecordedEvent
from .route import Call
from .served_session import ServerParts
from .session_registry import SessionRegistry
from .session_routes import SessionRoutes, parse_count, respond
from .state.sessions import SessionRecord
from .state.tokens import TokenRecords

_MAX_PAGE = 1_000
_PAGE_BYTES = 2 << 20  # bytes; a page ends with the event that reaches them
KINDS: frozenset[str] = frozenset(str(kind.__struct_config__.tag) for kind in StoredEvent.__args__)


class EventFilter(Struct, frozen=True):
    kinds: frozenset[str]  # empty for all
    run: str  # with those below it, "" for all
    deltas: bool  # include streamed text

    def accepts(self, kind: str, run: str) -> bool:
        if kind == "delta":
            if not self.deltas:
                return False
        elif self.kinds and kind not in self.kinds:
            return False
        return not self.run or run == self.run or run.startswith(f"{self.run}.")


class EventRoutes:
    """Pages and streams of events. `closing` is set when all streams must end."""

    def __init__(
        self,
        sessions: SessionRoutes,
        parts: ServerParts,
        registry: SessionRegistry,
        tokens: TokenRecords,
        metrics: Metrics,
        closing: asyncio.Event,
    ) -> None:
        self._sessions = sessions
        self._parts = parts
        self._registry = registry
        self._tokens = tokens
        self._metrics = metrics
        self._closing = closing
        self._faults = Faults()

    async def list(self, call: Call) -> web.Response:
        record = await self._sessions.find(call)
        after = parse_cursor(record.id, call.get("after"))
        wanted = parse_filter(call)
        limit = parse_count(call, "limit", _MAX_PAGE, _MAX_PAGE)
        data: list[RecordedEvent] = []
        position = after
        size = 0
        has_more = False
        async with aclosing(self._read(record, after)) as events:
            async for event in events:
                if len(data) == limit or size > _PAGE_BYTES:
                    has_more = True
                    break
                position += 1
                if wanted.accepts(get_kind(event), event.run):
                    body = encode_event(event)
                    size += len(body)
                    data.append(RecordedEvent(make_cursor(record.id, position), msgspec.Raw(body)))
        cursor = make_cursor(record.id, position)
        return respond(EventPage(data=tuple(data), next=cursor, has_more=has_more))

    async def stream(self, call: Call) -> web.StreamResponse:
        """Stream events, starting after a cursor, until the client closes the connection."""
        record = await self._sessions.find(call)
        last_id = call.request.headers.get("Last-Event-ID", "")
        after = parse_cursor(record.id, last_id or call.get("after"))
        wanted = parse_filter(call)
        writer = await TimedWriter.open(call, self._parts.options.write_seconds)
        try:
            await writer.write(b"retry: 1000\n\n")
            async with self._registry.follow(record.id) as feed:
                await self._follow(call, record, feed, writer, wanted, after)
        except (TimeoutError, ConnectionError):
            self._metrics.add("mudroom_streams_cut_total")
        except MudroomError as error:  # the client continues from its last cursor
            self._metrics.add("mudroom_streams_cut_total")
            if self._faults.add(record.id, str(error)):
                self._parts.notify(f"session {record.id}: a stream has ended: {error}")
        return writer.response

    async def _follow(
        self,
        call: Call,
        record: SessionRecord,
        feed: SessionFeed,
        writer: TimedWriter,
        wanted: EventFilter,
        position: int,
    ) -> None:
        number: int | None = None
        status = b""
        status_number = -1
        while not self._closing.is_set():
            change = feed.change
            frames = None if number is None else feed.list_after(number)
            if frames is None:
                number = feed.find_start(position)
                frames = [] if number is not None else await self._read_frames(record, position)
                is_behind = number is not None or bool(frames)
            else:
                is_behind = False
            data = b"".join(each.data for each in frames if wanted.accepts(each.kind, each.run))
            if frames:
                position = frames[-1].position
                number = None if frames[-1].number == 0 else frames[-1].number
            if data:
                await writer.write(data)
                self._metrics.add("mudroom_stream_bytes_total", len(data))
            if is_behind:
                continue
            self._faults.remove(record.id)
            if status_number != feed.status_number:
                status_number = feed.status_number
                latest = await self._encode_status(record)
                if latest != status:
                    await writer.write(latest)
                    status = latest
            if not await self._wait(change, writer, call.secret):
                return

    async def _wait(self, change: asyncio.Event, writer: TimedWriter, secret: str) -> bool:
        """Wait for a change; return False if the token was removed."""
        if await wait_for_change(change, self._parts.options.keepalive_seconds):
            return True
        await writer.write(b":\n\n")
        return not secret or await self._tokens.find(secret) is not None

    async def _encode_status(self, record: SessionRecord) -> bytes:
        view = await self._sessions.describe(record)
        body = msgspec.json.encode(view, enc_hook=repr)
        return b"event: status\ndata: %b\n\n" % body

    async def _read_frames(self, record: SessionRecord, after: int) -> list[Frame]:
        """Read the journal's next events, at most a page."""
        frames: list[Frame] = []
        size = 0
        async with aclosing(self._read(record, after)) as events:
            async for event in events:
                frame = make_frame(record.id, after + len(frames) + 1, event)
                frames.append(frame)
                size += len(frame.data)
                if size > _PAGE_BYTES:
                    break
        return frames

    async def _read(self, record: SessionRecord, after: int) -> AsyncGenerator[StoredEvent]:
        redact = Redactor(os.environ)
        try:
            async for event in stream_events(self._parts.store, record.id, after=after):
                yield redact_event(event, redact)
        except UnknownName:
            if await self._sessions.exists(record.id):
                return  # nothing recorded yet
            raise make_not_found("session", record.id) from None


def parse_filter(call: Call) -> EventFilter:
    kinds = [name for name in call.get("kinds").split(",") if name]
    for kind in kinds:
        if kind not in KINDS:
            known = ", ".join(sorted(KINDS))
            raise make_wrong_request(f"there is no event {kind!r}; known: {known}", "kinds")
    deltas = call.get("deltas")
    if deltas not in ("", "0", "1"):
        raise make_wrong_request("deltas must be 0 or 1", "deltas")
    return EventFilter(frozenset(kinds), call.get("run"), deltas == "1")


async def wait_for_change(change: asyncio.Event, keepalive_seconds: float) -> bool:
    """Wait for a change; return False when the stream must send a keepalive."""
    try:
        async with time_limit(keepalive_seconds):
            await change.wait()
    except TimeoutError:
        return False
    return True


class TimedWriter:
    """Writes to a client that may read slowly.

    A write longer than `seconds` cuts the connection; the client continues from its last cursor.
    """

    def __init__(self, request: web.Request, response: web.StreamResponse, seconds: float) -> None:
        self.response = response
        self._request = request
        self._seconds = seconds

    @classmethod
    async def open(
        cls, call: Call, seconds: float, headers: Mapping[str, str] | None = None
    ) -> TimedWriter:
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", **(headers or {})}
        )
        await response.prepare(call.request)
        return cls(call.request, response, seconds)

    async def write(self, data: bytes) -> None:
        try:
            async with time_limit(self._seconds):
                await self.response.write(data)
        except TimeoutError:
            if self._request.transport:
                self._request.transport.abort()
            raise
