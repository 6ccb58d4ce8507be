import asyncio
import os
import sqlite3
import stat
import time
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from mudroom._adapters.journals.sqlite.journal import SqliteJournal
from mudroom._adapters.journals.sqlite.reader import open_reader, read_header
from mudroom._adapters.journals.sqlite.schema import write_name
from mudroom._core.events import NoteInjected
from mudroom.errors import JournalBusy, JournalDamaged, JournalError, JournalNewer
from mudroom.testing.journal_conformance import read_all
from mudroom.testing.sample_events import every_event

NO_EVENT = "UPDATE events SET body = CAST('{}' AS BLOB), crc = ? WHERE seq = 50"


def _make_note(n: float, text: str = "x") -> NoteInjected:
    return NoteInjected(at=n, run="1", text=text)


async def _write_journal(path: Path, count: int = 100) -> Path:
    journal = SqliteJournal.open(path, session="s1", create=True)
    await journal.append(*(_make_note(n, "x" * 400) for n in range(count)))
    await journal.close()
    return path


def _spoil(path: Path, statement: str, *values: Any) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement, values)
    connection.commit()
    connection.close()


async def test_says_what_it_is(tmp_path: Path) -> None:
    before = time.time()
    path = await _write_journal(tmp_path / "a b#?%.db")
    meta = open_reader(path).meta
    assert meta.session == "s1" and before <= meta.created <= time.time() and meta.program
    connection = sqlite3.connect(path)
    assert connection.execute(
        "SELECT seq, run, type, crc = ? FROM events LIMIT 1", (0,)
    ).fetchone() == (1, "1", "note_injected", 0)
    connection.close()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
async def test_only_the_user_may_read_it(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        path = tmp_path / "home" / "sessions" / "s1.db"
        journal = SqliteJournal.open(path, session="s1", create=True)
        await journal.append(*every_event())
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
        assert modes.pop("s1.db.lock") & 0o077 == 0
        assert modes == {"s1.db": 0o600, "s1.db-wal": 0o600, "s1.db-shm": 0o600}
        assert {
            stat.S_IMODE(folder.stat().st_mode) for folder in (path.parent, path.parent.parent)
        } == {0o700}
        await journal.close()
    finally:
        os.umask(before)


async def test_f8_a_second_writer_is_refused_by_pid(tmp_path: Path) -> None:
    path = tmp_path / "s1.db"
    journal = SqliteJournal.open(path, session="s1", create=True)
    with pytest.raises(JournalBusy, match=f"process {os.getpid()} "):
        SqliteJournal.open(path, session="s1", create=False)
    await journal.append(_make_note(0))
    await journal.close()
    await SqliteJournal.open(path, session="s1", create=False).close()


async def test_a_dead_writer_leaves_no_lock(tmp_path: Path) -> None:
    path = await _write_journal(tmp_path / "s1.db", 1)
    (tmp_path / "s1.db.lock").write_text("1\n")
    journal = SqliteJournal.open(path, session="s1", create=False)
    assert (tmp_path / "s1.db.lock").read_text() == f"{os.getpid()}\n"
    await journal.close()
    assert not (tmp_path / "s1.db.lock").exists()


async def test_a_journal_that_does_not_exist_is_named(tmp_path: Path) -> None:
    nowhere = tmp_path / "s3.db"
    for open_ in (
        lambda: open_reader(nowhere),
        lambda: SqliteJournal.open(nowhere, session="s3", create=False),
    ):
        with pytest.raises(JournalError, match=r"no such journal.*mudroom runs"):
            open_()
    assert not list(tmp_path.glob("*.lock"))


@pytest.mark.parametrize(
    "content", [b"", b"no database " * 500, b"SQLite format 3\0" + b"\0" * 5000]
)
async def test_a_file_that_is_no_journal(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s1.db"
    path.write_bytes(content)
    with pytest.raises(JournalDamaged, match=r"s1\.db.*unchanged"):
        open_reader(path)
    with pytest.raises(JournalDamaged, match=r"s1\.db.*unchanged"):
        SqliteJournal.open(path, session="s1", create=False)
    assert path.read_bytes() == content and not list(tmp_path.glob("*.lock"))


async def test_a_database_of_another_program(tmp_path: Path) -> None:
    _spoil(tmp_path / "s1.db", "CREATE TABLE events (seq)")
    with pytest.raises(JournalDamaged, match="not a journal of mudroom"):
        open_reader(tmp_path / "s1.db")


@pytest.mark.parametrize(
    ("statement", "value", "words"),
    [
        (NO_EVENT, crc32(b"{}"), "record 50 is no event"),
        ("UPDATE events SET crc = ? WHERE seq = 50", 1, "record 50 is damaged"),
        (
            "UPDATE events SET body = CAST(replace(body, 'x', ?) AS BLOB) WHERE seq = 50",
            "y",
            "record 50 is damaged",
        ),
        ("UPDATE events SET body = ? WHERE seq = 50", 7, "record 50 is damaged"),
        ("DELETE FROM events WHERE seq = ?", 50, "record 50 is missing"),
    ],
)
async def test_f7_inner_damage_is_loud_and_named(
    tmp_path: Path, statement: str, value: Any, words: str
) -> None:
    path = await _write_journal(tmp_path / "s1.db")
    _spoil(path, statement, value)
    seen: list[float] = []
    with pytest.raises(JournalDamaged, match=rf"{words}.*s1\.db.*unchanged"):
        for event in open_reader(path).read():
            seen.append(event.at)
    assert seen == list(range(49))


@pytest.mark.parametrize("spoil", ["cut", "zeros"])
async def test_damage_of_whole_pages_is_loud(tmp_path: Path, spoil: str) -> None:
    path = await _write_journal(tmp_path / "s1.db", 500)
    content = path.read_bytes()
    half = len(content) // 2 // 4096 * 4096
    path.write_bytes(
        content[:half] if spoil == "cut" else content[:half] + b"\0" * 8192 + content[half + 8192 :]
    )
    seen: list[float] = []
    with pytest.raises(JournalDamaged, match=r"s1\.db"):
        for event in open_reader(path).read():
            seen.append(event.at)
    assert seen == list(range(len(seen))) and len(seen) < 500


async def test_f6_a_torn_end_is_dropped(tmp_path: Path) -> None:
    path, copy = tmp_path / "s1.db", tmp_path / "copy.db"
    journal = SqliteJournal.open(path, session="s1", create=True)
    for n in range(20):
        await journal.append(_make_note(n, "x" * 3000))
    main, wal = path.read_bytes(), (tmp_path / "s1.db-wal").read_bytes()
    await journal.close()
    lengths: list[int] = []
    for kept in range(len(wal), len(wal) // 2, -1111):
        copy.write_bytes(main)
        (tmp_path / "copy.db-wal").write_bytes(wal[:kept] + b"\0" * (len(wal) - kept))
        (tmp_path / "copy.db-shm").unlink(missing_ok=True)
        lengths.append(len(list(open_reader(copy).read())))
        again = SqliteJournal.open(copy, session="s1", create=False)
        await again.append(_make_note(99))
        assert [event.at for event in await read_all(again)] == [*range(lengths[-1]), 99]
        await again.close()
    assert lengths[0] == 20 and lengths == sorted(lengths, reverse=True) and lengths[-1] < 20


async def test_a_loop_that_ended_without_closing_harms_no_other_journal(tmp_path: Path) -> None:
    def leave() -> None:
        async def begin() -> None:
            journal = SqliteJournal.open(tmp_path / "s1.db", session="s1", create=True)
            await journal.append(_make_note(0))
            task = asyncio.ensure_future(journal.append(_make_note(1)))
            await asyncio.sleep(0)
            task.cancel()

        asyncio.run(begin())

    await asyncio.to_thread(leave)
    assert next(open_reader(tmp_path / "s1.db").read()) == _make_note(0)


async def test_appends_of_many_tasks_share_commits(tmp_path: Path) -> None:
    journal = SqliteJournal.open(tmp_path / "s1.db", session="s1", create=True)
    await journal.append(_make_note(0, ""))  # later events have another connection
    statements: list[str] = []
    journal._connection.set_trace_callback(statements.append)

    async def produce() -> None:
        for n in range(50):
            await journal.append(_make_note(n, "x" * 400))

    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(produce())
    await journal.close()
    # 1,000 appends of 20 tasks: 50 commits if all tasks wait for the same one.
    commits = [statement for statement in statements if statement.startswith("INSERT")]
    assert len(commits) < 250


async def test_a_glance_sees_meta_and_first_event_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = await _write_journal(tmp_path / "s1.db", 3)
    write_name(path, "a name")
    meta, first = read_header(path)
    assert (meta.session, meta.name) == ("s1", "a name") and first is not None and first.at == 0
    assert [each.name for each in tmp_path.iterdir()] == ["s1.db"]
    journal = SqliteJournal.open(path, session="s1", create=False)
    await journal.append(_make_note(3))
    write_name(path, "named at work")
    assert read_header(path)[0].name == "named at work" == open_reader(path).meta.name
    await journal.append(_make_note(4))
    await journal.close()
    assert len(list(open_reader(path).read())) == 5
    _spoil(path, "PRAGMA user_version = 99")
    with pytest.raises(JournalNewer):
        read_header(path)
