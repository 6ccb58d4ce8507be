"""Names that users give to sessions: find a session by name, rename one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ...errors import JournalError, UnknownName, UsageError
from .reader import read_header
from .schema import write_name
from .store import SessionInfo, find_by_id, list_sessions

_ID_CHARACTERS = frozenset("0123456789abcdef-")
_MAX_LENGTH = 80


def find_session(home: str | Path, name: str) -> Path:
    """Return the file of the session with this id, unique beginning of an id, or name.

    Raises UnknownName if there is none, UsageError if several ids begin like this.
    """
    try:
        return find_by_id(home, name)
    except UnknownName as error:
        paths: dict[str, Path] = {}
        for info, session_name in _named_sessions(home):
            paths.setdefault(session_name, info.path)
        if name in paths:
            return paths[name]
        raise UnknownName("session", name, [*paths, *error.known]) from None


def rename_session(home: str | Path, session: Path, name: str) -> None:
    """Give a session a name, "" for none. `session`: its file. Raises UsageError as `check_name` does."""
    check_name(home, name, session)
    write_name(session, name)


def check_name(home: str | Path, name: str, session: Path | None = None) -> None:
    """Check that a session can have this name. `session`: its file, None for a new one.

    Raises UsageError if the name is invalid, looks like an id, or belongs to another session.
    """
    if name == "last" or (name and set(name.lower()) <= _ID_CHARACTERS):
        raise UsageError(f"{name!r} looks like a session id", remedy="Add a word to it.")
    is_one_line = name.isprintable() and name == name.strip()
    if len(name) > _MAX_LENGTH or not is_one_line or name.startswith("-"):
        raise UsageError(
            f"a name is one line of at most {_MAX_LENGTH} characters and does not begin with a dash",
            where=repr(name[:_MAX_LENGTH]),
        )
    if not name:
        return
    for info, session_name in _named_sessions(home):
        if session_name == name and info.path != session:
            raise UsageError(
                f"session {info.id[:8]} has the name {name!r} already",
                remedy="Use another name, or rename that session first.",
            )


def _named_sessions(home: str | Path) -> Iterator[tuple[SessionInfo, str]]:
    for info in list_sessions(home):
        with suppress(JournalError):
            if name := read_header(info.path)[0].name:
                yield info, name
