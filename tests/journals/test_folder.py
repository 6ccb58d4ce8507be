import os
from pathlib import Path

import pytest

from mudroom.errors import UnknownName, UsageError
from mudroom.journals.sqlite.journal import SqliteJournal
from mudroom.journals.sqlite.lock import lock, unlock
from mudroom.journals.sqlite.store import find_by_id, list_sessions, session_path
from mudroom.testing.sample_events import every_event


async def _session(home: Path, name: str, at: float) -> None:
    journal = SqliteJournal.open(session_path(home, name), session=name, create=True)
    await journal.append(*every_event())
    await journal.close()
    os.utime(session_path(home, name), (at, at))


async def test_sessions_come_newest_first(tmp_path: Path) -> None:
    for at, name in enumerate(("old", "new", "newest"), start=1):
        await _session(tmp_path, name, at)
    session_path(tmp_path, "never-begun").touch()
    (tmp_path / "sessions" / "notes.txt").write_text("not a session")
    listed = list(list_sessions(tmp_path))
    assert [(info.id, info.mtime, info.path) for info in listed] == [
        (name, at, tmp_path / "sessions" / f"{name}.db")
        for at, name in ((3, "newest"), (2, "new"), (1, "old"))
    ]
    assert all(info.size > 4096 for info in listed)


async def test_a_session_at_work_is_as_new_as_its_last_record(tmp_path: Path) -> None:
    await _session(tmp_path, "other", 2_000_000_000)
    journal = SqliteJournal.open(session_path(tmp_path, "live"), session="live", create=True)
    await journal.append(*every_event())
    os.utime(session_path(tmp_path, "live"), (1, 1))
    before = next(info for info in list_sessions(tmp_path) if info.id == "live")
    assert before.mtime > 1_000_000_000
    await journal.close()


def test_no_folder_is_no_sessions(tmp_path: Path) -> None:
    assert list(list_sessions(tmp_path / "nowhere")) == []


async def test_find_by_id_or_beginning(tmp_path: Path) -> None:
    for name in ("abc1", "abc12", "xyz"):
        await _session(tmp_path, name, 1)
    assert find_by_id(tmp_path, "x") == find_by_id(tmp_path, "xyz") == session_path(tmp_path, "xyz")
    assert find_by_id(tmp_path, "abc1") == session_path(tmp_path, "abc1")
    with pytest.raises(UsageError, match=r"2 sessions begin with 'abc'.*Write more"):
        find_by_id(tmp_path, "abc")
    with pytest.raises(UnknownName, match="xyz"):
        find_by_id(tmp_path, "xyy")
    for nothing in ("", "../xyz", "*"):
        with pytest.raises(UnknownName):
            find_by_id(tmp_path, nothing)


async def test_what_died_before_it_was_a_journal_is_swept_at_the_next_birth(tmp_path: Path) -> None:
    await _session(tmp_path, "born", 1)
    folder = tmp_path / "sessions"
    for name in (
        "dead.db.new",
        "dead.db.lock",
        "older.db.new",
        "locked.db.lock",
        "born.db.lock",
        "notes.new",
    ):
        (folder / name).touch()
    alive = folder / "alive.db"
    held = lock(alive)
    (folder / "alive.db.new").touch()
    await _session(tmp_path, "next", 1)
    unlock(alive, held)
    assert sorted(path.name for path in folder.iterdir()) == [
        "alive.db.new",
        "born.db",
        "born.db.lock",
        "next.db",
        "notes.new",
    ]
