"""kill -9 at every point of a run with children: nothing is bought or done twice, nothing is lost.

The short form dies at some points, at some operations of the disk and at some random pairs;
MUDROOM_LONG=1 (`make reliability`) at every point, at every operation, and at 2,000 random pairs.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
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
from mudroom._core.events import (
    RunFinished,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
)
from mudroom.journals.sqlite.reader import open_reader
from mudroom.projections.transcript import build_transcript
from mudroom.replay import replay
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


class Death(NamedTuple):
    """When a life ends: at which point of the program, or operation of the disk; 0: not."""

    point: int = 0
    disk: int = 0


ALIVE = Death()


class Cradle:
    """The program that lives; it has imported all it needs once, and forks for each life."""

    def __init__(self, env: dict[str, str]) -> None:
        words = [sys.executable, str(PROGRAM)]
        self._program = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **env},
        )

    def live(self, *words: str) -> tuple[int, int, str]:
        """Exit code, points passed, and the report, or what went wrong."""
        assert self._program.stdin and self._program.stdout
        self._program.stdin.write("\t".join(words) + "\n")
        self._program.stdin.flush()
        code, points, said = self._program.stdout.readline().rstrip("\n").split("\t", 2)
        return int(code), int(points), said

    def close(self) -> None:
        assert self._program.stdin and self._program.stdout
        self._program.stdin.close()
        self._program.wait(30)
        self._program.stdout.close()


@contextmanager
def cradle(folder: Path, shim: Path | None = None, *, count: str = "") -> Generator[Cradle]:
    one = Cradle(
        {"LD_PRELOAD": str(shim), "DISK_FOLDER": f"{folder}/"}
        | ({"DISK_COUNT": count} if count else {})
        if shim
        else {}
    )
    try:
        yield one
    finally:
        one.close()


class Life:
    """One session's folder, and the deaths it goes through."""

    def __init__(self, folder: Path, program: Cradle) -> None:
        self.home, self.work, self.bought, self.program = (
            folder / "home",
            folder / "work",
            folder.with_suffix(".bought"),
            program,
        )
        self.work.mkdir(parents=True)
        self.bought.touch()
        (self.work / "given.txt").write_text("given\n")
        self.deaths = 0

    def go(self, death: Death = ALIVE) -> tuple[int, Report | None]:
        """Run until it dies, or to the end: the points it passed, and its report."""
        words = [
            str(self.home),
            str(self.work),
            str(self.bought),
            str(death.point),
            str(death.disk),
        ]
        code, points, said = self.program.live(*words)
        self.deaths += code == -9
        assert code in (0, -9), said
        return points, msgspec.json.decode(said, type=Report) if said else None

    def events(self) -> list[StoredEvent]:
        return list(open_reader(next(self.home.glob("sessions/*.db"))).read())

    def check(self, report: Report | None, undisturbed: Report) -> None:
        """What must hold once the session came to its end."""
        assert report and told(report) == told(undisturbed)
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
        assert asyncio.run(replay(events)) == events, "it does not come out again"

    def check_answers(self, events: list[StoredEvent]) -> None:
        """One answer a turn.

        What was bought and not heard is at most one answer for each run that was alive at a death.
        """
        answers = Counter(
            (event.run, event.turn) for event in events if isinstance(event, TurnFinished)
        )
        assert set(answers.values()) == {1}
        bought = Counter(self.bought.read_text().splitlines())
        assert len(bought) == len(answers)
        assert max(bought.values()) <= 1 + self.deaths
        assert sum(bought.values()) <= len(answers) + 4 * self.deaths

    def check_unknown(self, events: list[StoredEvent], effects: Counter[str]) -> None:
        """A command that is not known to have run is told to be so.

        One that is said to have run did.
        """
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
        assert len(unknown) <= 4 * self.deaths


def told(report: Report) -> Mapping[str, object]:
    """What of a report does not depend on how often its process died.

    All but seconds, failed calls, and tokens, as their words count.
    """
    fields = {
        name: getattr(report, name)
        for name in ("text", "reason", "run_id", "recovered", "outputs", "turns", "calls", "error")
    }
    return fields | {"read": {*report.files_read}, "changed": {*report.files_changed}}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Report]:
    folder = tmp_path_factory.mktemp("undisturbed") / "life"
    with cradle(folder) as program:
        life = Life(folder, program)
        points, report = life.go()
        assert report and (report.reason, report.text) == (Reason.GOAL, "all three are done")
        assert Counter((life.work / "effects.txt").read_text().split()) == Counter(EFFECTS)
        life.check(report, report)
    return points, report


def survive(folder: Path, program: Cradle, deaths: tuple[Death, ...], undisturbed: Report) -> None:
    life = Life(folder, program)
    for death in deaths:
        life.go(death)
    life.check(life.go()[1], undisturbed)
    shutil.rmtree(folder)


def several(
    folder: Path, lives: list[tuple[Death, ...]], undisturbed: Report, shim: Path | None = None
) -> None:
    """Live them all, two at a time."""

    def some(which: int) -> None:
        with cradle(folder, shim) as program:
            for n in range(which, len(lives), 2):
                survive(folder / str(n), program, lives[n], undisturbed)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(some, range(2)))


@pytest.mark.timeout(3_000)
def test_s1_to_s4_killed_at_a_point_it_goes_on(
    undisturbed: tuple[int, Report], tmp_path: Path, figure: Figure
) -> None:
    points, report = undisturbed
    assert points >= 300
    lives = [(Death(point),) for point in range(1, points + 1, 1 if LONG else 23)]
    several(tmp_path, list(lives), report)
    figure(
        "killed around every append and every effect",
        f"{len(lives)} points, nothing lost or done twice",
    )


@pytest.mark.timeout(6_000)
def test_s1_to_s4_killed_within_a_write_it_goes_on(
    undisturbed: tuple[int, Report], tmp_path: Path, shim: Path, figure: Figure
) -> None:
    count = tmp_path / "count"
    with cradle(tmp_path / "counted", shim, count=str(count)) as program:
        Life(tmp_path / "counted", program).go()
    operations = int(count.read_text())
    assert operations >= 300
    lives = [
        (Death(disk=operation),)
        for operation in range(1, operations + 1, 1 if LONG else operations // 9)
    ]
    several(tmp_path / "lives", list(lives), undisturbed[1], shim)
    figure(
        "killed at every write, sync, rename and open of the disk",
        f"{len(lives)} points, nothing lost or done twice",
    )


@pytest.mark.timeout(9_000)
def test_s1_to_s4_killed_twice_it_goes_on(
    undisturbed: tuple[int, Report], tmp_path: Path, figure: Figure
) -> None:
    (points, report), chance = undisturbed, random.Random(11)
    firsts = [chance.randrange(1, points - 20) for _ in range(2_000 if LONG else 6)]
    pairs = [(Death(first), Death(chance.randrange(1, points - first))) for first in firsts]
    several(tmp_path, list(pairs), report)
    figure("killed twice at random points", f"{len(pairs)} pairs, nothing lost or done twice")
