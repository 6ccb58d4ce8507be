"""SQLite store: the conformance suite, and the behaviour of a folder of files."""

import asyncio
import os
from pathlib import Path

import pytest

from mudroom._core.events import NoteInjected, SessionOpened
from mudroom.errors import JournalDamaged, JournalError, UnknownName
from mudroom.journals.sqlite.store import SqliteStore
from mudroom.testing.journal_conformance import read_all
from mudroom.testing.store_conformance import CHECKS, Check

from ..waiting import wait_until

ID = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"


def make_opening(session: str) -> SessionOpened:
    return SessionOpened(at=1, session=session, cwd="/work", version="1")


async def create(store: SqliteStore, session: str, *, notes: int = 0) -> Path:
    journal = await store.create(session)
    await journal.append(make_opening(session))
    await journal.append(
        *(NoteInjected(at=n, run="1", text="x" * 300) for n in range(2, notes + 2))
    )
    await journal.close()
    return store.get_path(session)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_a_sqlite_store_conforms(check: Check, tmp_path: Path) -> None:
    await check(lambda: SqliteStore(tmp_path / "home"))


async def test_a_damaged_session_hides_no_other(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await create(store, ID)
    path = await create(store, OTHER)
    await store.rename(ID, "my work")
    path.write_bytes(b"no database " * 500)
    assert {info.id for info in await store.list()} == {ID, OTHER}
    assert await store.find("my work") == ID
    with pytest.raises(JournalDamaged):
        await store.read_header(OTHER)
    await store.delete(OTHER)
    assert [info.id for info in await store.list()] == [ID]


async def test_an_unreadable_folder_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "sessions").write_text("a file")
    with pytest.raises(JournalError, match="MUDROOM_HOME"):
        await SqliteStore(tmp_path).list()


async def test_no_path_outside_of_the_folder_is_opened(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "home")
    await create(store, ID)
    (tmp_path / "outside.db").write_bytes(store.get_path(ID).read_bytes())
    for session in ("../../outside", "", "/etc/passwd"):
        with pytest.raises(UnknownName):
            await store.open(session, read_only=True)
        with pytest.raises(UnknownName):
            await store.create(session)
        with pytest.raises(UnknownName):
            await store.delete(session)


async def test_a_deleted_session_leaves_no_long_outputs(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await create(store, ID)
    spill = tmp_path / "spills" / ID / "1.txt"
    spill.parent.mkdir(parents=True)
    spill.write_text("long output")
    await store.delete(ID)
    assert not spill.parent.exists()
    assert list((tmp_path / "sessions").iterdir()) == []


async def test_a_damaged_journal_gives_its_events_up_to_the_damage(tmp_path: Path) -> None:
    import sqlite3

    store = SqliteStore(tmp_path)
    path = await create(store, ID, notes=600)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE events SET crc = crc + 1 WHERE seq = 500")
    connection.commit()
    connection.close()
    journal = await store.open(ID, read_only=True)
    times: list[float] = []
    with pytest.raises(JournalDamaged, match="record 500 is damaged"):
        async for event in journal.read():
            times.append(event.at)
    assert times == list(range(1, 500))


async def test_the_event_loop_runs_while_a_long_journal_is_read(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await create(store, ID, notes=20_000)
    journal = await store.open(ID, read_only=True)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    assert len(await read_all(journal)) == 20_001
    counting.cancel()
    # 20,001 events are 79 batches; the loop runs at least once for each.
    assert turns > 50


async def test_a_read_that_is_not_finished_releases_the_file(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await create(store, ID, notes=600)
    journal = await store.open(ID, read_only=True)
    async for event in journal.read():
        assert event.at == 1
        break
    await wait_until(lambda: not is_open(store.get_path(ID)))
    await store.delete(ID)


def is_open(path: Path) -> bool:
    """Return True if this process has the file open."""
    return str(path) in {os.path.realpath(link) for link in Path("/dev/fd").iterdir()}
