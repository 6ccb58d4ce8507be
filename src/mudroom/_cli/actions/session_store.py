"""The user's session store: finds, lists, reads and deletes recorded sessions."""

from __future__ import annotations

import asyncio
import os
import sys
import time
import uuid
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
from ..output.text import format_costs, format_tokens, truncate
from .session_start import SessionStart
from .user_store import open_store

_SECONDS_PER_DAY = 86_400

# Summaries read at the same time.
_READ_AT_ONCE = 10

# Sessions in the list that the user chooses from.
MAX_OFFERED = 20


async def find_session(store: SessionStore, cwd: str, text: str, *, without: str = "") -> str:
    """Find a session by id, the start of an id, name, or "last" for the last in `cwd`.

    "last" never means `without`. Raises UnknownName or UsageError.
    """
    if text == "last":
        return await find_last_session(store, cwd, without=without)
    return await store.find(text)


async def choose_session(home: str, name: str) -> str:
    """Choose the id of the session the viewer opens, "" for its list. Raises UnknownName.

    The name "" means this folder's last session, else the last of all.
    """
    store = open_store(home)
    if name:
        return await find_session(store, ".", name)
    async for info in list_sessions_of_folder(store, "."):
        return info.id
    infos = await store.list()
    return infos[0].id if infos else ""


async def read_session(home: str, name: str) -> tuple[str, list[StoredEvent]]:
    store = open_store(home)
    session_id = await find_session(store, ".", name)
    return session_id, await read_events(store, session_id)


async def resolve_replayed(store: SessionStore, cwd: str, model: str, *, without: str = "") -> str:
    """Replace names with session ids in the `replay:` parts of a model string."""
    # Before the session opens: afterwards "last" would mean this session itself.
    names: list[str] = []
    for name in model.split(","):
        prefix, _, text = name.partition(":")
        if prefix.strip() == "replay":
            name = f"replay:{await find_session(store, cwd, text, without=without)}"
        names.append(name)
    return ",".join(names)


async def find_last_session(store: SessionStore, cwd: str, *, without: str = "") -> str:
    """Find the id of the session last written here. Raises UsageError if there is none."""
    folder = find_real_path(cwd)
    moved = ""
    for info in await store.list():
        worked_in = await read_session_folder(store, info.id)
        if worked_in == folder and info.id != without:
            return info.id
        if not moved and worked_in and not os.path.isdir(worked_in):
            short = info.id[:8]
            # A guess could continue another project's work here, so the user decides.
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
    """Yield the sessions that worked in this folder, latest written first."""
    folder = find_real_path(cwd)
    for info in await store.list():
        if await read_session_folder(store, info.id) == folder:
            yield info


async def read_session_folder(store: SessionStore, session_id: str) -> str:
    """Read the folder a session works in, "" if its journal cannot be read."""
    try:
        return path_from_text((await store.read_header(session_id)).folder)
    except JournalError:
        return ""


async def read_summaries_of_folder(
    store: SessionStore, cwd: str, *, without: str = "", limit: int = MAX_OFFERED
) -> list[SessionSummary]:
    infos = await list_infos(store, cwd, limit, without=without)
    return [await read_summary(store, info) for info in infos]


async def read_newest_summaries(
    store: SessionStore,
    folder: str | None,
    limit: int,
    show: Callable[[SessionSummary], None],
) -> list[SessionSummary]:
    """Read the newest summaries, showing each as soon as it is read."""
    infos = await list_infos(store, folder, limit)
    summaries: list[SessionSummary] = []
    for start in range(0, len(infos), _READ_AT_ONCE):
        batch = infos[start : start + _READ_AT_ONCE]
        for summary in await asyncio.gather(*[read_summary(store, info) for info in batch]):
            summaries.append(summary)
            show(summary)
    return summaries


async def list_infos(
    store: SessionStore, folder: str | None, limit: int, *, without: str = ""
) -> list[SessionInfo]:
    if folder is None:
        return list(await store.list())[:limit]
    infos: list[SessionInfo] = []
    async for info in list_sessions_of_folder(store, folder):
        if info.id != without:
            infos.append(info)
        if len(infos) == limit:
            break
    return infos


def describe_session(summary: SessionSummary) -> str:
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
    deleted = 0
    for info in await store.list():
        if info.modified < now - days * _SECONDS_PER_DAY:
            # An open session is not expired, however long ago it was last written.
            with suppress(JournalBusy):
                await delete_session(store, home, info.id)
                deleted += 1
    return deleted


async def delete_session(store: SessionStore, home: str, session_id: str) -> None:
    """Delete a session and the answers to its calls on the task boards.

    Raises JournalBusy for an open session.
    """
    from ..._adapters.boards.session_board import delete_answers

    await delete_from_store(store, home, session_id)
    await asyncio.to_thread(delete_answers, home, session_id)


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
    """Select the session named by the flags.

    `resume` "" asks the user, with `asks_at_prompt` at the interactive prompt. `session_id` is for
    a new session or the copy. Raises UnknownName, or UsageError for flags that contradict each
    other.
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
    """Return the id in standard form. Raises UsageError if it is not a UUID or is in use."""
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
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "--resume needs an ID when mudroom does not run in a terminal",
            remedy="mudroom runs lists the sessions; --continue takes the last one.",
        )
    offered = await read_summaries_of_folder(store, cwd)
    # Raises the error for an empty list.
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
