"""Claims of a task board by many processes, some killed while they hold claims (S12).

The short form has 8 processes and 120 tasks; MUDROOM_LONG=1 has 50 and 1,000. The clocks of the
processes are up to 120 s apart.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.reliability.test_crash import CrashProgram, Figure, KilledSession, list_stops

from mudroom._adapters.boards.board import TaskBoard
from mudroom._core.events import RunStarted, ToolCallFinished
from mudroom._replay import replay
from mudroom.testing.invariants import find_violations

LONG = bool(os.environ.get("MUDROOM_LONG"))
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


def test_each_task_is_completed_once_though_processes_are_killed(
    tmp_path: Path, record_property: Callable[[str, object], None]
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
    log = read_log(path)
    completed = [task for task, change, _ in log if change == "completed"]
    assert sorted(completed) == list(range(1, TASKS + 1))
    assert all(completed.index(task // 2) < completed.index(task) for task in completed if task > 1)
    killed = codes.count(-9)
    assert set(codes) <= {0, -9}
    assert sum(change == "returned" for _, change, _ in log) == killed
    claims = sum(change == "claimed" for _, change, _ in log)
    assert claims == TASKS + killed
    figure = f"{claims / seconds:.0f} claims/s, {PROCESSES} processes, {killed} killed"
    record_property("figure", f"claims of a task board\t{figure}")
    if LONG:
        assert killed >= PROCESSES // 10, figure


def kill_at_points(
    folder: Path, prompt: str, answer: str, check: Callable[[KilledSession], None]
) -> int:
    """Kill a session at each point in turn and resume it; return the number of points."""
    program = CrashProgram({"CRASH_PROMPT": prompt})
    try:
        undisturbed = KilledSession(folder / "undisturbed", program)
        points, report = undisturbed.run()
        assert report and report.text == answer
        check(undisturbed)
        kills = list_stops(points, 23)
        for kill in kills:
            session = KilledSession(folder / str(kill.point), program)
            session.run(kill)
            _, report = session.run()
            assert report and report.text == answer, f"stopped by {kill}"
            check(session)
    finally:
        program.close()
    return len(kills)


@pytest.mark.timeout(3_000)
def test_s12_tools_change_the_board_once_though_the_session_is_killed_at_any_point(
    tmp_path: Path, figure: Figure
) -> None:
    points = kill_at_points(tmp_path, "BOARD", "the board is done", check_board_of_killed_session)
    figure("killed around every append and change of the board", f"{points} points, each once")


@pytest.mark.timeout(3_000)
def test_s12_a_child_completes_each_task_that_it_claims_once_though_it_is_killed_at_any_point(
    tmp_path: Path, figure: Figure
) -> None:
    points = kill_at_points(tmp_path, "CLAIMS", "none works", check_claims)
    figure("killed around every append and claim of a child", f"{points} points, each once")


def check_claims(session: KilledSession) -> None:
    """Check that each task was claimed and completed once, and that the record replays."""
    (path,) = session.home.glob("boards/*.db")
    with TaskBoard(path) as board:
        reports = [(task.status, task.report) for task in board.list_tasks()]
    assert reports == [("completed", f"report of task {number}") for number in (1, 2, 3)]
    changes = Counter((task, change) for task, change, _ in read_log(path))
    expected = [(n, change) for n in (1, 2, 3) for change in ("added", "claimed", "completed")]
    assert changes == Counter(expected)
    events = session.events()
    assert not find_violations(events)
    runs = Counter(event.run for event in events if isinstance(event, RunStarted))
    assert runs == Counter(("1", "1.2.1", "1.2.1~2", "1.2.1~3", "1.2.1~4"))
    assert asyncio.run(replay(events)) == events, "the record does not replay"


def check_board_of_killed_session(session: KilledSession) -> None:
    """Check that each change happened once, and that the record replays."""
    (path,) = session.home.glob("boards/*.db")
    with TaskBoard(path) as board:
        statuses = [task.status for task in board.list_tasks()]
    assert statuses == ["completed", "completed", "completed", "pending"]
    changes = Counter((task, change) for task, change, _ in read_log(path))
    once = {(task, change) for task in (1, 2, 3) for change in ("added", "claimed", "completed")}
    once |= {(4, change) for change in ("added", "claimed", "returned")}
    assert changes == Counter(once)
    events = session.events()
    assert not find_violations(events)
    errors = [
        event.result.text
        for event in events
        if isinstance(event, ToolCallFinished) and event.result.error
    ]
    assert not errors
    assert asyncio.run(replay(events)) == events, "the record does not replay"


def read_log(path: Path) -> list[tuple[int, str, str]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT task, change, owner FROM log ORDER BY rowid").fetchall()
    finally:
        connection.close()
