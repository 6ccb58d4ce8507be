import asyncio
import os
from pathlib import Path
from threading import Thread

from mudroom._adapters.journals.sqlite.folder import (
    get_session_path,
    list_sessions,
    lock,
    read_info,
    unlock,
)
from mudroom._adapters.journals.sqlite.journal import SqliteJournal
from mudroom._adapters.journals.sqlite.store import SqliteStore
from mudroom.testing.sample_events import every_event


async def _write_session(home: Path, name: str, at: float) -> None:
    journal = SqliteJournal.open(get_session_path(home, name), session=name, create=True)
    await journal.append(*every_event())
    await journal.close()
    os.utime(get_session_path(home, name), (at, at))


async def test_only_sessions_are_listed_with_their_facts(tmp_path: Path) -> None:
    assert list_sessions(tmp_path / "nowhere") == []
    for at, name in enumerate(("old", "new"), start=1):
        await _write_session(tmp_path, name, at)
    get_session_path(tmp_path, "never-begun").touch()
    (tmp_path / "sessions" / "notes.txt").write_text("not a session")
    listed = list_sessions(tmp_path)
    assert [(info.id, info.modified) for info in listed] == [("new", 2), ("old", 1)]
    assert all(info.size > 4096 for info in listed)
    assert [read_info(get_session_path(tmp_path, info.id)) for info in listed] == listed


async def test_an_open_session_is_as_new_as_its_last_event(tmp_path: Path) -> None:
    await _write_session(tmp_path, "other", 2_000_000_000)
    journal = SqliteJournal.open(get_session_path(tmp_path, "live"), session="live", create=True)
    await journal.append(*every_event())
    await journal.append(*every_event())
    os.utime(get_session_path(tmp_path, "live"), (1, 1))
    assert read_info(get_session_path(tmp_path, "live")).modified > 1_000_000_000
    await journal.close()


def make_old_file(path: Path) -> None:
    """Create a file that was changed two minutes ago, or give an existing file that time."""
    path.touch()
    changed = path.stat().st_mtime - 120
    os.utime(path, (changed, changed))


async def test_half_created_journals_are_removed_when_the_next_is_created(tmp_path: Path) -> None:
    await _write_session(tmp_path, "born", 1)
    folder = tmp_path / "sessions"
    for name in (
        "dead.db.new",
        "dead.db.lock",
        "older.db.new",
        "locked.db.lock",
        "born.db.lock",
        "notes.new",
    ):
        make_old_file(folder / name)
    alive = folder / "alive.db"
    held = lock(alive)
    make_old_file(folder / "alive.db.lock")
    make_old_file(folder / "alive.db.new")
    await _write_session(tmp_path, "next", 1)
    unlock(alive, held)
    assert sorted(path.name for path in folder.iterdir()) == [
        "alive.db.new",
        "born.db",
        "born.db.lock",
        "next.db",
        "notes.new",
    ]


async def test_a_log_that_goes_while_sessions_are_listed_hides_no_session(tmp_path: Path) -> None:
    names = [f"{number:08}" for number in range(40)]
    for name in names:
        await _write_session(tmp_path, name, 1)
    logs = [Path(f"{get_session_path(tmp_path, name)}-wal") for name in names]
    is_done = False

    def make_and_remove_logs() -> None:
        while not is_done:
            for log in logs:
                log.touch()
            for log in logs:
                log.unlink()

    thread = Thread(target=make_and_remove_logs)
    thread.start()
    try:
        listed = [{info.id for info in list_sessions(tmp_path)} for _ in range(100)]
    finally:
        is_done = True
        thread.join()
    assert [len(ids) for ids in listed] == [40] * 100


async def test_a_journal_that_another_process_begins_to_create_stays(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    await _write_session(tmp_path, "first", 1)
    (folder / "young.db.lock").touch()  # not locked yet
    make_old_file(folder / "young.db.new")
    await _write_session(tmp_path, "next", 1)
    assert sorted(path.name for path in folder.iterdir()) == [
        "first.db",
        "next.db",
        "young.db.lock",
        "young.db.new",
    ]


async def test_many_sessions_can_be_created_at_the_same_time(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    journals = await asyncio.gather(*(store.create(str(number)) for number in range(64)))
    assert len(list((tmp_path / "sessions").glob("*.db.new"))) == 64
    for journal in journals:
        await journal.close()
