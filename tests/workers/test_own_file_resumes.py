"""Resumed sessions: a child goes to the machine that has its files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._core.events import RunResumed, StoredEvent
from mudroom.testing.invariants import find_violations

from .far_place import Place

PROGRAM = str(Path(__file__).with_name("far_crash_program.py"))
SESSION = str(uuid.UUID(int=18))


def start(place: Place, machines: str, steps: str, children: int) -> tuple[int, str]:
    """Execute the program; return its exit status and what it printed."""
    command = [sys.executable, PROGRAM, str(place.folder), SESSION, str(children), machines, steps]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environ, timeout=120)
    return ended.returncode, ended.stdout.strip()


def crash(place: Place, machines: str, steps: str, children: int = 1) -> None:
    """Execute the program until it kills itself."""
    assert start(place, machines, f"{steps},crash", children) == (-signal.SIGKILL, "")


def finish(place: Place, machines: str, steps: str, children: int = 1) -> str:
    """Execute the program to its end; return what it printed."""
    status, output = start(place, machines, f"{steps},end", children)
    assert status == 0
    assert find_violations(read_events(place)) == []
    return output


def read_events(place: Place) -> list[StoredEvent]:
    return list(open_reader(place.folder / "home" / "sessions" / f"{SESSION}.db").read())


def test_resumed_children_go_to_the_machines_that_have_their_files(place: Place) -> None:
    crash(place, "node 1,node 2", "begun", 2)
    assert finish(place, "node 2,node 1", "resumed", 2).startswith("GOAL")
    texts = [(place.project / f"{child}.txt").read_text() for child in range(2)]
    assert texts == ["begun\nresumed\n"] * 2


def test_a_resumed_child_whose_machine_is_not_there_is_lost(place: Place) -> None:
    crash(place, "node 1", "begun")
    output = finish(place, "node 2", "resumed")
    assert "changed files on another machine, and they are not here" in output
    assert "it began on node 1 with the tree" in output
    assert not (place.project / "0.txt").exists()


def test_a_resumed_child_goes_to_the_last_machine_where_it_began(place: Place) -> None:
    crash(place, "node 1,node 2", "read,lose,begun")
    resumed = [event for event in read_events(place) if isinstance(event, RunResumed)]
    assert [(event.run, event.machine) for event in resumed] == [("1.1.1", "node 2")]
    assert finish(place, "node 1,node 2", "resumed").startswith("GOAL")
    assert (place.project / "0.txt").read_text() == "begun\nresumed\n"


def test_a_child_that_began_again_here_does_not_go_to_its_first_machine(place: Place) -> None:
    crash(place, "node 1", "read")
    crash(place, "", "begun")
    output = finish(place, "node 1", "resumed")
    assert "it has changed files of its workspace there" in output
    assert not (place.project / "0.txt").exists()


@pytest.mark.parametrize("first", ["node 1", ""], ids=["machine", "session"])
def test_files_of_an_earlier_attempt_do_not_stand_for_those_of_a_lost_machine(
    first: str, place: Place
) -> None:
    if first:
        crash(place, "node 1,node 2", "read,lose,begun")
    else:
        crash(place, "", "read")
        crash(place, "node 2", "begun")
    output = finish(place, first, "resumed")
    assert "changed files on another machine, and they are not here" in output
    assert not (place.project / "0.txt").exists()
