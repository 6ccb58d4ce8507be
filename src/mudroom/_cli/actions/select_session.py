"""Chooses the session that a command line continues."""

from __future__ import annotations

import sys
import uuid

from ..._core.ports import SessionStore
from ...errors import UsageError
from ..output.text import truncate
from .session_start import SessionStart
from .session_store import (
    describe_session,
    find_last_session,
    find_session,
    read_session_folder,
    read_summaries_of_folder,
)


async def select_session(
    store: SessionStore,
    cwd: str,
    *,
    resume: str | None = None,
    continue_last: bool = False,
    fork: bool = False,
    session_id: str | None = None,
    name: str | None = None,
    asks_at_prompt: bool = False,
) -> SessionStart:
    """Return the session that the flags select.

    Arguments:
        resume: a name, an id or the beginning of an id; "" asks the user.
        continue_last: the last session of the folder `cwd`. fork: continue with a copy.
        session_id: id of the new session or the copy. name: name to give to the session.
        asks_at_prompt: the interactive prompt asks the user, not this function.

    Raises UnknownName, or UsageError for flags that contradict each other.
    """
    if resume is not None and continue_last:
        raise UsageError(
            "--continue and --resume each select a session", remedy="Use only one of them."
        )
    resumed = ""
    asks = resume == "" and asks_at_prompt
    if asks:
        await find_last_session(store, cwd)  # an error if there is none
    elif continue_last:
        resumed = await find_last_session(store, cwd)
    elif resume is not None:
        resumed = await (
            find_session(store, cwd, resume) if resume else _ask_for_session(store, cwd)
        )
    if fork and not (resumed or asks):
        raise UsageError(
            "--fork-session needs a session to copy", remedy="Add --continue or --resume ID."
        )
    if session_id and (resumed or asks) and not fork:
        raise UsageError(
            "--session-id is for a new session", remedy="Add --fork-session, or remove it."
        )
    new_id = await _check_new_id(session_id, store) if session_id else ""
    if name:
        await store.check_name(name, "" if fork else resumed)
    folder = await read_session_folder(store, resumed) if resumed else ""
    return SessionStart(
        resume=resumed, fork=fork, folder=folder, id=new_id, name=name or "", asks=asks
    )


async def _check_new_id(text: str, store: SessionStore) -> str:
    """Return the id in its standard form. Raises UsageError if it is no UUID or is in use."""
    try:
        session_id = str(uuid.UUID(text))
    except ValueError:
        raise UsageError(
            "--session-id must be a UUID", where=text, remedy=f"For example {uuid.uuid4()}."
        ) from None
    if any(info.id == session_id for info in await store.list()):
        raise UsageError(
            "a session with this id exists already",
            where=session_id,
            remedy=f"Continue it: --resume {session_id}",
        )
    return session_id


async def _ask_for_session(store: SessionStore, cwd: str) -> str:
    """Let the user choose one of the last sessions of this folder."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "--resume needs an ID when mudroom does not run in a terminal",
            remedy="mudroom runs lists the sessions; --continue takes the last one.",
        )
    offered = await read_summaries_of_folder(store, cwd)
    # Raises the error that says so.
    if not offered:
        return await find_last_session(store, cwd)
    for number, summary in enumerate(offered, 1):
        # stdout is for the answer alone.
        print(truncate(f"{number:>3}  {describe_session(summary)}", 100), file=sys.stderr)
    print("Which session? ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline().strip()
    if not line.isdecimal() or not 1 <= int(line) <= len(offered):
        raise UsageError(
            f"{line!r} is not a number of the list",
            remedy=f"Choose one from 1 to {len(offered)}.",
        )
    return offered[int(line) - 1].id
