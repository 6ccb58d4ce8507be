"""The user's session store: find, list and read recorded sessions."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection
from contextlib import suppress

from ..._core.events import StoredEvent
from ..._core.ports import SessionInfo, SessionStore
from ...errors import JournalBusy, JournalError, UsageError
from ...journals.sqlite.store import SqliteStore
from ...projections.session_summary import SUMMARY_TYPES, SessionSummary, summarize_session

_SECONDS_PER_DAY = 86_400


def open_store(home: str) -> SqliteStore:
    """Return the store in a state folder."""
    return SqliteStore(home)


async def find_session(store: SessionStore, cwd: str, text: str) -> str:
    """Return the id of a session.

    Arguments:
        text: an id, the beginning of one, a name, or "last" for the last session of the folder
            `cwd`.

    Raises UnknownName or UsageError.
    """
    return await last_session(store, cwd) if text == "last" else await store.find(text)


async def last_session(store: SessionStore, cwd: str) -> str:
    """Return the id of the folder's last written session. Raises UsageError if there is none."""
    async for info in sessions_of_folder(store, cwd):
        return info.id
    raise UsageError(
        "no session of this folder is recorded",
        where=os.path.realpath(cwd),
        remedy="mudroom runs lists all sessions.",
    )


async def sessions_of_folder(store: SessionStore, cwd: str) -> AsyncIterator[SessionInfo]:
    """Yield the sessions that worked in this folder, the last written one first."""
    folder = os.path.realpath(cwd)
    for info in await store.list():
        if await session_folder(store, info.id) == folder:
            yield info


async def session_folder(store: SessionStore, session_id: str) -> str:
    """Return the folder that a session works in, "" if its journal cannot be read."""
    try:
        return (await store.read_header(session_id)).folder
    except JournalError:
        return ""


async def read_events(
    store: SessionStore, session_id: str, types: Collection[type[StoredEvent]] = ()
) -> list[StoredEvent]:
    """Return the recorded events of a session. `types`: the wanted event types; () is all."""
    journal = await store.open(session_id, read_only=True)
    try:
        return [event async for event in journal.read(types=types)]
    finally:
        await journal.close()


async def read_summary(store: SessionStore, info: SessionInfo) -> SessionSummary:
    """Return the summary of a session; `error` is set if its journal cannot be read."""
    name = ""
    try:
        name = (await store.read_header(info.id)).name
        events = await read_events(store, info.id, SUMMARY_TYPES)
    except JournalError as error:
        return SessionSummary(
            id=info.id, when=info.modified, size=info.size, name=name, error=str(error)
        )
    summary = SessionSummary(id=info.id, when=info.modified, size=info.size, name=name)
    is_live = bool(await store.find_writer(info.id))
    return summarize_session(summary, events, is_live=is_live)


async def require_no_writer(store: SessionStore, session_id: str) -> None:
    """Raise JournalBusy if a process writes the session."""
    if writer := await store.find_writer(session_id):
        raise JournalBusy(
            f"{writer} is writing this session",
            where=session_id,
            remedy="Wait for it or end it. --fork-session continues a copy; mudroom show reads it.",
        )


async def delete_older_sessions(store: SessionStore, days: int, now: float) -> int:
    """Delete the sessions last written more than `days` ago; return how many were deleted."""
    deleted = 0
    for info in await store.list():
        if info.modified < now - days * _SECONDS_PER_DAY:
            with suppress(JournalBusy):
                await store.delete(info.id)
                deleted += 1
    return deleted
