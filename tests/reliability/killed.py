"""Sessions whose process is killed or asked to end at a point, and continued by another one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from mudroom import Report
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._core.events import StoredEvent
from mudroom._replay import replay
from mudroom.testing.invariants import find_violations

PROGRAM = Path(__file__).with_name("crash.py")
LONG = bool(os.environ.get("MUDROOM_LONG"))


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
        self._program = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
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
def start_program(**env: str) -> Generator[CrashProgram]:
    program = CrashProgram(env)
    try:
        yield program
    finally:
        program.close()


class KilledSession:
    """The folders of a session whose process is killed and started again."""

    def __init__(self, folder: Path, program: CrashProgram, files: dict[str, str] | None = None):
        self.home = folder / "home"
        self.work = folder / "work"
        self.requests = folder.with_suffix(".requests")
        self.program = program
        self.kills = 0
        self.work.mkdir(parents=True)
        self.requests.touch()
        for name, text in {"input.txt": "input\n", **(files or {})}.items():
            (self.work / name).write_text(text)

    def run(self, kill: Kill = NO_KILL) -> tuple[int, Report | None]:
        """Run until the kill, or to the end; return the points passed and the report."""
        places = (str(self.home), str(self.work), str(self.requests))
        code, points, output = self.program.run(*places, str(kill.point), str(kill.disk))
        self.kills += code in STOPPED
        assert code in (0, *STOPPED), output
        return points, msgspec.json.decode(output, type=Report) if output else None

    def read_record(self) -> list[StoredEvent]:
        """Return the events, which keep all promises and replay."""
        events = list(open_reader(next(self.home.glob("sessions/*.db"))).read())
        assert not find_violations(events)
        assert asyncio.run(replay(events)) == events, "the record does not replay"
        return events


def stop_at_points(
    folder: Path,
    prompt: str,
    choose_stops: Callable[[int], list[Kill]],
    check: Callable[[KilledSession, Report], object],
    files: dict[str, str] | None = None,
) -> int:
    """Run a scene of `crash.py` undisturbed, then stop and resume it once for each stop.

    Arguments:
        choose_stops: returns the stops, by the number of points of the undisturbed scene.
        check: called at the end of each, with its session and its report.
        files: of the folder, by name.

    Returns the number of stops.
    """
    with start_program(CRASH_PROMPT=prompt) as program:
        undisturbed = KilledSession(folder / "undisturbed", program, files)
        points, report = undisturbed.run()
        assert report
        check(undisturbed, report)
        stops = choose_stops(points)
        for stop in stops:
            session = KilledSession(folder / str(stop.point), program, files)
            session.run(stop)
            _, resumed = session.run()
            assert resumed and resumed.text == report.text, f"stopped by {stop}"
            check(session, resumed)
    return len(stops)
