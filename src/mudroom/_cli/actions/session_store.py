"""The user's session store: finds, lists, reads and deletes recorded sessions."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from ..._adapters.journals.sessions import delete_session as delete_from_store
from ..._adapters.journals.sessions import read_events, read_summary
from ..._core.events import StoredEvent
from ..._core.listings import count_noun
from ..._core.ports import SessionInfo, SessionStore
from ..._platform.open_beneath import find_real_path
from ..._platform.paths import path_from_text
from ..._projections.safe_text import sanitize_line
from ..._projections.session_summary import SessionSummary
from ..._session.config import Settings
from ...errors import JournalBusy, JournalError, UsageError
from ..output.text import format_costs, format_tokens
from .user_store import open_store

_SECONDS_PER_DAY = 86_400

# Sessions whose summaries are read at the same time.
_READ_AT_ONCE = 10

# Sessions in the list that the user chooses from.
MAX_OFFERED = 20


async def find_session(store: SessionStore, cwd: str, text: str, *, without: str = "") -> str:
    """Return the id of a session. Raises UnknownName or UsageError.

    Arguments:
        text: an id, the beginning of one, a name, or "last" for the last session of the folder
            `cwd`.
        without: id of a session that "last" does not mean.
    """
    if text == "last":
        return await find_last_session(store, cwd, without=without)
    return await store.find(text)


async def read_session(home: str, name: str) -> tuple[str, list[StoredEvent]]:
    """Return the id and the events of a session; for its name see `find_session`."""
    store = open_store(home)
    session_id = await find_session(store, ".", name)
    return session_id, await read_events(store, session_id)


async def resolve_replayed(store: SessionStore, cwd: str, model: str, *, without: str = "") -> str:
    """Return a model string with the session's id in each `replay:` part; see `find_session`."""
    # Before the session opens, because "last" would then mean this session itself.
    names: list[str] = []
    for name in model.split(","):
        prefix, _, text = name.partition(":")
        if prefix.strip() == "replay":
            name = f"replay:{await find_session(store, cwd, text, without=without)}"
        names.append(name)
    return ",".join(names)


async def find_last_session(store: SessionStore, cwd: str, *, without: str = "") -> str:
    """Return the id of the session last written here. Raises UsageError if there is none."""
    folder = find_real_path(cwd)
    moved = ""
    for info in await store.list():
        worked_in = await read_session_folder(store, info.id)
        if worked_in == folder and info.id != without:
            return info.id
        if not moved and worked_in and not os.path.isdir(worked_in):
            short = info.id[:8]
            # A guess could let the work of another project go on here, so the user decides.
            moved = (
                f"The folder of session {short} is gone: {worked_in}. If you moved it here: "
                f"mudroom -C . --resume {short}. "
            )
    raise UsageError(
        "no session of this folder is recorded",
        where=folder,
        remedy=f"{moved}mudroom runs lists all sessions.",
    )


async def list_sessions_of_folder(store: SessionStore, cwd: str) -> AsyncIterator[SessionInfo]:
    """Yield the sessions that worked in this folder, the last written first."""
    folder = find_real_path(cwd)
    for info in await store.list():
        if await read_session_folder(store, info.id) == folder:
            yield info


async def read_session_folder(store: SessionStore, session_id: str) -> str:
    """Return the folder that a session works in, "" if its journal cannot be read."""
    try:
        return path_from_text((await store.read_header(session_id)).folder)
    except JournalError:
        return ""


async def read_summaries_of_folder(
    store: SessionStore, cwd: str, *, without: str = "", limit: int = MAX_OFFERED
) -> list[SessionSummary]:
    """Read the summaries of the folder's last sessions, at most `limit`.

    Arguments:
        without: id of a session to leave out.
    """
    summaries: list[SessionSummary] = []
    async for info in list_sessions_of_folder(store, cwd):
        if info.id != without:
            summaries.append(await read_summary(store, info))
        if len(summaries) == limit:
            break
    return summaries


async def read_newest_summaries(
    store: SessionStore,
    folder: str | None,
    limit: int,
    show: Callable[[SessionSummary], None],
) -> list[SessionSummary]:
    """Read the summaries of the newest sessions, and show each as soon as it is read.

    Arguments:
        folder: only sessions of this folder; None is all.
        limit: maximum number of sessions.
    """
    infos = await _list_infos(store, folder, limit)
    summaries: list[SessionSummary] = []
    for start in range(0, len(infos), _READ_AT_ONCE):
        batch = infos[start : start + _READ_AT_ONCE]
        for summary in await asyncio.gather(*[read_summary(store, info) for info in batch]):
            summaries.append(summary)
            show(summary)
    return summaries


async def _list_infos(store: SessionStore, folder: str | None, limit: int) -> list[SessionInfo]:
    if folder is None:
        return list(await store.list())[:limit]
    infos: list[SessionInfo] = []
    async for info in list_sessions_of_folder(store, folder):
        infos.append(info)
        if len(infos) == limit:
            break
    return infos


def describe_session(summary: SessionSummary) -> str:
    """Describe a session in one line: time, title, prompts, tokens, costs, and its state."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.when))
    figures = [count_noun(summary.prompts, "prompt"), f"{format_tokens(summary.tokens)} tokens"]
    if summary.usd:
        figures.append(format_costs(summary.usd))
    if summary.state != "finished":
        figures.append(summary.state)
    title = sanitize_line(summary.name or summary.topic, 60)
    return f"{when}  {title} ({', '.join(figures)})"


async def delete_expired_sessions(settings: Settings) -> str:
    """Delete sessions older than the setting retention_days; return a notice, "" for none."""
    days = settings.retention_days
    if not days:
        return ""
    count = await delete_older_sessions(open_store(settings.home), settings.home, days, time.time())
    if not count:
        return ""
    return (
        f"deleted {count_noun(count, 'session')} older than {count_noun(days, 'day')}"
        " (retention_days)"
    )


async def delete_older_sessions(store: SessionStore, home: str, days: int, now: float) -> int:
    """Delete the sessions last written more than `days` ago; return how many were deleted."""
    deleted = 0
    for info in await store.list():
        if info.modified < now - days * _SECONDS_PER_DAY:
            # A session that is open is not expired, however long ago it was written.
            with suppress(JournalBusy):
                await delete_session(store, home, info.id)
                deleted += 1
    return deleted


async def delete_session(store: SessionStore, home: str, session_id: str) -> None:
    """Delete a session, and the answers to its calls on the task boards.

    Raises JournalBusy for a session that is open.
    """
    from ..._adapters.boards.session_board import delete_answers

    await delete_from_store(store, home, session_id)
    await asyncio.to_thread(delete_answers, home, session_id)
