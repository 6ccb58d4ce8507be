"""SQLite store: the behaviour of a folder of files."""

import asyncio
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from types import FrameType

import pytest

from mudroom._adapters.journals.sessions import read_events, read_summary
from mudroom._adapters.journals.sqlite import summaries as sqlite_summaries
from mudroom._adapters.journals.sqlite.store import SqliteStore
from mudroom._core.events import NoteInjected, SessionClosed, SessionOpened
from mudroom._core.messages import Usage
from mudroom._projections.session_summary import (
    SAVE_INTERVAL,
    SUMMARY_TYPES,
    SessionSummary,
    decode_state,
    summarize_session,
)
from mudroom.errors import JournalDamaged, JournalError, UnknownName
from mudroom.testing.event_builders import run_finished, run_started
from mudroom.testing.journal_conformance import read_all

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


async def create_long(store: SqliteStore) -> None:
    """Create a session of 601 events with some runs; its last saved summary has 600 of them."""
    journal = await store.create(ID)
    await journal.append(make_opening(ID))
    for root in range(100):
        run = str(root)
        note = NoteInjected(at=root, run=run, text="x" * 300)
        await journal.append(run_started(run, prompt=f"prompt {run}"), note, note)
        await journal.append(note, note, run_finished(run, usage=Usage(root, 1)))
    await journal.close()


def spoil(store: SqliteStore, statement: str) -> None:
    with closing(sqlite3.connect(store.get_path(ID), isolation_level=None)) as connection:
        connection.execute(statement)


async def summarize(store: SqliteStore) -> SessionSummary:
    """Return the summary, which is the same without an event loop."""
    info = await store.read_info(ID)
    summary = await read_summary(store, info)
    assert sqlite_summaries.read_summary(str(store.home), info) == summary
    return summary


async def read_saved_position(store: SqliteStore) -> int:
    return decode_state((await store.read_header(ID)).summary).position


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


async def test_a_relative_folder_stays_that_of_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("home")
    await create(store, ID)
    monkeypatch.chdir("/")
    assert store.get_path(ID) == tmp_path / "home" / "sessions" / f"{ID}.db"
    assert (await summarize(store)).error == ""
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
    store = SqliteStore(tmp_path)
    await create(store, ID, notes=600)
    spoil(store, "UPDATE events SET crc = crc + 1 WHERE seq = 500")
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


async def test_a_list_reads_few_events_of_a_long_session(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await create_long(store)
    whole = await summarize(store)
    assert (whole.prompts, whole.prompt, whole.state) == (100, "prompt 0", "finished")
    assert 601 - SAVE_INTERVAL < await read_saved_position(store) <= 601
    # Damage shows that these events are not read. Other commands find it.
    spoil(store, "UPDATE events SET crc = 0 WHERE seq = 5")
    damaged = await summarize(store)
    assert (damaged.error, damaged.prompts, damaged.tokens) == ("", 100, whole.tokens)
    with pytest.raises(JournalDamaged):
        await read_events(store, ID)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM meta WHERE key = 'summary'",
        "UPDATE meta SET value = 'no state' WHERE key = 'summary'",
        "UPDATE meta SET value = x'ff' WHERE key = 'summary'",
        "DELETE FROM events WHERE seq > 50",
        "UPDATE events SET crc = 0 WHERE seq = 600",
    ],
    ids=["an older program", "no state", "no text", "lost end", "damaged end"],
)
async def test_a_list_is_right_without_a_valid_saved_summary(
    statement: str, tmp_path: Path
) -> None:
    store = SqliteStore(tmp_path)
    await create_long(store)
    spoil(store, statement)
    info = await store.read_info(ID)
    blank = SessionSummary(id=ID, when=info.modified, size=info.size)
    try:
        expected = summarize_session(blank, await read_events(store, ID, SUMMARY_TYPES))
    except JournalDamaged as error:
        expected = SessionSummary(id=ID, when=info.modified, size=info.size, error=str(error))
    assert await summarize(store) == expected


async def test_the_first_event_in_a_file_of_an_older_program_saves_a_summary(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path)
    await create_long(store)
    spoil(store, "DELETE FROM meta WHERE key = 'summary'")
    journal = await store.open(ID)
    await journal.append(run_started("200"))
    await journal.close()
    assert await read_saved_position(store) == 602
    summary = await summarize(store)
    assert (summary.prompts, summary.state) == (101, "interrupted")


async def test_the_end_of_a_session_saves_its_summary(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    journal = await store.create(ID)
    await journal.append(make_opening(ID), run_started("1", prompt="look"), run_finished("1"))
    assert await read_saved_position(store) == 0
    await journal.append(SessionClosed(at=1))
    await journal.close()
    assert await read_saved_position(store) == 4
    assert (await summarize(store)).prompt == "look"


async def test_a_list_without_an_event_loop_has_the_last_sessions_of_a_folder(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path)
    for number, session in enumerate((ID, OTHER)):
        path = await create(store, session, notes=1)
        os.utime(path, (number, number))
    home = str(tmp_path)
    assert [each.id for each in sqlite_summaries.read_summaries(home, None, 2)] == [OTHER, ID]
    assert [each.id for each in sqlite_summaries.read_summaries(home, "/work", 1)] == [OTHER]
    assert not list(sqlite_summaries.read_summaries(home, "/elsewhere", 2))


async def test_a_damaged_file_gets_no_new_summary(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await create_long(store)
    spoil(store, "DELETE FROM meta WHERE key = 'summary'")
    spoil(store, "UPDATE events SET crc = 0 WHERE seq = 5")
    journal = await store.open(ID)
    await journal.append(*(NoteInjected(at=1, run="1", text="x") for _ in range(2 * SAVE_INTERVAL)))
    await journal.close()
    assert await read_saved_position(store) == 0
    assert "record 5 is damaged" in (await summarize(store)).error


async def test_a_missing_session_costs_the_same_beside_many_others(tmp_path: Path) -> None:
    async def count_calls() -> int:
        count = 0

        def add_call(frame: FrameType, event: str, argument: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(add_call)
        try:
            with pytest.raises(UnknownName, match="mudroom runs"):
                await store.read_info(ID)
        finally:
            sys.setprofile(None)
        return count

    store = SqliteStore(tmp_path)
    await count_calls()  # imports modules
    few = await count_calls()
    (tmp_path / "sessions").mkdir()
    for number in range(100):
        (tmp_path / "sessions" / f"{number:08}.db").write_bytes(b"x")
    assert await count_calls() == few


@pytest.mark.parametrize("exists", [False, True])
async def test_a_cancel_during_the_opening_leaves_no_open_session(
    exists: bool, tmp_path: Path
) -> None:
    store = SqliteStore(tmp_path)
    if exists:
        await create(store, ID)
    open_it = store.open if exists else store.create
    opening = asyncio.create_task(open_it(ID))
    await asyncio.sleep(0)  # a thread opens the file now
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    journal = await open_it(ID)
    await journal.close()
    assert [path.name for path in tmp_path.rglob("*.db*")] == ([f"{ID}.db"] if exists else [])
