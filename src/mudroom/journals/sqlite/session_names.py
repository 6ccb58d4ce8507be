"""Names that people give to sessions: finding one by its name, giving one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ...errors import JournalError, UnknownName, UsageError
from .journal import read_header
from .schema import write_name
from .store import SessionInfo, find_by_id, list_sessions

_HEX = frozenset("0123456789abcdef-")
_MOST = 80


def find_session(home: str | Path, name: str) -> Path:
    """The file of the session with that id, the beginning of an id, or that name.

    Raises UnknownName when there is none, UsageError when an id can be completed in several ways.
    """
    try:
        return find_by_id(home, name)
    except UnknownName as error:
        names = dict[str, Path]()
        for info, given in _named(home):
            names.setdefault(given, info.path)
        if name in names:
            return names[name]
        raise UnknownName("session", name, [*names, *error.known]) from None


def rename_session(home: str | Path, session: Path, name: str) -> None:
    """Give a session a name, "" for none. Raises UsageError as `fit` does. `session`: its file."""
    check_name(home, name, session)
    write_name(session, name)


def check_name(home: str | Path, name: str, session: Path | None = None) -> None:
    """Check that a name can be given to a session, None for a new one. Raises UsageError: another has it, or it could be an id."""
    if name == "last" or (name and set(name.lower()) <= _HEX):
        raise UsageError(f"{name!r} could be taken for an id", remedy="Add a word to it.")
    if len(name) > _MOST or not name.isprintable() or name != name.strip() or name.startswith("-"):
        raise UsageError(
            "a name is one line of at most 80 characters and begins with no dash",
            where=repr(name[:_MOST]),
        )
    for info, given in _named(home) if name else ():
        if given == name and info.path != session:
            raise UsageError(
                f"session {info.id[:8]} has the name {name!r} already",
                remedy="Take another, or rename that one first.",
            )


def _named(home: str | Path) -> Iterator[tuple[SessionInfo, str]]:
    for info in list_sessions(home):
        with suppress(JournalError):
            if name := read_header(info.path)[0].name:
                yield info, name
