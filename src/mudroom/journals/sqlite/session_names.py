"""Session names in a state folder: blocking functions for the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ...errors import JournalError
from .. import session_names
from .folder import list_sessions, session_path
from .reader import read_header
from .schema import write_name


def find_session(home: str | Path, name: str) -> Path:
    """Return the file of the session with this id, unique beginning of an id, or name."""
    ids = [info.id for info in list_sessions(home)]
    return session_path(home, session_names.select_session(name, ids, _names(home)))


def rename_session(home: str | Path, session: Path, name: str) -> None:
    """Give a session a name, "" for none.

    `session`: its file. Raises UsageError as `check_name` does.
    """
    check_name(home, name, session)
    write_name(session, name)


def check_name(home: str | Path, name: str, session: Path | None = None) -> None:
    """Check that a session can have this name. `session`: its file, None for a new one."""
    session_names.check_name(name, _names(home), session.stem if session else "")


def _names(home: str | Path) -> Iterator[tuple[str, str]]:
    for info in list_sessions(home):
        with suppress(JournalError):
            if name := read_header(info.path)[0].name:
                yield name, info.id
