"""Sources of the viewer's sessions."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from typing import Protocol
from urllib.parse import quote

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .._adapters.journals.sessions import read_summary
from .._adapters.output_filters import Redactor
from .._core.events import StoredEvent, encode_event
from .._core.ports import SessionInfo, SessionStore
from .._projections.safe_text import redact_event
from .._projections.session_summary import SessionSummary
from ..errors import JournalError
from .work import WorkPage, WorkQuery, read_work

# Sessions in the list, newest first, unless the reader asks for more.
MAX_LISTED = 200

# Bytes of JSON after which a page of events ends.
PAGE_BYTES = 2 << 20

# Seconds after a write during which a session always counts as changed.
FRESH_SECONDS = 2.0

# Characters of an id in an address, few enough for the address to fit in 80 columns.
LINK_CHARACTERS = 8

# Characters of a prompt in the list.
MAX_PROMPT = 400


class EventPage(Struct, frozen=True):
    """Consecutive events of a session, as (position, JSON).

    `has_more` events already exist; an error keeps further ones from being read.
    """

    events: list[tuple[int, bytes]]
    has_more: bool = False
    error: str = ""


class SessionList(Struct, frozen=True):
    """Sessions, the most recently written first. `total` also counts those not listed."""

    sessions: list[SessionSummary]
    total: int


class SessionSource(Protocol):
    async def list_sessions(self, limit: int = MAX_LISTED, start: str = "") -> SessionList:
        """List the newest sessions whose ids begin with `start`. Raises JournalError."""
        ...

    async def list_ids(self) -> list[str]:
        """List the ids of all sessions, without reading them."""
        ...

    async def read_page(self, session: str, after: int) -> EventPage:
        """Read at most PAGE_BYTES of events after a position.

        Raises UnknownName, JournalError.
        """
        ...

    async def read_change_stamp(self, session: str) -> object:
        """Read a value that changes if events may have been added; cheaper than reading them."""
        ...

    async def read_work(self, session: str, query: WorkQuery) -> WorkPage:
        """Read what a run changed in its isolated workspace. Raises UsageError."""
        ...


class StoredSessions:
    """The sessions of a store. Without `home`, there are no isolated workspaces."""

    def __init__(self, store: SessionStore, home: str = "") -> None:
        self._store = store
        self._home = home
        self._summaries: dict[str, tuple[object, SessionSummary]] = {}

    async def list_sessions(self, limit: int = MAX_LISTED, start: str = "") -> SessionList:
        """List the newest sessions, rereading only those that have changed."""
        infos = [info for info in await self._store.list() if info.id.startswith(start)]
        sessions = [await self._summarize(info) for info in infos[:limit]]
        return SessionList(sessions, len(infos))

    async def list_ids(self) -> list[str]:
        return [info.id for info in await self._store.list()]

    async def read_page(self, session: str, after: int) -> EventPage:
        journal = await self._store.open(session, read_only=True)
        try:
            return await collect_page(journal.read(after), after)
        finally:
            await journal.close()

    async def read_change_stamp(self, session: str) -> object:
        """Read the session's time and size, or a new value after a recent write.

        A commit changes the files before readers can see it.
        """
        info = await self._store.read_info(session)
        is_fresh = time.time() - info.modified < FRESH_SECONDS
        return object() if is_fresh else info

    async def read_work(self, session: str, query: WorkQuery) -> WorkPage:
        if not self._home:
            return WorkPage(error="The files of this run are not kept here.")
        info = await self._store.read_info(session)
        return await asyncio.to_thread(read_work, self._home, info.id, query)

    async def _summarize(self, info: SessionInfo) -> SessionSummary:
        stamp = (info, await self._store.find_writer(info.id))
        known = self._summaries.get(info.id)
        if known is None or known[0] != stamp:
            summary = await read_summary(self._store, info)
            known = (stamp, replace(summary, prompt=summary.prompt[:MAX_PROMPT]))
            self._summaries[info.id] = known
        return known[1]


async def make_session_link(url: str, source: SessionSource, session: str) -> str:
    """Make the address of a session in a running viewer, or of the list for "".

    It contains only the first characters of the id if they are unique among the listed sessions;
    the page completes them.
    """
    if not session:
        return url
    start = session[:LINK_CHARACTERS]
    matches = [each for each in await source.list_ids() if each.startswith(start)]
    return f"{url}#session={quote(start if matches == [session] else session)}"


async def iterate_pages(source: SessionSource, session: str) -> AsyncIterator[EventPage]:
    """Yield all pages of a session in its current state."""
    after = 0
    page = EventPage([], has_more=True)
    while page.has_more:
        page = await source.read_page(session, after)
        after = page.events[-1][0] if page.events else after
        yield page


async def collect_page(stored: AsyncIterator[StoredEvent], after: int) -> EventPage:
    events: list[tuple[int, bytes]] = []
    redact = Redactor(os.environ)
    size = 0
    try:
        async for event in stored:
            body = encode_event(redact_event(event, redact))
            events.append((after + len(events) + 1, body))
            size += len(body)
            if size >= PAGE_BYTES:
                return EventPage(events, has_more=True)
    except JournalError as error:
        return EventPage(events, error=str(error))
    return EventPage(events)


def encode_page(page: EventPage) -> bytes:
    """Encode a page as JSON: {"events": [[position, event], …], "more": …, "error": …}."""
    events = b",".join(b"[%d,%b]" % (position, body) for position, body in page.events)
    rest = msgspec.json.encode({"more": page.has_more, "error": page.error})[1:]
    return b'{"events":[%b],%b' % (events, rest)
