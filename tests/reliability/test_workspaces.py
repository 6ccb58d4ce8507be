"""Isolated workspaces, made and killed at any time: one start stores all work, and removes all."""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.reliability.conftest import Figure
from tests.workspaces.git_projects import hash_folder, make_repository

from mudroom import Session
from mudroom._adapters.models.scripted import ScriptedModel
from mudroom._adapters.workspaces.isolated.kept_work import list_kept, open_kept

from .killed import LONG

COUNT = 1_000 if LONG else 18
PROGRAM = Path(__file__).with_name("make_workspaces.py")
RUNS_OF_SESSION = 4
"""Processes that are killed in one session."""


def make_and_kill(home: Path, source: Path, session: str, first: int, draw: random.Random) -> int:
    """Let a process make workspaces, and kill it and its programs at a random moment.

    Returns the last number that it used.
    """
    command = [sys.executable, str(PROGRAM), str(home), str(source), session, str(first)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout
    lines = [process.stdout.readline() for _ in range(draw.randrange(1, 12))]
    time.sleep(draw.random() * 0.1)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    output, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors.decode()
    words = [line.split() for line in (*lines, *output.splitlines(keepends=True))]
    return max(int(line[1]) for line in words if len(line) == 2)


def list_written(home: Path, session: str, numbers: range) -> set[str]:
    """Return the run ids of a session whose folder or record has the file of the run."""
    folder = home / "isolated" / session
    return {
        f"1.{number}.1"
        for number in numbers
        if any(folder.glob(f"runs/1.{number}.1/*/new-{number}"))
        or (folder / f"store.git/kept/1.{number}.1").exists()
    }


async def start_session(home: Path, source: Path) -> None:
    """Start a session, which cleans up, and wait until nothing is left."""

    def has_folders() -> bool:
        return any((home / "isolated").glob("*/runs/*"))

    model = ScriptedModel(["Done."])
    async with Session(
        model=model, home=str(home), cwd=str(source), environ={}, journal="memory"
    ) as session:
        await session.run("Start.")
        async with asyncio.timeout(600):
            while has_folders():  # noqa: ASYNC110  a thread removes them
                await asyncio.sleep(0.05)


@pytest.mark.timeout(3_000)
def test_s13_workspaces_of_killed_processes_are_stored_and_removed_by_one_start(
    tmp_path: Path, figure: Figure
) -> None:
    source = make_repository(tmp_path / "source", {f"{name}.txt": "x\n" for name in range(40)})
    home = tmp_path / "home"
    before = hash_folder(source)
    draw = random.Random(16)
    written: set[tuple[str, str]] = set()
    number = 1
    kills = 0
    while number <= COUNT:
        session = f"session-{kills // RUNS_OF_SESSION}"
        last = make_and_kill(home, source, session, number, draw)
        written |= {(session, run) for run in list_written(home, session, range(number, last + 1))}
        number = last + 1
        kills += 1
    asyncio.run(start_session(home, source))
    assert list((home / "isolated").glob("*/runs/*")) == []
    assert list((home / "isolated").rglob("*.lock")) == []
    assert list((home / "isolated").rglob("*.new")) == []
    for folder in (home / "isolated").iterdir():
        descriptor = os.open(folder, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
    kept = {(work.session, work.run_id): work for work in list_kept(str(home))}
    assert written <= kept.keys()
    for session, run_id in written:
        name = f"new-{run_id.split('.')[1]}"
        assert kept[session, run_id].files == (name,)
        store = open_kept(str(home), session).store
        record = store.find_kept(run_id)
        assert record
        assert (
            store.read(store.list_entries(record.work.tree)[name].id) == name[4:].encode() + b"\n"
        )
    assert hash_folder(source) == before
    figure("workspaces made and killed", f"{number - 1} in {kills} kills, {len(written)} with work")
