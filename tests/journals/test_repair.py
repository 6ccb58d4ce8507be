"""S6.

A torn tail is left out with a notice; inner damage stops loudly, and repair keeps every record
around it.
"""

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from mudroom import Session
from mudroom._adapters.journals.sqlite.journal import TORN_TAIL_NOTICE, SqliteJournal
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._adapters.journals.sqlite.repair import LOST_TEXT, check_journal, repair_journal
from mudroom._adapters.journals.sqlite.schema import has_torn_tail
from mudroom._adapters.models.scripted import ScriptedModel
from mudroom._cli.actions.session_maintenance import _describe_losses
from mudroom._core.agents import Agent
from mudroom._core.budgets import Budget
from mudroom._core.events import NoteInjected, RunFinished, RunStarted, SessionOpened, StoredEvent
from mudroom._core.runs import Brief, Reason
from mudroom.errors import JournalBusy, JournalDamaged, JournalNewer
from mudroom.testing.sample_events import every_event

ID = "11111111-1111-4111-8111-111111111111"


def make_note(n: int, size: int = 300) -> NoteInjected:
    return NoteInjected(at=float(n), run="1", text=f"{n} " + "x" * size)


def make_beginning(cwd: Path) -> list[StoredEvent]:
    brief = Brief(
        run_id="1",
        agent=Agent(name="main"),
        prompt="begin",
        tools=(),
        model="scripted",
        budget=Budget(),
    )
    return [
        SessionOpened(at=0.5, session=ID, cwd=str(cwd), version="0"),
        RunStarted(at=0.5, run="1", brief=brief),
    ]


async def write_journal(
    folder: Path, count: int = 200, *, size: int = 300, close: bool = True
) -> tuple[Path, SqliteJournal]:
    path = folder / "home" / "sessions" / f"{ID}.db"
    journal = SqliteJournal.open(path, session=ID, create=True)
    await journal.append(*make_beginning(folder))
    for start in range(0, count, 50):
        await journal.append(*(make_note(n, size) for n in range(start, min(count, start + 50))))
    if close:
        await journal.close()
    return path, journal


def spoil(path: Path, statement: str, *values: Any) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement, values)
    connection.commit()
    connection.close()


def is_readable(path: Path) -> bool:
    """Return whether SQLite finds any record."""
    connection = sqlite3.connect(path)
    try:
        return bool(connection.execute("SELECT seq FROM events WHERE seq = 1").fetchone())
    except sqlite3.DatabaseError:
        return False
    finally:
        connection.close()


def read_times(path: Path) -> list[float]:
    return [event.at for event in open_reader(path).read() if isinstance(event, NoteInjected)]


async def test_a_whole_journal_stays_as_it_is(tmp_path: Path) -> None:
    path, _ = await write_journal(tmp_path, 20)
    before = path.read_bytes()
    assert (
        repair_journal(path, cwd="/").intact == check_journal(path).intact == 22
        and check_journal(path).lost == ()
    )
    assert path.read_bytes() == before and not list(path.parent.glob("*damaged*"))


async def test_s6_repair_keeps_all_records_around_a_damaged_one(tmp_path: Path) -> None:
    path, _ = await write_journal(tmp_path)
    spoil(path, "UPDATE events SET body = X'00' WHERE seq IN (50, 51, 120)")
    spoil(path, "DELETE FROM events WHERE seq = 70")
    with pytest.raises(JournalDamaged, match=r"record 50 is damaged.*journal repair"):
        list(open_reader(path).read())
    assert check_journal(path).lost == ((50, 51), (70, 70), (120, 120))
    damaged = path.read_bytes()
    done = repair_journal(path, cwd="/")
    assert done.intact == 198 and Path(done.damaged_copy).read_bytes() == damaged
    assert read_times(path) == [float(n) for n in range(200) if n not in (47, 48, 67, 117)]
    assert check_journal(path).lost == () and path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("page", range(2, 24, 3))
async def test_s6_a_page_of_zeros_costs_its_own_records_and_no_other(
    tmp_path: Path, page: int
) -> None:
    path, _ = await write_journal(tmp_path)
    whole, data = len(read_times(path)), bytearray(path.read_bytes())
    data[(page - 1) * 4096 : page * 4096] = bytes(4096)
    path.write_bytes(data)
    try:
        assert len(read_times(path)) == whole  # a page that holds no record
        return
    except JournalDamaged:
        pass
    if not is_readable(path):  # the page from which SQLite finds all others
        with pytest.raises(JournalDamaged, match=r"cannot be repaired.*\.recover"):
            repair_journal(path, cwd=str(tmp_path))
        assert path.read_bytes() == data and not list(path.parent.glob("*damaged*"))
        return
    done = repair_journal(path, cwd=str(tmp_path))
    assert done.is_damaged and not check_journal(path).is_damaged
    assert whole - len(read_times(path)) <= 14, "a page holds 14 records at most"


async def test_s6_losses_at_an_unreadable_end_are_not_counted(tmp_path: Path) -> None:
    path, _ = await write_journal(tmp_path)
    path.write_bytes(path.read_bytes()[:-4096] + bytes(4096))
    condition = check_journal(path)
    assert condition.is_damaged and 0 < condition.intact < 202
    assert condition.first_unreadable == condition.intact + 1 and condition.lost == ()
    text = _describe_losses(condition)
    assert f"lost, from number {condition.first_unreadable} on" in text
    assert repair_journal(path, cwd=str(tmp_path)).first_unreadable == condition.first_unreadable
    last = list(open_reader(path).read())[-1]
    assert isinstance(last, RunFinished) and last.report.reason is Reason.LOST
    assert not check_journal(path).is_damaged


@pytest.mark.parametrize("damage", ["no beginning", "cut in half"])
async def test_s6_a_file_that_sqlite_cannot_read_is_left_as_it_is(
    tmp_path: Path, damage: str
) -> None:
    path, _ = await write_journal(tmp_path)
    data = path.read_bytes()
    data = data[: len(data) // 2] if damage == "cut in half" else b"\xff" * 4096 + data[4096:]
    path.write_bytes(data)
    with pytest.raises(JournalDamaged, match="journal repair"):
        open_reader(path)
    for act in (lambda: repair_journal(path, cwd="/"), lambda: check_journal(path)):
        with pytest.raises(JournalDamaged, match=r"cannot be repaired.*unchanged.*\.recover"):
            act()
    assert path.read_bytes() == data


async def test_a_repaired_session_continues_and_its_broken_run_is_lost(tmp_path: Path) -> None:
    path, _ = await write_journal(tmp_path)
    spoil(path, "UPDATE events SET crc = crc + 1 WHERE seq = 10")
    repair_journal(path, cwd=str(tmp_path))
    last = list(open_reader(path).read())[-1]
    assert isinstance(last, RunFinished) and last.report.reason is Reason.LOST
    async with Session(
        model=ScriptedModel(["and on"]), home=str(tmp_path / "home"), resume=ID
    ) as session:
        assert session.unfinished_runs == ()
        assert (await session.run("next")).text == "and on"


async def test_what_begins_is_put_in_where_it_is_lost(tmp_path: Path) -> None:
    path, _ = await write_journal(tmp_path)
    spoil(path, "DELETE FROM events WHERE seq <= 2")
    repair_journal(path, cwd=str(tmp_path))
    opened, began, *_ = open_reader(path).read()
    assert isinstance(opened, SessionOpened) and opened.cwd == str(tmp_path)
    assert isinstance(began, RunStarted) and began.brief.prompt == LOST_TEXT
    async with Session(
        model=ScriptedModel(["and on"]), home=str(tmp_path / "home"), resume=ID
    ) as session:
        assert (await session.run("next")).ok


async def test_damage_before_an_interrupted_run_leaves_it_to_be_finished(tmp_path: Path) -> None:
    path = tmp_path / "home" / "sessions" / f"{ID}.db"
    journal = SqliteJournal.open(path, session=ID, create=True)
    first, (opened, second) = every_event(run="1")[2:-1], make_beginning(tmp_path)
    assert isinstance(second, RunStarted)
    later = RunStarted(
        at=9,
        run="2",
        brief=Brief(
            run_id="2", agent=second.brief.agent, prompt="b", tools=(), model="m", budget=Budget()
        ),
    )
    await journal.append(opened, second, *first, later)
    await journal.close()
    spoil(path, "UPDATE events SET body = X'00' WHERE seq = 5")
    repair_journal(path, cwd="/")
    assert list(open_reader(path).read())[-1] == later


async def test_a_live_or_newer_journal_is_not_repaired(tmp_path: Path) -> None:
    path, journal = await write_journal(tmp_path, close=False)
    spoil(path, "UPDATE events SET crc = crc + 1 WHERE seq = 10")
    with pytest.raises(JournalBusy):
        repair_journal(path, cwd="/")
    await journal.close()
    spoil(path, "PRAGMA user_version = 99")
    with pytest.raises(JournalNewer):
        repair_journal(path, cwd="/")


async def test_s6_a_torn_tail_is_left_out_with_a_notice(tmp_path: Path) -> None:
    path, journal = await write_journal(tmp_path, 20, close=False)
    sound = len(list(open_reader(path).read()))
    await journal.append(make_note(1_000, 20_000))
    folder = tmp_path / "died" / "home" / "sessions"
    shutil.copytree(path.parent, folder)
    await journal.close()
    copy = folder / path.name
    copy.with_name(copy.name + ".lock").unlink()
    copy.with_name(copy.name + "-shm").unlink()
    log = copy.with_name(copy.name + "-wal")
    assert not has_torn_tail(copy)
    log.write_bytes(log.read_bytes()[:-6_000])
    assert (
        has_torn_tail(copy)
        and check_journal(copy).torn_tail
        and check_journal(copy).intact == sound
    )
    async with Session(
        model=ScriptedModel([]), home=str(tmp_path / "died" / "home"), resume=ID
    ) as session:
        assert TORN_TAIL_NOTICE in map(str, session.notices)
