"""Sources of the viewer: the recorded sessions of a folder, or one complete session."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .._core.events import StoredEvent
from ..errors import JournalError, UnknownName
from ..journals.encoding import decode, encode
from ..journals.sqlite.lock import writer_pid
from ..journals.sqlite.reader import open_reader
from ..journals.sqlite.store import SessionInfo, find_by_id, list_sessions, session_path
from ..projections.session_summary import SUMMARY_TAGS, SessionSummary, summarize_session

MAX_LISTED = 200
"""Number of sessions in the list, newest first."""

PAGE_BYTES = 2 << 20
"""Bytes of JSON after which a page of events ends."""

FRESH_SECONDS = 2.0
"""Seconds after a write in which a session always counts as changed."""

MAX_PROMPT = 400
"""Characters of a prompt in the list."""


class EventPage(Struct, frozen=True):
    """Consecutive events of a session, as (position, JSON).

    Arguments:
        more: there are further events now.
        error: why further events cannot be read, "" if they can.
    """

    events: list[tuple[int, bytes]]
    more: bool = False
    error: str = ""


class SessionSource(Protocol):
    """Sessions to show. All methods block; a server calls them in a thread."""

    def list_sessions(self) -> list[SessionSummary]:
        """Return the sessions, the one written last first."""
        ...

    def read_page(self, session: str, after: int) -> EventPage:
        """Return at most PAGE_BYTES of events after position `after`.

        Raises UnknownName, JournalError.
        """
        ...

    def read_change_stamp(self, session: str) -> object:
        """Return a value that differs when events may have been added; cheaper than reading."""
        ...


class StoredSessions:
    """Sessions recorded in a state folder, which may not exist yet."""

    def __init__(self, home: str | Path) -> None:
        self._folder = Path(home)
        self._summaries: dict[str, tuple[object, SessionSummary]] = {}

    def list_sessions(self) -> list[SessionSummary]:
        """Return the sessions; a session is read again only after it has changed."""
        listed: list[SessionSummary] = []
        for info in list_sessions(self._folder):
            listed.append(self._summarize(info))
            if len(listed) == MAX_LISTED:
                break
        return listed

    def read_page(self, session: str, after: int) -> EventPage:
        """Return events of one session, by its whole id."""
        return _read_page(open_reader(self._find(session)).read_json(after=after))

    def read_change_stamp(self, session: str) -> object:
        """Return times and sizes of the session's files, or a new value after a recent write.

        A commit changes the files before readers can see it.
        """
        path = self._find(session)
        stamp = (_stat(path), _stat(path.with_name(path.name + "-wal")))
        changed_at, _ = max(stamp)
        is_fresh = time.time_ns() - changed_at < FRESH_SECONDS * 1e9
        return object() if is_fresh else stamp

    def _find(self, session: str) -> Path:
        path = session_path(self._folder, session)
        if "/" not in session and path.exists():
            return path
        return find_by_id(self._folder, session)

    def _summarize(self, info: SessionInfo) -> SessionSummary:
        is_live = bool(writer_pid(info.path))
        stamp = (info.mtime, info.size, is_live)
        known = self._summaries.get(info.id)
        if known is None or known[0] != stamp:
            known = (stamp, read_summary(info, is_live=is_live))
            self._summaries[info.id] = known
        return known[1]


class SingleSession:
    """One complete session, for example converted from another program's log.

    Arguments:
        session: its id.
        events: all events, oldest first.
    """

    def __init__(self, session: str, events: Iterable[StoredEvent]) -> None:
        events = list(events)
        self._bodies = [(position, encode(event)) for position, event in enumerate(events, 1)]
        summary = SessionSummary(
            id=session,
            when=events[-1].at if events else 0.0,
            size=sum(len(body) for _, body in self._bodies),
        )
        self._listed = _shorten(summarize_session(summary, events))

    def list_sessions(self) -> list[SessionSummary]:
        """Return the one session."""
        return [self._listed]

    def read_page(self, session: str, after: int) -> EventPage:
        """Return events of the session."""
        if session != self._listed.id:
            raise UnknownName("session", session, [self._listed.id])
        return _read_page(iter(self._bodies[after:]))

    def read_change_stamp(self, session: str) -> object:
        """Return a constant: the session never changes."""
        return session


def iterate_pages(source: SessionSource, session: str) -> Iterator[EventPage]:
    """Yield all pages of a session in its current state."""
    after = 0
    page = EventPage([], more=True)
    while page.more:
        page = source.read_page(session, after)
        after = page.events[-1][0] if page.events else after
        yield page


def read_summary(info: SessionInfo, *, is_live: bool) -> SessionSummary:
    """Return the list entry of a session; an unreadable session gets an entry with its error."""
    summary = SessionSummary(id=info.id, when=info.mtime, size=info.size)
    try:
        bodies = open_reader(info.path).read_json(tags=SUMMARY_TAGS)
        events = (decode(body) for _, body in bodies)
        return _shorten(summarize_session(summary, events, is_live=is_live))
    except (JournalError, ValueError) as error:
        return replace(summary, error=str(error))


def _shorten(summary: SessionSummary) -> SessionSummary:
    return replace(summary, prompt=summary.prompt[:MAX_PROMPT])


def _read_page(bodies: Iterator[tuple[int, bytes]]) -> EventPage:
    events: list[tuple[int, bytes]] = []
    size = 0
    try:
        for position, body in bodies:
            events.append((position, body))
            size += len(body)
            if size >= PAGE_BYTES:
                return EventPage(events, more=True)
    except JournalError as error:
        return EventPage(events, error=str(error))
    return EventPage(events)


def _stat(path: Path) -> tuple[int, int]:
    """Return modification time in nanoseconds and size; zeros for a missing file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def encode_page(page: EventPage) -> bytes:
    """Return the page as JSON: {"events": [[position, event], …], "more": …, "error": …}."""
    events = b",".join(b"[%d,%b]" % (position, body) for position, body in page.events)
    rest = msgspec.json.encode({"more": page.more, "error": page.error})[1:]
    return b'{"events":[%b],%b' % (events, rest)
