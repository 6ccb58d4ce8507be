"""Commands on recorded sessions use nothing but the port SessionStore: here a store in memory."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from mudroom import Reason
from mudroom._adapters.journals.memory import MemoryStore
from mudroom._adapters.journals.sessions import read_summary, require_no_writer
from mudroom._cli.actions.session_store import (
    delete_older_sessions,
    find_session,
    read_summaries_of_folder,
    select_session,
)
from mudroom.errors import JournalBusy, UnknownName, UsageError
from mudroom.events import SessionOpened
from mudroom.testing.event_builders import run_finished, run_started


async def record_session(store: MemoryStore, folder: Path, prompt: str) -> str:
    session_id = str(uuid.uuid4())
    journal = await store.create(session_id)
    await journal.append(
        SessionOpened(at=0, session=session_id, cwd=str(folder), version="0"),
        run_started("1", prompt=prompt),
        run_finished("1"),
    )
    await journal.close()
    return session_id


async def test_the_last_session_of_a_folder_is_selected(tmp_path: Path) -> None:
    store = MemoryStore()
    here = await record_session(store, tmp_path, "here")
    await record_session(store, tmp_path / "elsewhere", "there")
    assert await find_session(store, str(tmp_path), "last") == here
    start = await select_session(store, str(tmp_path), continue_last=True)
    assert (start.resume, start.folder) == (here, str(tmp_path))
    with pytest.raises(UsageError, match="no session of this folder"):
        await find_session(store, str(tmp_path / "empty"), "last")
    with pytest.raises(UnknownName):
        await find_session(store, str(tmp_path), "nothing")


async def test_a_summary_has_the_name_the_prompt_and_the_reason(tmp_path: Path) -> None:
    store = MemoryStore()
    session_id = await record_session(store, tmp_path, "look")
    await store.rename(session_id, "my job")
    (summary,) = await read_summaries_of_folder(store, str(tmp_path))
    (info,) = await store.list()
    assert summary == await read_summary(store, info)
    assert (summary.name, summary.prompt, summary.reason) == ("my job", "look", Reason.GOAL.value)
    assert await read_summaries_of_folder(store, str(tmp_path), without=session_id) == []


async def test_a_session_that_is_written_is_busy_and_is_not_deleted(tmp_path: Path) -> None:
    store = MemoryStore()
    session_id = await record_session(store, tmp_path, "look")
    (info,) = await store.list()
    journal = await store.open(session_id)
    with pytest.raises(JournalBusy, match="this process"):
        await require_no_writer(store, session_id)
    much_later = info.modified + 10 * 86_400
    assert await delete_older_sessions(store, str(tmp_path), 9, much_later) == 0
    await journal.close()
    assert await delete_older_sessions(store, str(tmp_path), 11, much_later) == 0
    assert await delete_older_sessions(store, str(tmp_path), 9, much_later) == 1
    assert not await store.list()
