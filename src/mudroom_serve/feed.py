"""SessionFeed: a session's newest events, encoded once for all streams that show them.

A cursor is opaque text for a position in a session's record, or in a list.
"""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from collections.abc import Sequence
from itertools import islice

import msgspec
from msgspec import Struct

from mudroom.events import Delta, StoredEvent, encode_event

from .request_errors import make_wrong_request

MAX_BYTES = 4 << 20
"""Bytes of events kept by a feed. Streams further behind read the journal."""


class Frame(Struct, frozen=True, gc=False):
    number: int  # its place in the feed; 0 if read from the journal
    position: int  # the event's in the journal; for a Delta, that of the event before it
    run: str
    kind: str
    data: bytes  # as sent by streams


class SessionFeed:
    """One session's newest events."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.streams = 0  # without any, nothing is kept
        self.status_number = 0  # grows when the session's state may have changed
        # Position of the last event not kept, None before the first event is shown. A stream that
        # has all events up to it can join.
        self.tail: int | None = None
        # Set by the next change. Take it before looking at the frames.
        self.change = asyncio.Event()
        self._last: int | None = None
        self._frames: deque[Frame] = deque()
        self._bytes = 0
        self._count = 0

    def notify(self) -> None:
        self.status_number += 1
        self.wake()

    def wake(self) -> None:
        """Wake all streams."""
        self.change.set()
        self.change = asyncio.Event()

    def observe(self, first: int, events: Sequence[StoredEvent]) -> None:
        """Add durable events; `first` is the position of the first."""
        last = self._last
        if last is None or first > last + 1:
            self.forget()
            self.tail = first - 1
            last = first - 1
        for position, event in enumerate(events, first):
            if position > last:
                self._last = position
                if self.streams:
                    self._add(make_frame(self.session, position, event, self._count + 1))
        if not self.streams:
            self.forget()
            self._last = max(last, first + len(events) - 1)
            self.tail = self._last
        self.wake()

    def show_delta(self, event: Delta) -> None:
        if self.streams and self._last is not None:
            data = b"event: delta\ndata: %b\n\n" % msgspec.json.encode(event)
            # Without a cursor, because it is never sent again.
            self._add(Frame(self._count + 1, self._last, event.run, "delta", data))
            self.wake()

    def forget(self) -> None:
        """Drop all frames, because events may be missing. Streams then read the journal."""
        self._count += 1  # so that no stream takes the next frame for its next
        self._frames.clear()
        self._bytes = 0
        self._last = None
        self.tail = None

    def find_start(self, position: int) -> int | None:
        """Find the number of a stream's last frame, None if the stream cannot join.

        The stream has all events up to `position`. It cannot join if it has read an event from the
        journal that is yet to be shown: it would receive that event twice.
        """
        if self.tail is None or self._last is None or not self.tail <= position <= self._last:
            return None
        for frame in self._frames:
            is_delta = frame.kind == "delta"
            if frame.position > position or (is_delta and frame.position == position):
                return frame.number - 1
        return self._count

    def list_after(self, number: int) -> list[Frame] | None:
        """List the frames after a number, None if some are no longer kept."""
        oldest = self._frames[0].number if self._frames else self._count + 1
        if number + 1 < oldest or self.tail is None:
            return None
        return list(islice(self._frames, number + 1 - oldest, None))

    def _add(self, frame: Frame) -> None:
        self._count += 1
        self._frames.append(frame)
        self._bytes += len(frame.data)
        while self._bytes > MAX_BYTES and len(self._frames) > 1:
            dropped = self._frames.popleft()
            self._bytes -= len(dropped.data)
            self.tail = dropped.position


def make_frame(session: str, position: int, event: StoredEvent, number: int = 0) -> Frame:
    kind = get_kind(event)
    data = b"id: %b\nevent: %b\ndata: %b\n\n" % (
        make_cursor(session, position).encode(),
        kind.encode(),
        encode_event(event),
    )
    return Frame(number, position, event.run, kind, data)


def get_kind(event: StoredEvent) -> str:
    """Return an event's type, as in its JSON."""
    return str(type(event).__struct_config__.tag)


_CHECKED = 8  # characters of a session's id in a cursor


def make_cursor(session: str, position: int) -> str:
    """Make an event's cursor. `session`: id, or "" for a place in a list."""
    text = f"{session[:_CHECKED]}.{position}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def parse_cursor(session: str, cursor: str) -> int:
    """Parse a cursor's position; "" is 0. Raises RequestError for a wrong cursor."""
    if not cursor:
        return 0
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        text = base64.b64decode(padded, b"-_", validate=True).decode("ascii")
    except ValueError:
        text = ""
    start, dot, position = text.partition(".")
    is_number = position.isascii() and position.isdecimal() and len(position) < 19
    if not (dot and start == session[:_CHECKED] and is_number):
        raise make_wrong_request(
            "the cursor is not one of this list or session. Use one that the server sent, or none "
            "to begin at the start",
            "after",
        )
    return int(position)
