"""Which recorded session a command line goes on with, and what a dead process left in it."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ..._core.events import SessionOpened, Stored
from ...config import Settings
from ...errors import JournalError, UsageError
from ...journals.sqlite.store import SessionInfo, session_path, sessions, sweep
from ...session import Session
from ..output.text import cut, one_line, plural
from .session_start import Start

OFFERED = 20
"""Most sessions a person is asked to choose from."""


def chosen(
    home: str,
    cwd: str,
    *,
    resume: str | None,
    latest: bool,
    fork: bool,
    id: str | None,
    name: str | None,
) -> Start:
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
    path = last(home, cwd) if latest else None if resume is None else found(home, cwd, resume)
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
        from ...journals.sqlite.session_names import fit

        fit(home, name, None if fork else path)
    if path is None:
        return Start(id=new_id, name=name or "")
    return Start(resume=path.stem, fork=fork, folder=folder(path), id=new_id, name=name or "")


def found(home: str, cwd: str, name: str) -> Path:
    """The file of the session a person means; "" has them choose, where that can be. Raises UnknownName or UsageError."""
    from ...journals.sqlite.session_names import named

    if name:
        return last(home, cwd) if name == "last" else named(home, name)
    return _picked(home, cwd)


def last(home: str, cwd: str) -> Path:
    """The session that was last written of those that worked in this folder. Raises UsageError when there is none."""
    here = next(of_folder(home, cwd), None)
    if here is None:
        raise UsageError(
            "no session of this folder is recorded",
            where=os.path.realpath(cwd),
            remedy="mudroom runs lists all.",
        )
    return here.path


def of_folder(home: str, cwd: str) -> Iterator[SessionInfo]:
    """The sessions that worked in this folder, the one written last first."""
    here = os.path.realpath(cwd)
    return (info for info in sessions(home) if folder(info.path) == here)


def folder(path: Path) -> str:
    """The folder a recorded session works in, "" when its record cannot be read."""
    from ...journals.sqlite.journal import glance

    try:
        first = glance(path)[1]
    except JournalError:
        return ""
    return first.cwd if isinstance(first, SessionOpened) else ""


def tidy(settings: Settings) -> str:
    """Delete the sessions that are older than the settings want them kept; how many, in words, "" for none."""
    if settings.retention_days and (count := sweep(settings.home, settings.retention_days)):
        return f"{plural(count, 'session')} older than {plural(settings.retention_days, 'day')} deleted (retention_days)"
    return ""


def begun(opened: Session, home: str, start: Start) -> None:
    """Give a session that was just opened the name it was asked for."""
    if start.name:
        from ...journals.sqlite.session_names import give

        give(home, session_path(home, opened.id), start.name)


def left(opened: Session, home: str) -> list[Stored]:
    """Events of the runs that a dead process left unfinished in this session."""
    roots = set(opened.unfinished)
    if not roots:
        return []
    from ...journals.sqlite.journal import read_only

    return [
        event
        for event in read_only(session_path(home, opened.id)).read()
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
    from .list_sessions import summary

    offered = [summary(info) for info in islice(of_folder(home, cwd), OFFERED)]
    if not offered:
        return last(home, cwd)
    for n, item in enumerate(offered, 1):
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(item.when))
        print(
            cut(f"{n:>3}  {when}  {item.state:<11}  {one_line(item.name or item.prompt)}", 100),
            file=sys.stderr,
        )
    print("Which one? ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip()
    if not answer.isdecimal() or not 1 <= int(answer) <= len(offered):
        raise UsageError(
            f"there is no number {answer!r}", remedy=f"Choose one from 1 to {len(offered)}."
        )
    return session_path(home, offered[int(answer) - 1].id)
