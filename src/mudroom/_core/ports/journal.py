"""Journal ports: the append-only record of a session, and the store of all sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Protocol

from msgspec import Struct

from ..events import StoredEvent


class Journal(Protocol):
    """The append-only record of one session.

    Events are numbered from 1 without gaps; an event's number is its position.

    Example:
        class ListJournal:
            def __init__(self):
                self.events = []

            async def append(self, *events):
                self.events += events
                return len(self.events)

            async def read(self, after=0, *, types=()):
                for event in self.events[after:]:
                    if not types or type(event) in types:
                        yield event

            def follow(self, after=0):
                return self.read(after)

            async def close(self): ...

        journal: Journal = ListJournal()
        Session(journal=journal)
    """

    async def append(self, *events: StoredEvent) -> int:
        """Append events in order and return the position of the last one.

        They are durable when this returns. If the caller is cancelled while it waits, they are
        recorded all the same, before any later event.

        Raises JournalError; then none of the events is stored.
        """
        ...

    def read(
        self, after: int = 0, *, types: Collection[type[StoredEvent]] = ()
    ) -> AsyncIterator[StoredEvent]:
        """Yield the events recorded so far, oldest first. Works after `close` as well.

        Arguments:
            after: position of the last event to skip.
            types: event types to yield; () yields all.
        """
        ...

    def follow(self, after: int = 0) -> AsyncIterator[StoredEvent]:
        """Yield the events after a position, then each new one once it is durable.

        Ends when the journal is closed.
        """
        ...

    async def close(self) -> None:
        """Finish writing and release the session."""
        ...


class SessionInfo(Struct, frozen=True, kw_only=True):
    """A session as a store lists it.

    Arguments:
        modified: time of the last write, seconds since 1970.
        size: bytes in the store.
    """

    id: str
    modified: float
    size: int


class SessionHeader(Struct, frozen=True, kw_only=True):
    """Facts about a session that are cheap to read.

    Arguments:
        name: the name the user gave it, "" for none.
        created: seconds since 1970.
        program: version of mudroom that created it.
        folder: the session's working folder, "" if no event is recorded.
        summary: saved state of its summary, which spares a list from reading all events; "" for
            none.
    """

    id: str
    name: str
    created: float
    program: str
    folder: str
    summary: str = ""


class SessionStore(Protocol):
    """A store of sessions, each with its journal and one writer at a time.

    All methods raise JournalError if the store cannot be read or written.
    """

    async def create(self, session: str) -> Journal:
        """Create the journal of a new session and open it for writing.

        The session appears in the store together with its first events, in one step. Until then
        only `rename` and `find_writer` know it, and a crash leaves nothing behind.

        Arguments:
            session: the id of the new session, a UUID.
        """
        ...

    async def open(self, session: str, *, read_only: bool = False) -> Journal:
        """Open the journal of a session by its full id.

        Arguments:
            read_only: open it alongside its writer; `append` raises JournalError.

        Raises UnknownName, and JournalBusy if another journal is open for writing.
        """
        ...

    async def list(self) -> Sequence[SessionInfo]:
        """Return all sessions, the most recently written first."""
        ...

    async def read_info(self, session: str) -> SessionInfo:
        """Return the entry of one session by its full id. Raises UnknownName.

        Every write changes it, so it shows whether a cached summary is stale.
        """
        ...

    async def read_header(self, session: str) -> SessionHeader:
        """Return the header of one session by its full id. Raises UnknownName."""
        ...

    async def find(self, text: str) -> str:
        """Find a session by its id, a unique prefix of its id, or its name; return its id.

        Raises UnknownName if there is none and UsageError if several ids have the prefix.
        """
        ...

    async def check_name(self, name: str, session: str = "") -> None:
        """Check that a session may have this name.

        Arguments:
            session: its id, "" for a new session.

        Raises UsageError.
        """
        ...

    async def rename(self, session: str, name: str) -> None:
        """Name a session, or remove its name with "". Works while the session is being written.

        Raises UnknownName, and UsageError for a bad name.
        """
        ...

    async def delete(self, session: str) -> None:
        """Delete a session. Raises UnknownName, or JournalBusy while it is being written."""
        ...

    async def find_writer(self, session: str) -> str:
        """Describe the process writing a session; "" if none is."""
        ...
