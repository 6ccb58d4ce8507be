"""Ids of runs, and of other work that a call starts.

"1" is the root run of the first prompt. "1.3.2" is what call 2 in turn 3 of run "1" starts.
"1.3.2~2" is the second run of that child, which the engine begins. "1.0.alice~1" is a run of a
child that an earlier prompt started.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_NEXT = "~"


def join_run_id(parent: str, turn: int, position: int | str) -> str:
    """Return the id of work that a call of a run starts."""
    return f"{parent}.{turn}.{position}"


def split_run_id(run_id: str) -> tuple[str, int, str]:
    """Return the parent, its turn, and the position of the call. Raises ValueError for a root."""
    parent, turn, position = run_id.rsplit(".", 2)
    return parent, int(turn), position


def is_child_id(run_id: str) -> bool:
    """Return whether a run has a parent."""
    return "." in run_id


def find_parent_id(run_id: str) -> str:
    """Return the id of the run that started a run or other work, "" for a root run."""
    return run_id.rsplit(".", 2)[0] if is_child_id(run_id) else ""


def find_root_id(run_id: str) -> str:
    """Return the id of the root run above a run, or its own if it is a root run."""
    return run_id.partition(".")[0]


def list_above(run_id: str) -> Iterator[str]:
    """Yield the ids of the runs above a run, nearest first."""
    while run_id := find_parent_id(run_id):
        yield run_id


def count_above(run_id: str) -> int:
    """Return the number of runs above a run."""
    return run_id.count(".") // 2


def is_run_above(run_id: str, other: str) -> bool:
    """Return whether a run is above another one."""
    return other.startswith(f"{run_id}.")


def make_next_id(first: str, number: int) -> str:
    """Return the id of a run that the engine begins. `number`: of the child's runs here, from 1."""
    return f"{first}{_NEXT}{number}"


def make_first_id(parent: str, name: str) -> str:
    """Return the first part of the ids of a child's runs under a run that has not started it."""
    return join_run_id(parent, 0, name)


def find_first_id(run_id: str) -> str:
    """Return the id of the first run of a child, or the first part of the ids if there is none."""
    parent, dot, place = run_id.rpartition(".")
    return parent + dot + place.partition(_NEXT)[0]


def make_following_id(run_id: str) -> str:
    """Return the id of the run that the engine begins after a run of a child."""
    first = find_first_id(run_id)
    number = int(run_id.removeprefix(first).lstrip(_NEXT) or 1)
    return make_next_id(first, number + 1)


def is_next_run(run_id: str) -> bool:
    """Return whether the engine began a run for a child that had one already."""
    return _NEXT in run_id.rpartition(".")[2]


def make_sort_key(run_id: str) -> list[tuple[int, str]]:
    """Return a value that sorts ids by the order of turns and calls."""
    parts = re.split(f"[.{_NEXT}]", run_id)
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]
