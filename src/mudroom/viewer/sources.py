"""Where a viewer's events come from: the sessions recorded below a home, or one that was given whole."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from .._core.events import RunFinished, RunStarted, SessionOpened, StoredEvent
from .._core.messages import Usage
from ..errors import JournalError, UnknownName
from ..journals.encoding import decode, encode
from ..journals.sqlite.journal import open_reader
from ..journals.sqlite.store import SessionInfo, find_by_id, list_sessions, session_path

MAX_LISTED = 200
"""Sessions in the list, newest first."""

PAGE_BYTES = 2 << 20
"""Bytes of JSON after which a page of events ends."""

FRESH_SECONDS = 2.0
"""Seconds after a write in which a file is looked at whenever one asks."""

_BRACKETS = ("session_opened", "run_started", "run_finished")


class Listed(Struct, frozen=True, kw_only=True):
    """One session in the list.

    Arguments:
        id, folder, model, prompt (the first): of the session. when: last written, seconds since 1970. size: bytes on disk.
        reason: of the last root run, "" while it runs or where it was cut off. live: a process is writing it.
        prompts: runs that no run began. children: runs below them. tokens: read and written by all runs that have ended.
        trouble: why its record cannot be read.
    """

    id: str
    when: float
    size: int = 0
    folder: str = ""
    model: str = ""
    prompt: str = ""
    reason: str = ""
    live: bool = False
    prompts: int = 0
    children: int = 0
    tokens: int = 0
    trouble: str = ""


class EventPage(Struct, frozen=True):
    """Some events, as (number, JSON). `more`: there are further ones now. `trouble`: why there are no further ones, if they are lost."""

    events: list[tuple[int, bytes]]
    more: bool = False
    error: str = ""


class SessionSource(Protocol):
    """Sessions to look at. All of it blocks; a server calls it in a thread."""

    def list_sessions(self) -> list[Listed]:
        """What there is, the one written last first."""
        ...

    def read_page(self, session: str, after: int) -> EventPage:
        """Events recorded after number `after`, at most PAGE bytes of them. Raises UnknownName, JournalError."""
        ...

    def read_change_stamp(self, session: str) -> object:
        """A value that differs when events may have been added; costs far less than looking."""
        ...


class StoredSessions:
    """The sessions recorded below a home.

    Arguments:
        home: as Settings say. It need not exist.
    """

    def __init__(self, home: str | Path) -> None:
        self._home = Path(home)
        self._known: dict[str, tuple[object, Listed]] = {}

    def list_sessions(self) -> list[Listed]:
        """What there is, the one written last first; a record is read again only when it has grown."""
        return [
            self._listed(info)
            for info, _ in zip(list_sessions(self._home), range(MAX_LISTED), strict=False)
        ]

    def read_page(self, session: str, after: int) -> EventPage:
        """Events of one session, by its whole id."""
        return _page(open_reader(self._path(session)).read_json(after=after))

    def read_change_stamp(self, session: str) -> object:
        """Times and sizes of its files; ever new while they are fresh, for a commit changes them before readers may see it."""
        path = self._path(session)
        stamp = _stat(path), _stat(path.with_name(path.name + "-wal"))
        return object() if time.time_ns() - max(stamp)[0] < FRESH_SECONDS * 1e9 else stamp

    def _path(self, session: str) -> Path:
        path = session_path(self._home, session)
        return path if "/" not in session and path.exists() else find_by_id(self._home, session)

    def _listed(self, info: SessionInfo) -> Listed:
        live = _written(info.path)
        stamp = info.mtime, info.size, live
        if info.id not in self._known or self._known[info.id][0] != stamp:
            self._known[info.id] = stamp, summarize(info, live=live)
        return self._known[info.id][1]


class SingleSession:
    """One session that is there whole: converted from another program's log, or folded elsewhere.

    Arguments:
        session: its id. events: all of them, oldest first.
    """

    def __init__(self, session: str, events: Iterable[StoredEvent]) -> None:
        kept = list(events)
        self._bodies = [(seq, encode(event)) for seq, event in enumerate(kept, 1)]
        self._listed = _folded(
            session,
            kept[-1].at if kept else 0.0,
            kept,
            size=sum(len(body) for _, body in self._bodies),
        )

    def list_sessions(self) -> list[Listed]:
        """The one."""
        return [self._listed]

    def read_page(self, session: str, after: int) -> EventPage:
        """Its events."""
        if session != self._listed.id:
            raise UnknownName("session", session, [self._listed.id])
        return _page(iter(self._bodies[after:]))

    def read_change_stamp(self, session: str) -> object:
        """Nothing is ever added."""
        return session


def iterate_pages(source: SessionSource, session: str) -> Iterator[EventPage]:
    """All pages of a session as it stands now."""
    after, page = 0, EventPage([], more=True)
    while page.more:
        page = source.read_page(session, after)
        after = page.events[-1][0] if page.events else after
        yield page


def summarize(info: SessionInfo, *, live: bool) -> Listed:
    """A session's record in one line; one that cannot be read says so and stops nothing."""
    try:
        bodies = open_reader(info.path).read_json(tags=_BRACKETS)
        return _folded(
            info.id, info.mtime, (decode(body) for _, body in bodies), size=info.size, live=live
        )
    except (JournalError, ValueError) as error:
        return Listed(id=info.id, when=info.mtime, size=info.size, trouble=str(error))


def _folded(
    session: str, when: float, events: Iterable[StoredEvent], *, size: int, live: bool = False
) -> Listed:
    folder, roots, children, used = "", list[RunStarted](), 0, dict[str, Usage]()
    reason = ""
    for event in events:
        if isinstance(event, SessionOpened):
            folder = event.cwd
        elif isinstance(event, RunStarted) and event.brief.parent:
            children += 1
        elif isinstance(event, RunStarted):
            roots.append(event)
            reason = ""
        elif isinstance(event, RunFinished) and roots and event.run == roots[-1].run:
            reason = event.report.reason.value
        if isinstance(event, RunFinished) and "." not in event.run:
            used[event.run] = event.report.usage
    return Listed(
        id=session,
        when=when,
        size=size,
        folder=folder,
        model=roots[0].brief.model if roots else "",
        prompt=roots[0].brief.prompt[:400] if roots else "",
        reason=reason,
        live=live,
        prompts=len(roots),
        children=children,
        tokens=sum(usage.total_tokens for usage in used.values()),
    )


def _page(bodies: Iterator[tuple[int, bytes]]) -> EventPage:
    events, size = list[tuple[int, bytes]](), 0
    try:
        for seq, body in bodies:
            events.append((seq, body))
            size += len(body)
            if size >= PAGE_BYTES:
                return EventPage(events, more=True)
    except JournalError as error:
        return EventPage(events, error=str(error))
    return EventPage(events)


def _written(path: Path) -> bool:
    """Whether the process that its lock names lives. The lock itself is not tried: that could keep a writer out."""
    try:
        os.kill(int(path.with_name(path.name + ".lock").read_text()), 0)
    except (OSError, ValueError) as error:
        return isinstance(error, PermissionError)
    return True


def _stat(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def encode_page(page: EventPage) -> bytes:
    """The page as the browser reads it: {"events": [[number, event], …], "more": …, "trouble": …}."""
    events = b",".join(b"[%d,%b]" % (seq, body) for seq, body in page.events)
    rest = msgspec.json.encode({"more": page.more, "trouble": page.error})[1:]
    return b'{"events":[%b],%b' % (events, rest)
