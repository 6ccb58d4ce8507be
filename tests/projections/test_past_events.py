"""Events of unfinished runs by run id, with the runs below each run."""

from __future__ import annotations

import time

from mudroom._engine.recorded_conversations import PastEvents
from mudroom.testing.event_builders import run_started

RUNS = ("1", "1.1.1", "1.1.1.2.1", "1.1.1~2", "1.1.10", "1.0.alice~1", "10", "10.1.1")


def make_past() -> PastEvents:
    return PastEvents({run: [run_started(run)] for run in RUNS})


def test_the_runs_below_a_run_are_those_of_its_children_and_of_their_children() -> None:
    past = make_past()
    assert list(past.walk_below("1")) == [
        "1.1.1",
        "1.1.1.2.1",
        "1.1.1~2",
        "1.1.10",
        "1.0.alice~1",
    ]
    assert list(past.walk_below("1.1.1")) == ["1.1.1.2.1"]
    assert list(past.walk_below("10")) == ["10.1.1"]
    assert list(past.walk_below("1.1.10")) == []


def test_runs_that_are_removed_are_below_no_run() -> None:
    past = make_past()
    del past["1.1.1"]
    past.pop("10.1.1")
    assert "1.1.1" not in past and len(past) == len(RUNS) - 2
    assert list(past.walk_below("1")) == ["1.1.1~2", "1.1.10", "1.0.alice~1"]
    assert list(past.walk_below("10")) == []
    past.clear()
    assert not past and list(past.walk_below("1")) == []


def test_many_runs_are_removed_at_once() -> None:
    """The sequence of single removals took 10 s for so many, on the event loop."""
    past = PastEvents({f"1.{number}.1": [] for number in range(100_000)})
    start = time.thread_time()
    past.clear()
    assert time.thread_time() - start < 1
