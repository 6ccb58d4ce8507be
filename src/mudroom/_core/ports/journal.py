"""Journal ports: the append-only record of one session, and the store that holds all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Protocol

from msgspec import Struct

from ..events import StoredEvent


class Journal(Protocol):
    """The append-only record of one session.

    The position of an event is its number, from 1 without gaps.

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

        They are durable when this returns.

        If the caller is cancelled while it waits, the events are recorded nevertheless, before
        later ones.

        Raises JournalError; then none of the events is stored.
        """
        ...

    def read(
        self, after: int = 0, *, types: Collection[type[StoredEvent]] = ()
    ) -> AsyncIterator[StoredEvent]:
        """Yield the events recorded so far, oldest first; also after `close`.

        Arguments:
            after: position of the last event to skip.
            types: the wanted event types; () is all of them.
        """
        ...

    def follow(self, after: int = 0) -> AsyncIterator[StoredEvent]:
        """Yield the events after a position, then each new one when it is durable.

        Ends when the journal is closed.
        """
        ...

    async def close(self) -> None:
        """Finish writing and release the session."""
        ...


class SessionInfo(Struct, frozen=True, kw_only=True):
    """A session in the list of a store.

    Arguments:
        modified: time of the last write, seconds since 1970.
        size: bytes in the store.
    """

    id: str
    modified: float
    size: int


class SessionHeader(Struct, frozen=True, kw_only=True):
    """Facts about a session that a store can read quickly.

    Arguments:
        name: name given by the user, "" for none.
        created: seconds since 1970.
        program: version of mudroom that created it.
        folder: working folder of the session, "" if no event is recorded.
        summary: saved state of its summary, so that a list reads few events; "" for none.
    """

    id: str
    name: str
    created: float
    program: str
    folder: str
    summary: str = ""


class SessionStore(Protocol):
    """Store of many sessions, with one journal each. A session has one writer at a time.

    All methods raise JournalError if the store cannot be read or written.
    """

    async def create(self, session: str) -> Journal:
        """Create the journal of a new session and open it for writing.

        The session appears in the store with its first events, in one step. Before that, only
        `rename` and `find_writer` know it, and a crash leaves nothing.

        `session`: its id, a UUID.
        """
        ...

    async def open(self, session: str, *, read_only: bool = False) -> Journal:
        """Open the journal of a session by its whole id.

        Arguments:
            read_only: open it beside its writer; `append` raises JournalError.

        Raises UnknownName, and JournalBusy if another journal is open for writing.
        """
        ...

    async def list(self) -> Sequence[SessionInfo]:
        """Return all sessions, the last written first."""
        ...

    async def read_info(self, session: str) -> SessionInfo:
        """Return the list entry of one session, by its whole id. Raises UnknownName.

        It differs after each write.
        """
        ...

    async def read_header(self, session: str) -> SessionHeader:
        """Return the facts of one session, by its whole id. Raises UnknownName."""
        ...

    async def find(self, text: str) -> str:
        """Return the id of the session with this id, unique beginning of an id, or name.

        Raises UnknownName if there is none, UsageError if several ids begin like this.
        """
        ...

    async def check_name(self, name: str, session: str = "") -> None:
        """Check that a session can have this name.

        `session`: its id, "" for a new one. Raises UsageError.
        """
        ...

    async def rename(self, session: str, name: str) -> None:
        """Name a session, "" for none; also while it is written.

        Raises UnknownName, and UsageError for a bad name.
        """
        ...

    async def delete(self, session: str) -> None:
        """Delete a session. Raises UnknownName, and JournalBusy while it is written."""
        ...

    async def find_writer(self, session: str) -> str:
        """Return a description of the process that writes a session, "" if there is none."""
        ...
