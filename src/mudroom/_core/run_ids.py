"""Ids of runs and of other work started by tool calls.

"1" is the root run of the first prompt. "1.3.2" is the work started by call 2 in turn 3 of run "1".
"1.3.2~2" is that child's second run, begun by the engine. "1.0.alice~1" is a run of a child that an
earlier prompt started.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_NEXT = "~"


def join_run_id(parent: str, turn: int, position: int | str) -> str:
    """Return the work id of a tool call."""
    return f"{parent}.{turn}.{position}"


def split_run_id(run_id: str) -> tuple[str, int, str]:
    """Split a work id into parent, turn and position of the call. Raises ValueError for a root."""
    parent, turn, position = run_id.rsplit(".", 2)
    return parent, int(turn), position


def is_child_id(run_id: str) -> bool:
    """Return whether another run started this one."""
    return "." in run_id


def find_parent_id(run_id: str) -> str:
    """Return the id of the run that started this work, "" for a root run."""
    return run_id.rsplit(".", 2)[0] if is_child_id(run_id) else ""


def find_root_id(run_id: str) -> str:
    """Return the id of the root run above a run; a root run is its own."""
    return run_id.partition(".")[0]


def list_above(run_id: str) -> Iterator[str]:
    """Yield the ids of a run's ancestors, nearest first."""
    while run_id := find_parent_id(run_id):
        yield run_id


def count_above(run_id: str) -> int:
    """Count a run's ancestors."""
    return run_id.count(".") // 2


def is_run_above(run_id: str, other: str) -> bool:
    """Return whether the first run is an ancestor of the second."""
    return other.startswith(f"{run_id}.")


def make_next_id(first: str, number: int) -> str:
    """Make the id of a child's further run. `number`: its number under this parent, from 1."""
    return f"{first}{_NEXT}{number}"


def make_first_id(parent: str, name: str) -> str:
    """Make the id a child has under a run that did not start it itself."""
    # Turn 0: turns of tool calls count from 1, so no call can have this id.
    return join_run_id(parent, 0, name)


def find_first_id(run_id: str) -> str:
    """Return the id of a child's first run, or the id its runs under this parent begin with."""
    parent, dot, place = run_id.rpartition(".")
    return parent + dot + place.partition(_NEXT)[0]


def make_following_id(run_id: str) -> str:
    """Make the id of the run that follows this run of a child."""
    first = find_first_id(run_id)
    number = int(run_id.removeprefix(first).lstrip(_NEXT) or 1)
    return make_next_id(first, number + 1)


def is_next_run(run_id: str) -> bool:
    """Return whether this is a further run of a child that had run before."""
    return _NEXT in run_id.rpartition(".")[2]


def make_sort_key(run_id: str) -> list[tuple[int, str]]:
    """Return a key that sorts ids by turn and call."""
    parts = re.split(f"[.{_NEXT}]", run_id)
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]
