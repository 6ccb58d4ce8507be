"""Claims of a task board by many processes, some killed while they hold claims (S12).

The short form has 8 processes and 120 tasks; MUDROOM_LONG=1 has 50 and 1,000. The clocks of the
processes are up to 120 s apart.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path

from mudroom._adapters.boards.board import TaskBoard

from .conftest import Figure
from .killed import LONG

PROCESSES = 50 if LONG else 8
TASKS = 1_000 if LONG else 120

WORKER = """
import os, random, sys, time
from pathlib import Path
from mudroom._adapters.boards.board import TaskBoard

number = int(sys.argv[2])
is_killed = number % 5 == 0
skew = random.uniform(-60, 60)
with TaskBoard(Path(sys.argv[1]), read_clock=lambda: time.time() + skew) as board:
    print("open", flush=True)
    sys.stdin.readline()
    claims = 0
    while True:
        task = board.claim_next(f"process {number}")
        if task is None:
            if not board.count_open():
                break
            time.sleep(0.05)
            continue
        assert not task.waits_for
        claims += 1
        if is_killed and claims == 1:
            os.kill(os.getpid(), 9)
        assert board.complete(task, f"process {number}") is not None
"""


def test_s12_each_task_is_completed_once_though_processes_are_killed(
    tmp_path: Path, figure: Figure
) -> None:
    path = tmp_path / "board.db"
    with TaskBoard(path) as board:
        for number in range(1, TASKS + 1):
            board.add(f"task {number}", blockers=[number // 2] if number > 1 else [])
    with ExitStack() as stack:
        workers = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", WORKER, str(path), str(number)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            for number in range(PROCESSES)
        ]
        for worker in workers:
            assert worker.stdout and worker.stdout.readline() == b"open\n"
        start = time.perf_counter()
        for worker in workers:
            assert worker.stdin
            worker.stdin.close()
        codes = [worker.wait(timeout=600) for worker in workers]
    seconds = time.perf_counter() - start
    with TaskBoard(path) as board:
        assert {task.status for task in board.list_tasks()} == {"completed"}
    with closing(sqlite3.connect(path)) as connection:
        log = connection.execute("SELECT task, change, owner FROM log ORDER BY rowid").fetchall()
    completed = [task for task, change, _ in log if change == "completed"]
    assert sorted(completed) == list(range(1, TASKS + 1))
    assert all(completed.index(task // 2) < completed.index(task) for task in completed if task > 1)
    killed = codes.count(-9)
    assert set(codes) <= {0, -9}
    assert sum(change == "returned" for _, change, _ in log) == killed
    claims = sum(change == "claimed" for _, change, _ in log)
    assert claims == TASKS + killed
    value = f"{claims / seconds:.0f} claims/s, {PROCESSES} processes, {killed} killed"
    figure("claims of a task board", value)
    if LONG:
        assert killed >= PROCESSES // 10, value
