"""Choice of the session that a command line continues, and work at the start of a session."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ..._core.events import SessionOpened, StoredEvent
from ...config import Settings
from ...errors import JournalError, UsageError
from ...journals.sqlite import session_names
from ...journals.sqlite.reader import open_reader, read_header
from ...journals.sqlite.store import SessionInfo, delete_old_sessions, list_sessions, session_path
from ...projections.safe_text import sanitize_line
from ...session import Session
from ..output.text import count_noun, truncate
from .session_start import SessionStart

MAX_OFFERED = 20
"""Maximum number of sessions in the list that the user chooses from."""


def select_session(
    home: str,
    cwd: str,
    *,
    resume: str | None = None,
    continue_last: bool = False,
    fork: bool = False,
    session_id: str | None = None,
    name: str | None = None,
) -> SessionStart:
    """Return the session that the flags select.

    Arguments:
        resume: a name, an id or the beginning of an id; "" asks the user.
        continue_last: the last session of the folder `cwd`. fork: continue with a copy.
        session_id: id of the new session or the copy. name: name to give to the session.

    Raises UnknownName, or UsageError for flags that contradict each other.
    """
    if resume is not None and continue_last:
        raise UsageError(
            "--continue and --resume each select a session", remedy="Use only one of them."
        )
    path = None
    if continue_last:
        path = last_session(home, cwd)
    elif resume is not None:
        path = find_session(home, cwd, resume)
    if path is None and fork:
        raise UsageError(
            "--fork-session needs a session to copy", remedy="Add --continue or --resume ID."
        )
    if session_id and path is not None and not fork:
        raise UsageError(
            "--session-id is for a new session", remedy="Add --fork-session, or remove it."
        )
    new_id = _check_new_id(session_id, home) if session_id else ""
    if name:
        session_names.check_name(home, name, None if fork else path)
    if path is None:
        return SessionStart(id=new_id, name=name or "")
    return SessionStart(
        resume=path.stem, fork=fork, folder=session_folder(path), id=new_id, name=name or ""
    )


def find_session(home: str, cwd: str, name: str) -> Path:
    """Return the file of a session.

    Arguments:
        name: a name, an id, the beginning of an id, or "last" for the last session of the folder
            `cwd`; "" asks the user.

    Raises UnknownName or UsageError.
    """
    if name == "last":
        return last_session(home, cwd)
    return session_names.find_session(home, name) if name else _ask_for_session(home, cwd)


def last_session(home: str, cwd: str) -> Path:
    """Return the file of the folder's last written session. Raises UsageError if there is none."""
    info = next(sessions_of_folder(home, cwd), None)
    if info is None:
        raise UsageError(
            "no session of this folder is recorded",
            where=os.path.realpath(cwd),
            remedy="mudroom runs lists all sessions.",
        )
    return info.path


def sessions_of_folder(home: str, cwd: str) -> Iterator[SessionInfo]:
    """Return the sessions that worked in this folder, the last written one first."""
    folder = os.path.realpath(cwd)
    return (info for info in list_sessions(home) if session_folder(info.path) == folder)


def session_folder(path: Path) -> str:
    """Return the folder that a recorded session works in, "" if its journal cannot be read."""
    try:
        first_event = read_header(path)[1]
    except JournalError:
        return ""
    return first_event.cwd if isinstance(first_event, SessionOpened) else ""


def delete_expired_sessions(settings: Settings) -> str:
    """Delete sessions older than the setting retention_days; return a notice, "" for none."""
    days = settings.retention_days
    count = delete_old_sessions(settings.home, days) if days else 0
    if not days or not count:
        return ""
    return (
        f"deleted {count_noun(count, 'session')} older than {count_noun(days, 'day')}"
        " (retention_days)"
    )


def name_session(session: Session, home: str, start: SessionStart) -> None:
    """Give an opened session the name that the command line asks for."""
    if start.name:
        session_names.rename_session(home, session_path(home, session.id), start.name)


def unfinished_events(session: Session, home: str) -> list[StoredEvent]:
    """Return the events of the runs that were interrupted in this session."""
    roots = set(session.unfinished_runs)
    if not roots:
        return []
    events = open_reader(session_path(home, session.id)).read()
    return [event for event in events if event.run.partition(".")[0] in roots]


def _check_new_id(text: str, home: str) -> str:
    """Return the id in its standard form. Raises UsageError if it is no UUID or is in use."""
    try:
        session_id = str(uuid.UUID(text))
    except ValueError:
        raise UsageError(
            "--session-id must be a UUID", where=text, remedy=f"For example {uuid.uuid4()}."
        ) from None
    if session_path(home, session_id).exists():
        raise UsageError(
            "a session with this id exists already",
            where=session_id,
            remedy=f"Continue it: --resume {session_id}",
        )
    return session_id


def _ask_for_session(home: str, cwd: str) -> Path:
    """Let the user choose one of the last sessions of this folder."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "--resume needs an ID when mudroom does not run in a terminal",
            remedy="mudroom runs lists the sessions; --continue takes the last one.",
        )
    from .list_sessions import read_summary

    infos = islice(sessions_of_folder(home, cwd), MAX_OFFERED)
    offered = [read_summary(info) for info in infos]
    if not offered:
        return last_session(home, cwd)
    for number, summary in enumerate(offered, 1):
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.when))
        title = sanitize_line(summary.name or summary.prompt)
        row = f"{number:>3}  {when}  {summary.state:<11}  {title}"
        print(truncate(row, 100), file=sys.stderr)
    print("Which session? ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline().strip()
    if not line.isdecimal() or not 1 <= int(line) <= len(offered):
        raise UsageError(
            f"{line!r} is not a number of the list",
            remedy=f"Choose one from 1 to {len(offered)}.",
        )
    return session_path(home, offered[int(line) - 1].id)
