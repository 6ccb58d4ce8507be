"""Which recorded session a command line goes on with, and what a dead process left in it."""

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
from ...journals.sqlite.store import SessionInfo, delete_old_sessions, list_sessions, session_path
from ...projections.safe_text import sanitize_line
from ...session import Session
from ..output.text import count_noun, truncate
from .session_start import SessionStart

MAX_OFFERED = 20
"""Most sessions a person is asked to choose from."""


def select_session(
    home: str,
    cwd: str,
    *,
    resume: str | None,
    latest: bool,
    fork: bool,
    id: str | None,
    name: str | None,
) -> SessionStart:
    """What the flags ask for.

    Arguments:
        resume: a name, an id or the beginning of one; "" has the person choose. latest: the last session of the folder `cwd`.
        id: for a new session or a fork. name: for whichever session it is.

    Raises UnknownName or UsageError when there is no such session, or the flags do not go together.
    """
    if resume is not None and latest:
        raise UsageError(
            "--continue and --resume name one session each", remedy="Give one of them."
        )
    path = (
        last_session(home, cwd)
        if latest
        else None
        if resume is None
        else find_session(home, cwd, resume)
    )
    if path is None and fork:
        raise UsageError(
            "--fork-session copies a session", remedy="Say which: add --continue or --resume ID."
        )
    if id and path is not None and not fork:
        raise UsageError(
            "--session-id is for a new session",
            remedy="Add --fork-session, or leave one of them out.",
        )
    new_id = _uuid(id, home) if id else ""
    if name:
        from ...journals.sqlite.session_names import check_name

        check_name(home, name, None if fork else path)
    if path is None:
        return SessionStart(id=new_id, name=name or "")
    return SessionStart(
        resume=path.stem, fork=fork, folder=session_folder(path), id=new_id, name=name or ""
    )


def find_session(home: str, cwd: str, name: str) -> Path:
    """The file of the session a person means; "" has them choose, where that can be. Raises UnknownName or UsageError."""
    from ...journals.sqlite.session_names import find_session

    if name:
        return last_session(home, cwd) if name == "last" else find_session(home, name)
    return _picked(home, cwd)


def last_session(home: str, cwd: str) -> Path:
    """The session that was last written of those that worked in this folder. Raises UsageError when there is none."""
    here = next(sessions_of_folder(home, cwd), None)
    if here is None:
        raise UsageError(
            "no session of this folder is recorded",
            where=os.path.realpath(cwd),
            remedy="mudroom runs lists all.",
        )
    return here.path


def sessions_of_folder(home: str, cwd: str) -> Iterator[SessionInfo]:
    """The sessions that worked in this folder, the one written last first."""
    here = os.path.realpath(cwd)
    return (info for info in list_sessions(home) if session_folder(info.path) == here)


def session_folder(path: Path) -> str:
    """The folder a recorded session works in, "" when its record cannot be read."""
    from ...journals.sqlite.reader import read_header

    try:
        first = read_header(path)[1]
    except JournalError:
        return ""
    return first.cwd if isinstance(first, SessionOpened) else ""


def delete_expired_sessions(settings: Settings) -> str:
    """Delete the sessions that are older than the settings want them kept; how many, in words, "" for none."""
    if settings.retention_days and (
        count := delete_old_sessions(settings.home, settings.retention_days)
    ):
        return f"{count_noun(count, 'session')} older than {count_noun(settings.retention_days, 'day')} deleted (retention_days)"
    return ""


def name_session(opened: Session, home: str, start: SessionStart) -> None:
    """Give a session that was just opened the name it was asked for."""
    if start.name:
        from ...journals.sqlite.session_names import rename_session

        rename_session(home, session_path(home, opened.id), start.name)


def unfinished_events(opened: Session, home: str) -> list[StoredEvent]:
    """Events of the runs that a dead process left unfinished in this session."""
    roots = set(opened.unfinished_runs)
    if not roots:
        return []
    from ...journals.sqlite.reader import open_reader

    return [
        event
        for event in open_reader(session_path(home, opened.id)).read()
        if event.run.partition(".")[0] in roots
    ]


def _uuid(id: str, home: str) -> str:
    try:
        chosen = str(uuid.UUID(id))
    except ValueError:
        raise UsageError(
            "--session-id must be a UUID", where=id, remedy=f"For example {uuid.uuid4()}."
        ) from None
    if session_path(home, chosen).exists():
        raise UsageError(
            "there is such a session already", where=chosen, remedy="Go on with it: --resume."
        )
    return chosen


def _picked(home: str, cwd: str) -> Path:
    """Have the person choose one of the last sessions of this folder."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "--resume needs a session where nobody can be asked",
            remedy="Name one of mudroom runs, or use --continue.",
        )
    from .list_sessions import summarize_session

    offered = [
        summarize_session(info) for info in islice(sessions_of_folder(home, cwd), MAX_OFFERED)
    ]
    if not offered:
        return last_session(home, cwd)
    for n, item in enumerate(offered, 1):
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(item.when))
        print(
            truncate(
                f"{n:>3}  {when}  {item.state:<11}  {sanitize_line(item.name or item.prompt)}", 100
            ),
            file=sys.stderr,
        )
    print("Which one? ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip()
    if not answer.isdecimal() or not 1 <= int(answer) <= len(offered):
        raise UsageError(
            f"there is no number {answer!r}", remedy=f"Choose one from 1 to {len(offered)}."
        )
    return session_path(home, offered[int(answer) - 1].id)
