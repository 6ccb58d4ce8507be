"""kill -9 at every point of a run with a parent and three children: nothing bought twice, nothing done twice, nothing lost.

The short form dies at every ninth point and at some random pairs; MUDROOM_LONG=1 (`make reliability`) at every point,
within every append, and at 2,000 random pairs.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mudroom._core.events import CallFinished, CallStarted, RunFinished, Stored, TurnFinished
from mudroom._engine.tree import transcript
from mudroom.journals.sqlite import read_only
from mudroom.testing.history import violations

PROGRAM = Path(__file__).with_name("crash.py")
LONG = bool(os.environ.get("MUDROOM_LONG"))
Figure = Callable[[str, str], None]
FINAL = "all three are done"


class Life:
    """One session's folder, and the deaths it goes through."""

    def __init__(self, folder: Path) -> None:
        self.home, self.work, self.bought = folder / "home", folder / "work", folder / "bought"
        self.work.mkdir(parents=True)
        (self.work / "given.txt").write_text("given\n")
        self.deaths = 0

    def go(self, point: int = 0, within: int = 0) -> str:
        """Run until the point, or to the end; what it printed."""
        words = [sys.executable, str(PROGRAM), str(self.home), str(self.work), str(point), str(within)]
        ran = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "BOUGHT": str(self.bought)})
        self.deaths += ran.returncode == -9
        assert ran.returncode in (0, -9), ran.stderr
        return ran.stdout.strip()

    def events(self) -> list[Stored]:
        return list(read_only(next(self.home.glob("sessions/*.db"))).read())

    def check(self) -> None:
        """What must hold once the session came to its end."""
        for name in "abc":
            assert (self.work / f"{name}.txt").read_text() == f"one two three {name}\n"
        assert not list(self.work.glob(".mudroom*"))
        effects = Counter((self.work / "effects.txt").read_text().split()) if (self.work / "effects.txt").exists() else Counter[str]()
        assert max(effects.values(), default=0) <= 1
        events = self.events()
        ran = {f"echo {name} >> effects.txt": times for name, times in effects.items()}
        assert not violations(events, effects=ran)
        answers = Counter((event.run, event.turn) for event in events if isinstance(event, TurnFinished))
        assert set(answers.values()) == {1}
        assert sum(Counter(self.bought.read_text().splitlines()).values()) <= len(answers) + 4 * self.deaths
        intents = Counter((event.run, event.call.id) for event in events if isinstance(event, CallStarted))
        results = Counter((event.run, event.call_id) for event in events if isinstance(event, CallFinished))
        assert intents == results
        assert set(results.values()) == {1}
        ended = [event for event in events if isinstance(event, RunFinished)]
        assert sorted(event.run for event in ended) == ["1", "1.1.1", "1.1.2", "1.1.3"]
        assert ended[-1].report.text == FINAL
        self.check_unknown(events, effects)
        assert all(len(transcript(events, run)) for run in ("1", "1.1.1"))

    def check_unknown(self, events: list[Stored], effects: Counter[str]) -> None:
        """A command that is not known to have run is told to be so; one that is said to have run did."""
        commands = [event.call for event in events if isinstance(event, CallStarted) and event.call.name == "bash"]
        assert len(commands) == 4
        results = {event.call_id: event.result for event in events if isinstance(event, CallFinished) and event.name == "bash"}
        said = sum(not result.error for result in results.values())
        assert said <= sum(effects.values()) <= 4


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> int:
    life = Life(tmp_path_factory.mktemp("undisturbed") / "life")
    passed, text = life.go().split(" ", 1)
    assert text == FINAL
    life.check()
    return int(passed)


def survive(folder: Path, *deaths: tuple[int, int]) -> None:
    life = Life(folder)
    for point, within in deaths:
        life.go(point, within)
    life.go()
    life.check()


def several(folder: Path, lives: list[tuple[tuple[int, int], ...]]) -> None:
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(survive, folder / str(n), *deaths) for n, deaths in enumerate(lives)]:
            done.result()


@pytest.mark.timeout(3_000)
def test_s1_to_s4_killed_at_a_point_it_goes_on(points: int, tmp_path: Path, figure: Figure) -> None:
    lives = [((point, 0),) for point in range(1, points + 1, 1 if LONG else 9)]
    several(tmp_path, list(lives))
    figure("killed before and after every append", f"{len(lives)} points, nothing lost or done twice")


@pytest.mark.timeout(3_000)
def test_s1_to_s4_killed_within_an_append_it_goes_on(points: int, tmp_path: Path, figure: Figure) -> None:
    chance = random.Random(7)
    lives = [((point, chance.randrange(1, 3_000)),) for point in range(1, points + 1, 1 if LONG else 19)]
    several(tmp_path, list(lives))
    figure("killed within every append", f"{len(lives)} points, nothing lost or done twice")


@pytest.mark.timeout(9_000)
def test_s1_to_s4_killed_twice_it_goes_on(points: int, tmp_path: Path, figure: Figure) -> None:
    chance = random.Random(11)
    pairs = [((chance.randrange(1, points), 0), (chance.randrange(1, points), 0)) for _ in range(2_000 if LONG else 8)]
    several(tmp_path, list(pairs))
    figure("killed twice at random points", f"{len(pairs)} pairs, nothing lost or done twice")
