"""S1, S6: power failures and disk failures. Nothing confirmed is lost, and the session continues.

The short form tries some points; MUDROOM_LONG=1 all of them.
"""

from __future__ import annotations

import asyncio
import os
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from mudroom._adapters.journals.sqlite.journal import SqliteJournal
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._core.events import StoredEvent, ToolCallFinished
from mudroom._replay import replay
from mudroom.testing.invariants import find_violations
from mudroom.testing.journal_conformance import read_all

from .conftest import Figure
from .killed import LONG

HERE = Path(__file__).parent
SESSION = "00000000-0000-4000-8000-000000000000"
WRITE, SYNC, TRUNCATE, RENAME, REMOVE = 1, 2, 3, 4, 5
EVERY = 1 if LONG else 17


class Step(NamedTuple):
    """One operation of the disk."""

    kind: int
    path: str
    offset: int
    data: bytes


class Disk:
    """A folder with recorded disk operations, and the program that works in it."""

    def __init__(self, folder: Path, shim: Path) -> None:
        self.folder, self.shim = folder, shim
        self.home, self.work, self.acks = folder / "home", folder / "work", folder / "acks"
        self.work.mkdir(parents=True)
        self.journal = self.home / "sessions" / f"{SESSION}.db"

    def run(self, *, fail: int = 0, log: Path | None = None) -> str:
        """Run the program to its end; return its output."""
        env = {
            **os.environ,
            "LD_PRELOAD": str(self.shim),
            "DISK_FOLDER": str(self.folder),
            "DISK_ACKS": str(self.acks),
            "DISK_FAIL": str(fail),
        }
        env |= {"DISK_COUNT": f"{self.folder}.count"} | ({"DISK_LOG": str(log)} if log else {})
        words = [sys.executable, str(HERE / "disk.py"), str(self.home), str(self.work)]
        ran = subprocess.run(
            words, capture_output=True, text=True, timeout=100, check=False, env=env
        )
        return ran.stdout + ran.stderr

    @property
    def operations(self) -> int:
        return int(Path(f"{self.folder}.count").read_text())

    @property
    def acknowledged(self) -> int:
        return int((self.acks.read_text().split() or ["0"])[-1]) if self.acks.exists() else 0

    def events(self) -> list[StoredEvent]:
        return (
            list(open_reader(self.journal).read())
            if self.journal.exists() and self.journal.stat().st_size
            else []
        )


def parse_steps(log: bytes) -> Iterator[Step]:
    at = 0
    while at < len(log):
        kind, name, offset, size = struct.unpack_from("=4q", log, at)
        at += 32
        path = (
            log[at : at + name].decode().removesuffix(".new")
        )  # the same file before it gets its name
        yield Step(kind, path, offset, log[at + name : at + name + size])
        at += name + size


class Platter:
    """The files on the disk after a power failure.

    Synced data is there. `how` and chance decide about the rest.
    """

    def __init__(self, done: list[Step], how: str, chance: random.Random) -> None:
        synced = {step.path: n for n, step in enumerate(done) if step.kind == SYNC}
        self.files: dict[str, bytearray] = {}
        self.named: set[str] = set()
        for n, step in enumerate(done):
            if step.kind in (RENAME, REMOVE):
                if n < synced.get(str(Path(step.path).parent), -1):
                    self._do(step)
            elif n < synced.get(step.path, -1) or self._survives(how, chance):
                self._do(step)
            elif step.kind == WRITE and how == "cut":
                self._do(step._replace(data=step.data[: chance.randrange(len(step.data) + 1)]))
            elif step.kind == WRITE and how == "zeroed":
                self._do(step._replace(data=bytes(len(step.data))))

    def _survives(self, how: str, chance: random.Random) -> bool:
        return how == "some lost" and chance.random() < 0.5

    def _do(self, step: Step) -> None:
        file = self.files.setdefault(step.path, bytearray())
        if step.kind == RENAME:
            self.named.add(step.path)
        elif step.kind == REMOVE:
            del self.files[step.path]
        elif step.kind == TRUNCATE:
            file[:] = file[: step.offset].ljust(step.offset, b"\0")
        elif step.kind == WRITE:
            file.extend(bytes(max(0, step.offset - len(file))))
            file[step.offset : step.offset + len(step.data)] = step.data

    def put(self, folder: Path) -> Path:
        """Write the journal's files to a folder and return the path of the journal."""
        folder.mkdir()
        for name, data in self.files.items():
            if name.endswith((".db-wal", ".db-journal")) or name in self.named:
                (folder / Path(name).name).write_bytes(data)
        return folder / f"{SESSION}.db"


@pytest.mark.timeout(2_000)
@pytest.mark.parametrize("how", ["dropped", "cut", "zeroed", "some lost"])
async def test_s1_s6_a_power_failure_loses_nothing_acknowledged(
    tmp_path: Path, shim: Path, how: str, figure: Figure
) -> None:
    disk, chance, tried = Disk(tmp_path / "disk", shim), random.Random(2), 0
    log = tmp_path / "log"
    assert "ended: all is done" in disk.run(log=log)
    whole, done = disk.events(), list(parse_steps(log.read_bytes()))
    assert {SYNC, WRITE} <= {step.kind for step in done}
    for end in range(1, len(done) + 1, EVERY):
        acks = b"".join(step.data for step in done[:end] if step.path == str(disk.acks)).split()
        acknowledged = int(acks[-1]) if acks else 0
        path = Platter(done[:end], how, chance).put(tmp_path / str(end))
        if not acknowledged and not path.exists():
            continue
        tried += 1
        journal = SqliteJournal.open(path, session=SESSION, create=False)
        record = await read_all(journal)
        assert len(record) >= acknowledged, f"{acknowledged - len(record)} lost after step {end}"
        assert record == whole[: len(record)], f"another record after step {end}"
        await journal.append(whole[-1])
        await journal.close()
        assert list(open_reader(path).read()) == [*record, whole[-1]]
        assert not find_violations(record, ended=False)
    figure(f"power lost, what was not synced {how}", f"{tried} points, nothing lost")
    assert tried >= len(done) // EVERY // 3


@pytest.mark.timeout(3_000)
def test_s1_when_the_nth_operation_fails_nothing_unsaved_is_confirmed(
    tmp_path: Path, shim: Path, figure: Figure
) -> None:
    disk = Disk(tmp_path / "whole", shim)
    assert "ended: all is done" in disk.run()
    operations, stopped, nth = disk.operations, 0, 1
    while nth <= operations:
        disk = Disk(tmp_path / str(nth), shim)
        output = disk.run(fail=nth)
        assert "Traceback" not in output and ("ended: " in output or "stopped: " in output), output
        stopped += "stopped: " in output
        assert len(disk.events()) >= disk.acknowledged, (
            f"confirmed, and lost, when operation {nth} failed: {output}"
        )
        again = disk.run()
        assert "ended: " in again, f"after operation {nth} failed: {output}{again}"
        events = disk.events()
        assert not find_violations(events), f"after operation {nth} failed: {output}"
        assert asyncio.run(replay(events)) == events, f"after operation {nth} failed: {output}"
        written = [
            event
            for event in events
            if isinstance(event, ToolCallFinished)
            and event.name == "write"
            and not event.result.error
        ]
        assert all(
            (disk.work / path).exists() for event in written for path in event.result.changes
        )
        nth += 1 if LONG else 61
    figure(
        "disk operations failed one by one",
        f"{operations if LONG else operations // 61}, {stopped} clear stops, all went on",
    )
    assert stopped
