"""Sessions in a store of the caller: created, resumed, forked."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict, Unpack

import pytest

from mudroom import Session, UsageError
from mudroom.errors import UnknownName
from mudroom.journals.memory import MemoryJournal, MemoryStore
from mudroom.models.scripted import ScriptedModel


class StoreOptions(TypedDict, total=False):
    store: MemoryStore
    journal: str | MemoryJournal
    resume: str
    fork: bool


def open_session(folder: Path, *answers: str, **options: Unpack[StoreOptions]) -> Session:
    return Session(
        model=ScriptedModel(list(answers)),
        cwd=str(folder),
        home=str(folder / "home"),
        sandbox="off",
        **options,
    )


async def test_a_session_is_resumed_from_the_store_of_the_caller(tmp_path: Path) -> None:
    store = MemoryStore()
    async with open_session(tmp_path, "one", store=store) as session:
        await session.run("first")
        assert await store.find_writer(session.id)
    await store.rename(session.id, "my work")
    async with open_session(tmp_path, "two", store=store, resume="my work") as again:
        assert again.id == session.id
        assert (await again.run("second")).text == "two"
    assert [info.id for info in await store.list()] == [session.id]
    assert not (tmp_path / "home" / "sessions").exists()


async def test_a_session_is_forked_in_the_store_of_the_caller(tmp_path: Path) -> None:
    store = MemoryStore()
    async with open_session(tmp_path, "one", store=store) as session:
        await session.run("first")
    async with open_session(tmp_path, "two", store=store, resume=session.id, fork=True) as fork:
        await fork.run("second")
    assert {info.id for info in await store.list()} == {session.id, fork.id}


async def test_a_journal_of_the_caller_is_resumed(tmp_path: Path) -> None:
    journal = MemoryJournal()
    async with open_session(tmp_path, "one", journal=journal) as session:
        await session.run("first")
    copy = MemoryJournal()
    await copy.append(*journal.events)
    async with open_session(tmp_path, "two", journal=copy, resume=session.id) as again:
        assert again.id == session.id
        await again.run("second")


async def test_a_memory_journal_without_a_store_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="MemoryStore"):
        async with open_session(tmp_path, journal="memory", resume="any"):
            pass


async def test_a_replay_model_reads_its_session_from_the_store_of_the_caller(
    tmp_path: Path,
) -> None:
    store = MemoryStore()
    async with open_session(tmp_path, "one", store=store) as session:
        await session.run("first")
    await store.rename(session.id, "my work")
    home = str(tmp_path / "home")
    for text in (session.id, "my work"):
        async with Session(
            model=f"replay:{text}", cwd=str(tmp_path), home=home, store=store, sandbox="off"
        ) as replayed:
            assert (await replayed.run("first")).text == "one"
    with pytest.raises(UnknownName, match="nothing"):
        async with Session(model="replay:nothing", cwd=str(tmp_path), home=home, store=store):
            pass
