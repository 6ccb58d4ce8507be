"""Journal ports: the record of a session, the store of all sessions, the clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from ...errors import JournalBusy, UnknownName, UsageError
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


_ID_CHARACTERS = frozenset("0123456789abcdef-")
_MAX_LENGTH = 80
# How many ids an error suggests.
_MAX_SUGGESTED = 3
# Characters of an id shown to users.
_SHORT_ID_LENGTH = 8


def select_session(text: str, ids: Sequence[str], names: Iterable[tuple[str, str]]) -> str:
    """Find the session that a user names by its id, the beginning of its id, or its name.

    Arguments:
        ids: all ids, the most recently written first.
        names: pairs of name and id; read only if no id starts with the text, as reading is slow.

    Raises UnknownName if there is none, UsageError if several ids begin with the text.

    Example:
        ids = ["0f8fad5b-d9cb-469f-a165-70867728950e"]
        assert select_session("0f8f", ids, []) == ids[0]
    """
    if text in ids:
        return text
    matches = [session for session in ids if text and session.startswith(text)]
    if len(matches) > 1:
        shown = ", ".join(matches[:5])
        more = ", …" if len(matches) > 5 else ""
        message = f"{len(matches)} sessions begin with {text!r}"
        raise UsageError(message, remedy=f"Write more of the id: {shown}{more}")
    if matches:
        return matches[0]
    by_name: dict[str, str] = {}
    for name, session in names:
        by_name.setdefault(name, session)
    if text in by_name:
        return by_name[text]
    raise _make_unknown_error(text, ids, by_name)


def make_missing_session_error(session: str) -> UnknownName:
    """Return the error for an id that no session has.

    It suggests no other session: servers ask for sessions that may not exist yet, and a list of
    all sessions can be long.

    Example:
        error = make_missing_session_error("0f8fad5b-d9cb-469f-a165-70867728950e")
    """
    return UnknownName("session", session, (), remedy="`mudroom runs` lists the sessions.")


def make_busy_error(writer: str, where: str) -> JournalBusy:
    """Return the error for a session that another writer has open.

    Arguments:
        writer: the process that writes it, such as "process 4711 on build-3".
        where: file or address of the session.

    Example:
        error = make_busy_error("process 4711", "session 0f8fad5b")
    """
    return JournalBusy(
        f"{writer} is writing this session",
        where=where,
        remedy="Wait for it or end it. --fork-session continues a copy; "
        "mudroom show reads it meanwhile.",
    )


def _make_unknown_error(text: str, ids: Sequence[str], names: Iterable[str]) -> UnknownName:
    """Make the error for a text that selects no session, naming the nearest ones."""
    from difflib import get_close_matches  # slow to import

    length = max(_SHORT_ID_LENGTH, len(text))
    known = [*names, *(session[:length] for session in ids)]
    near = get_close_matches(text, known, n=3, cutoff=0.6)
    if near:
        remedy = f"Did you mean {' or '.join(near)}?"
    elif ids:
        shown = ", ".join(session[:_SHORT_ID_LENGTH] for session in ids[:_MAX_SUGGESTED])
        remedy = f"The last ones: {shown}. `mudroom runs` lists them."
    else:
        remedy = "There are none."
    return UnknownName("session", text, known, remedy=remedy)


def check_session_name(name: str, names: Iterable[tuple[str, str]], session: str = "") -> None:
    """Check that a session can have this name; "" removes the name.

    Arguments:
        names: pairs of name and id of all sessions; read only if the name is valid.
        session: id of the session, "" for a new one.

    Raises UsageError if the name is invalid, looks like an id, or belongs to another session.

    Example:
        check_session_name("tax return", [("old work", "0f8fad5b")])
    """
    if name == "last" or (name and set(name.lower()) <= _ID_CHARACTERS):
        raise UsageError(f"{name!r} looks like a session id", remedy="Add a word to it.")
    is_one_line = name.isprintable() and name == name.strip()
    if len(name) > _MAX_LENGTH or not is_one_line or name.startswith("-"):
        raise UsageError(
            f"a name is one line of at most {_MAX_LENGTH} characters and does not begin "
            "with a dash",
            where=repr(name[:_MAX_LENGTH]),
        )
    if not name:
        return
    for other_name, other in names:
        if other_name == name and other != session:
            raise UsageError(
                f"session {other[:8]} has the name {name!r} already",
                remedy="Use another name, or rename that session first.",
            )


class Clock(Protocol):
    """Source of the time; `mudroom.testing` has one that does not wait."""

    def now(self) -> float:
        """Return seconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go backwards; `sleep` and asyncio timeouts follow them."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...
