"""Kills of the session's process and of its worker processes: nothing is lost or done twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path

import pytest
from tests.workers.crash_program import CHILDREN, STEPS

from mudroom.testing.invariants import find_violations

from ..waiting import block_until

PROGRAM = str(Path(__file__).with_name("crash_program.py"))
ROUNDS = 60 if os.environ.get("MUDROOM_LONG") else 2
DONE = " | ".join(f"child {number} is done" for number in range(CHILDREN))


def start(folder: Path, session_id: str, worker: str = "process:2") -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        [sys.executable, PROGRAM, str(folder), session_id, worker],
        stdout=subprocess.PIPE,
        text=True,
        env=environ,
    )


def find_workers(program: subprocess.Popen[str]) -> list[int]:
    children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
    commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    name = b"mudroom._session.worker_process"
    return [pid for pid, command in commands.items() if name in command]


def wait_until_gone(pids: list[int]) -> None:
    block_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def wait_for_log(folder: Path, lines: int) -> None:
    log = folder / "log"
    block_until(lambda: log.exists() and len(log.read_text().splitlines()) >= lines)


def check_log(folder: Path) -> None:
    """Check that no effect happened twice, and count those that may be unknown."""
    counts = Counter((folder / "log").read_text().split())
    assert max(counts.values()) == 1
    assert len(counts) >= CHILDREN * STEPS - CHILDREN


def check_record(folder: Path, session_id: str) -> None:
    from mudroom._adapters.journals.sqlite.reader import open_reader

    events = list(open_reader(folder / "home" / "sessions" / f"{session_id}.db").read())
    assert find_violations(events) == []


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_killed_session_with_worker_processes_resumes(number: int, tmp_path: Path) -> None:
    random_lines = random.Random(number).randrange(1, CHILDREN * STEPS)
    session_id = str(uuid.UUID(int=number + 1))
    program = start(tmp_path, session_id)
    wait_for_log(tmp_path, random_lines)
    workers = find_workers(program)
    program.kill()
    program.communicate()
    wait_until_gone(workers)
    output, _ = start(tmp_path, session_id).communicate(timeout=60)
    assert output.strip() == f"GOAL {DONE}"
    check_log(tmp_path)
    check_record(tmp_path, session_id)


@pytest.mark.parametrize("number", range(ROUNDS))
def test_killed_worker_processes_are_replaced(number: int, tmp_path: Path) -> None:
    choice = random.Random(number)
    session_id = str(uuid.UUID(int=number + 1))
    program = start(tmp_path, session_id)
    wait_for_log(tmp_path, choice.randrange(1, CHILDREN * STEPS))
    os.kill(choice.choice(find_workers(program)), signal.SIGKILL)
    output, _ = program.communicate(timeout=60)
    assert output.strip() == f"GOAL {DONE}"
    check_log(tmp_path)
    check_record(tmp_path, session_id)
