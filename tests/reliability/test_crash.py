"""kill -9 at every point of a run with children: nothing is requested or done twice, or lost.

The short form kills at some points, some operations of the disk and some random pairs;
MUDROOM_LONG=1 (`make reliability`) at every point, at every operation, and at 2,000 random pairs.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from mudroom import Reason, Report
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._core.events import (
    RunFinished,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
)
from mudroom._projections.transcript import build_transcript
from mudroom._replay import replay
from mudroom.testing.invariants import find_violations

PROGRAM = Path(__file__).with_name("crash.py")
LONG = bool(os.environ.get("MUDROOM_LONG"))
Figure = Callable[[str, str], None]
EFFECTS = ["parent", *(f"{name}{n}" for name in "abc" for n in (1, 2, 3))]
FILES = {
    "sum.txt": "3\n",
    "a.txt": "at very last a\n",
    "b.txt": "at last b\n",
    "c.txt": "at last c\n",
    **{f"deep/{name}/{name}.txt": "first second third\n" for name in "abc"},
}


class Kill(NamedTuple):
    """The point of the program, or the disk operation, at which a process is killed; 0: none.

    At a point below 0, it gets SIGTERM.
    """

    point: int = 0
    disk: int = 0


NO_KILL = Kill()
STOPPED = (-signal.SIGKILL, -signal.SIGTERM)
"""Exit codes of a process that was killed, or asked to end."""


def list_stops(points: int, step: int) -> list[Kill]:
    """Return kills and SIGTERMs: alternately at every `step` points, in the long form at each."""
    if LONG:
        return [Kill(sign * point) for point in range(1, points + 1) for sign in (1, -1)]
    chosen = enumerate(range(1, points + 1, step))
    return [Kill(-point if n % 2 else point) for n, point in chosen]


class CrashProgram:
    """The program `crash.py`: it has imported its modules, and forks for each process."""

    def __init__(self, env: dict[str, str]) -> None:
        words = [sys.executable, str(PROGRAM)]
        self._program = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **env},
        )

    def run(self, *words: str) -> tuple[int, int, str]:
        """Return exit code, number of points passed, and the report or the traceback."""
        assert self._program.stdin and self._program.stdout
        self._program.stdin.write("\t".join(words) + "\n")
        self._program.stdin.flush()
        code, points, output = self._program.stdout.readline().rstrip("\n").split("\t", 2)
        return int(code), int(points), output

    def close(self) -> None:
        assert self._program.stdin and self._program.stdout
        self._program.stdin.close()
        self._program.wait(60)
        self._program.stdout.close()


@contextmanager
def start_program(
    folder: Path, shim: Path | None = None, *, count: str = ""
) -> Generator[CrashProgram]:
    one = CrashProgram(
        {"LD_PRELOAD": str(shim), "DISK_FOLDER": f"{folder}/"}
        | ({"DISK_COUNT": count} if count else {})
        if shim
        else {}
    )
    try:
        yield one
    finally:
        one.close()


class KilledSession:
    """The folders of a session whose process is killed and started again."""

    def __init__(self, folder: Path, program: CrashProgram) -> None:
        self.home, self.work, self.requests, self.program = (
            folder / "home",
            folder / "work",
            folder.with_suffix(".requests"),
            program,
        )
        self.work.mkdir(parents=True)
        self.requests.touch()
        (self.work / "input.txt").write_text("input\n")
        self.kills = 0

    def run(self, kill: Kill = NO_KILL) -> tuple[int, Report | None]:
        """Run until the kill, or to the end; return the points passed and the report."""
        words = [
            str(self.home),
            str(self.work),
            str(self.requests),
            str(kill.point),
            str(kill.disk),
        ]
        code, points, output = self.program.run(*words)
        self.kills += code in STOPPED
        assert code in (0, *STOPPED), output
        return points, msgspec.json.decode(output, type=Report) if output else None

    def events(self) -> list[StoredEvent]:
        return list(open_reader(next(self.home.glob("sessions/*.db"))).read())

    def check(self, report: Report | None, undisturbed: Report) -> None:
        """Check everything that must hold after the end of the session."""
        assert report and select_stable_fields(report) == select_stable_fields(undisturbed)
        assert {path: (self.work / path).read_text() for path in FILES} == FILES
        assert not [*self.work.rglob(".mudroom*"), *self.home.rglob("*.new")]
        effects = (
            Counter((self.work / "effects.txt").read_text().split())
            if (self.work / "effects.txt").exists()
            else Counter[str]()
        )
        assert max(effects.values(), default=0) <= 1
        events = self.events()
        assert not find_violations(
            events,
            effects={f"echo {name} | tee -a effects.txt": times for name, times in effects.items()},
        )
        self.check_answers(events)
        intents = Counter(
            (event.run, event.call.id) for event in events if isinstance(event, ToolCallStarted)
        )
        results = Counter(
            (event.run, event.call_id) for event in events if isinstance(event, ToolCallFinished)
        )
        assert intents == results
        assert set(results.values()) == {1}
        ended = [event for event in events if isinstance(event, RunFinished)]
        assert sorted(event.run for event in ended) == ["1", "1.1.1", "1.1.2", "1.1.3"]
        self.check_unknown(events, effects)
        assert all(len(build_transcript(events, run)) for run in ("1", "1.1.1"))
        assert asyncio.run(replay(events)) == events, "the record does not replay"

    def check_answers(self, events: list[StoredEvent]) -> None:
        """Check one answer per turn, and at most one lost answer per run and kill."""
        answers = Counter(
            (event.run, event.turn) for event in events if isinstance(event, TurnFinished)
        )
        assert set(answers.values()) == {1}
        requests = Counter(self.requests.read_text().splitlines())
        assert len(requests) == len(answers)
        assert max(requests.values()) <= 1 + self.kills
        assert sum(requests.values()) <= len(answers) + 4 * self.kills

    def check_unknown(self, events: list[StoredEvent], effects: Counter[str]) -> None:
        """Check that commands reported as done ran, and others are reported as unknown."""
        commands = [
            event.call
            for event in events
            if isinstance(event, ToolCallStarted) and event.call.name == "bash"
        ]
        assert len(commands) == len(EFFECTS)
        unknown = [
            event
            for event in events
            if isinstance(event, ToolCallFinished) and event.name == "bash" and event.result.error
        ]
        assert len(commands) - len(unknown) <= sum(effects.values()) <= len(commands)
        assert len(unknown) <= 4 * self.kills


def select_stable_fields(report: Report) -> Mapping[str, object]:
    """Return the fields of a report that do not depend on the number of kills."""
    fields = {
        name: getattr(report, name)
        for name in ("text", "reason", "run_id", "recovered", "outputs", "turns", "calls", "error")
    }
    return fields | {"read": {*report.files_read}, "changed": {*report.files_changed}}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Report]:
    folder = tmp_path_factory.mktemp("undisturbed") / "session"
    with start_program(folder) as program:
        session = KilledSession(folder, program)
        points, report = session.run()
        assert report and (report.reason, report.text) == (Reason.GOAL, "all three are done")
        assert Counter((session.work / "effects.txt").read_text().split()) == Counter(EFFECTS)
        session.check(report, report)
    return points, report


def run_case(
    folder: Path, program: CrashProgram, kills: tuple[Kill, ...], undisturbed: Report
) -> None:
    session = KilledSession(folder, program)
    for kill in kills:
        session.run(kill)
    session.check(session.run()[1], undisturbed)
    shutil.rmtree(folder)


def run_cases(
    folder: Path, cases: list[tuple[Kill, ...]], undisturbed: Report, shim: Path | None = None
) -> None:
    """Run all cases, two at a time."""

    def run_every_second(first: int) -> None:
        with start_program(folder, shim) as program:
            for n in range(first, len(cases), 2):
                run_case(folder / str(n), program, cases[n], undisturbed)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run_every_second, range(2)))


@pytest.mark.timeout(3_000)
def test_s1_to_s4_s17_stopped_at_any_point_a_session_is_resumed(
    undisturbed: tuple[int, Report], tmp_path: Path, figure: Figure
) -> None:
    points, report = undisturbed
    assert points >= 300
    cases = [(stop,) for stop in list_stops(points, 31)]
    run_cases(tmp_path, list(cases), report)
    figure(
        "killed, or sent SIGTERM, around every append and every effect",
        f"{len(cases)} points, nothing lost or done twice",
    )


@pytest.mark.timeout(6_000)
def test_s1_to_s4_killed_at_any_disk_operation_a_session_is_resumed(
    undisturbed: tuple[int, Report], tmp_path: Path, shim: Path, figure: Figure
) -> None:
    count = tmp_path / "count"
    with start_program(tmp_path / "counted", shim, count=str(count)) as program:
        KilledSession(tmp_path / "counted", program).run()
    operations = int(count.read_text())
    assert operations >= 300
    cases = [
        (Kill(disk=operation),)
        for operation in range(1, operations + 1, 1 if LONG else operations // 5)
    ]
    run_cases(tmp_path / "cases", list(cases), undisturbed[1], shim)
    figure(
        "killed at every write, sync, rename and open of the disk",
        f"{len(cases)} points, nothing lost or done twice",
    )


@pytest.mark.timeout(9_000)
def test_s1_to_s4_killed_twice_a_session_is_resumed(
    undisturbed: tuple[int, Report], tmp_path: Path, figure: Figure
) -> None:
    (points, report), chance = undisturbed, random.Random(11)
    firsts = [chance.randrange(1, points - 20) for _ in range(2_000 if LONG else 3)]
    pairs = [
        (Kill(first), Kill(chance.choice((1, -1)) * chance.randrange(1, points - first)))
        for first in firsts
    ]
    run_cases(tmp_path, list(pairs), report)
    figure("killed twice at random points", f"{len(pairs)} pairs, nothing lost or done twice")
