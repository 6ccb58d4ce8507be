"""A journal whose process is killed, and one whose disk is full.

What was acknowledged is there, and nothing else is claimed.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mudroom._adapters.journals.sqlite.journal import SqliteJournal
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._core.events import NoteInjected
from mudroom.errors import JournalError
from mudroom.testing.journal_conformance import count_appends_until_failure

_APPEND_WITHOUT_END = """
import asyncio, os, sys
from mudroom._core.events import NoteInjected
from mudroom._adapters.journals.sqlite.journal import SqliteJournal

async def produce(journal, name):
    n = 0
    while True:
        notes = [NoteInjected(at=n + part, run=name, text="x" * 700) for part in range(3)]
        await journal.append(*notes)
        n += 3
        os.write(1, f"{name} {n}\\n".encode())

async def main():
    journal = SqliteJournal.open(sys.argv[1], session="s1", create=sys.argv[2] == "create")
    os.write(1, b"open 0\\n")
    async with asyncio.TaskGroup() as group:
        for name in "abcde":
            group.create_task(produce(journal, name))

asyncio.run(main())
"""


def _append_and_kill(path: Path, create: bool, after: float) -> dict[str, int]:
    """Append in another process, kill it, and return the confirmed events of each run."""
    command = [
        sys.executable,
        "-c",
        _APPEND_WITHOUT_END,
        str(path),
        "create" if create else "continue",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == b"open 0\n"
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        acknowledged: dict[str, int] = {}
        for line in process.stdout:
            if line.endswith(b"\n"):
                name, count = line.decode().split()
                acknowledged[name] = int(count)
        assert process.wait() == -signal.SIGKILL
    return acknowledged


def test_killed_at_any_moment_it_keeps_all_it_acknowledged(tmp_path: Path) -> None:
    chance = random.Random(4)
    for round_ in range(20):
        # Every second round continues the file of the round before.
        path = tmp_path / f"{round_ // 2}.db"
        is_new = not path.exists()
        before = 0 if is_new else len(list(open_reader(path).read()))
        acknowledged = _append_and_kill(path, is_new, chance.uniform(0.0, 0.06))
        events = list(open_reader(path).read())[before:] if path.exists() else []
        for name in "abcde":
            times = [event.at for event in events if event.run == name]
            assert times == list(range(len(times))), "a gap"
            assert len(times) % 3 == 0, "a part of an append"
            assert len(times) >= acknowledged.get(name, 0), "acknowledged, and lost"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 300 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "none", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def _write_protect(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)


async def test_a_full_disk_never_says_saved(disk: Path) -> None:
    journal = SqliteJournal.open(disk / "s1.db", session="s1", create=True)
    saved = await count_appends_until_failure(journal)
    assert [event.at for event in open_reader(disk / "s1.db").read()] == list(range(saved))


async def test_it_is_read_on_a_disk_that_cannot_be_written(disk: Path) -> None:
    journal = SqliteJournal.open(disk / "s1.db", session="s1", create=True)
    await journal.append(*_make_notes(10))
    torn = {
        each.name: each.read_bytes()
        for each in disk.glob("s1.db*")
        if not each.name.endswith(("shm", "lock"))
    }
    await journal.close()
    for name, content in torn.items():
        (disk / name.replace("s1", "torn")).write_bytes(content)
    _write_protect(disk)
    for name in ("s1.db", "torn.db"):
        assert len(list(open_reader(disk / name).read())) == 10
        with pytest.raises(JournalError, match=r"[Rr]ead-only.*MUDROOM_HOME"):
            SqliteJournal.open(disk / name, session="s1", create=False)
    with pytest.raises(JournalError, match=r"[Rr]ead-only.*MUDROOM_HOME"):
        SqliteJournal.open(disk / "new.db", session="new", create=True)


def test_a_file_that_may_not_grow_never_says_saved(tmp_path: Path) -> None:
    code = (
        "import asyncio, resource, sys\n"
        "from mudroom._adapters.journals.sqlite.journal import SqliteJournal\n"
        "from mudroom.testing.journal_conformance import count_appends_until_failure\n"
        "async def main():\n"
        "    journal = SqliteJournal.open(sys.argv[1], session='s1', create=True)\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))\n"
        "    print(await count_appends_until_failure(journal))\n"
        "asyncio.run(main())\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "s1.db")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert [event.at for event in open_reader(tmp_path / "s1.db").read()][
        : int(ended.stdout)
    ] == list(range(int(ended.stdout)))
    assert all(event.at >= 0 for event in open_reader(tmp_path / "s1.db").read())


async def test_every_append_to_a_full_disk_fails(disk: Path) -> None:
    journal = SqliteJournal.open(disk / "s1.db", session="s1", create=True)
    await journal.append(*_make_notes(2))
    results = await asyncio.gather(
        *(journal.append(*_make_notes(2)) for _ in range(500)), return_exceptions=True
    )
    saved = sum(isinstance(result, int) for result in results)
    assert saved < 500 and all(isinstance(result, JournalError) for result in results[saved:])
    assert await count_appends_until_failure(journal) == 0
    assert sum(1 for _ in open_reader(disk / "s1.db").read()) == 2 * saved + 2


def _make_notes(count: int) -> list[NoteInjected]:
    return [NoteInjected(at=n, run="1", text="x" * 1000) for n in range(count)]
