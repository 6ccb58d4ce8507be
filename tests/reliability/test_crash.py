"""kill -9 at every point of a run with children: nothing is requested or done twice, or lost.

The short form kills at some points, some operations of the disk and some random pairs;
MUDROOM_LONG=1 (`make reliability`) at every point, at every operation, and at 2,000 random pairs.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mudroom import Reason, Report
from mudroom._core.events import (
    RunFinished,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
)
from mudroom.testing.invariants import find_violations

from .conftest import Figure
from .killed import LONG, CrashProgram, Kill, KilledSession, list_stops, start_program

EFFECTS = ["parent", *(f"{name}{n}" for name in "abc" for n in (1, 2, 3))]
FILES = {
    "sum.txt": "3\n",
    "a.txt": "at very last a\n",
    "b.txt": "at last b\n",
    "c.txt": "at last c\n",
    **{f"deep/{name}/{name}.txt": "first second third\n" for name in "abc"},
}


class WholeSession(KilledSession):
    """A session of the scene PARENT, whose end must be that of an undisturbed one."""

    def check(self, report: Report | None, undisturbed: Report) -> None:
        """Check everything that must hold after the end of the session."""
        assert report and select_stable_fields(report) == select_stable_fields(undisturbed)
        assert {path: (self.work / path).read_text() for path in FILES} == FILES
        assert not [*self.work.rglob(".mudroom*"), *self.home.rglob("*.new")]
        file = self.work / "effects.txt"
        effects = Counter(file.read_text().split() if file.exists() else ())
        assert max(effects.values(), default=0) <= 1
        events = self.read_record()
        ran = {f"echo {name} | tee -a effects.txt": times for name, times in effects.items()}
        assert not find_violations(events, effects=ran)
        self.check_answers(events)
        ended = [event for event in events if isinstance(event, RunFinished)]
        assert sorted(event.run for event in ended) == ["1", "1.1.1", "1.1.2", "1.1.3"]
        self.check_unknown(events, effects)

    def check_answers(self, events: list[StoredEvent]) -> None:
        """Check that at most one answer was lost per run and kill."""
        answers = [event for event in events if isinstance(event, TurnFinished)]
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
    with start_program() as program:
        session = WholeSession(folder, program)
        points, report = session.run()
        assert report and (report.reason, report.text) == (Reason.GOAL, "all three are done")
        assert Counter((session.work / "effects.txt").read_text().split()) == Counter(EFFECTS)
        session.check(report, report)
    return points, report


def run_case(
    folder: Path, program: CrashProgram, kills: tuple[Kill, ...], undisturbed: Report
) -> None:
    session = WholeSession(folder, program)
    for kill in kills:
        session.run(kill)
    session.check(session.run()[1], undisturbed)
    shutil.rmtree(folder)


def load_shim(shim: Path, folder: Path) -> dict[str, str]:
    """Return the environment of a program on a disk that kills it; see disk.c."""
    return {"LD_PRELOAD": str(shim), "DISK_FOLDER": f"{folder}/"}


def run_cases(
    folder: Path, cases: list[tuple[Kill, ...]], undisturbed: Report, shim: Path | None = None
) -> None:
    """Run all cases, two at a time."""

    def run_every_second(first: int) -> None:
        with start_program(**(load_shim(shim, folder) if shim else {})) as program:
            for n in range(first, len(cases), 2):
                run_case(folder / str(n), program, cases[n], undisturbed)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run_every_second, range(2)))


@pytest.mark.timeout(3_000)
def test_s1_to_s4_s17_f18_stopped_at_any_point_a_session_is_resumed(
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
    counted = tmp_path / "counted"
    with start_program(**load_shim(shim, counted), DISK_COUNT=str(count)) as program:
        KilledSession(counted, program).run()
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
