"""Values of a task board: a task, and the checks of its texts and dependencies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from ..errors import UsageError

Status = Literal["pending", "in_progress", "completed"]

STATUSES: tuple[Status, ...] = ("pending", "in_progress", "completed")


class BoardTask(Struct, frozen=True, kw_only=True):
    """One task of a board.

    Arguments:
        owner: name of the run or user that works on it, "" for none.
        has_process: a running process holds it; an imported owner has none.
        revision: number of changes; a claim is valid as long as it is unchanged.
        blockers: ids of the tasks that it depends on. waits_for: those not completed.
        blocks: ids of the tasks that depend on it.
        report: result of its completion, or of the last failed attempt.
    """

    id: int
    subject: str
    description: str = ""
    status: Status = "pending"
    owner: str = ""
    has_process: bool = False
    revision: int = 1
    blockers: tuple[int, ...] = ()
    waits_for: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    report: str = ""

    @property
    def is_ready(self) -> bool:
        """Return whether a run can claim it."""
        return self.status == "pending" and not self.waits_for


def require_subject(subject: str) -> str:
    """Return a subject as one line. Raises UsageError if it is blank."""
    line = " ".join(subject.split())
    if not line:
        raise UsageError("the subject of a task is blank", remedy="Say in a few words what to do.")
    return line


def require_no_cycle(blockers: Mapping[int, Iterable[int]]) -> None:
    """Raise UsageError with the path of a cycle if tasks depend on themselves.

    Arguments:
        blockers: id of a task -> ids of the tasks that it depends on.
    """
    if path := find_cycle(blockers):
        chain = " -> ".join(f"#{task}" for task in path)
        raise UsageError(
            f"these tasks depend on each other in a cycle: {chain}",
            remedy="Leave out one of these dependencies.",
        )


def find_cycle(blockers: Mapping[int, Iterable[int]]) -> list[int]:
    """Return the path of a cycle, its first task again at the end; [] if there is none."""
    finished: set[int] = set()
    for start in blockers:
        path: list[int] = []
        stack = [(start, iter(blockers.get(start, ())))]
        if start in finished:
            continue
        path.append(start)
        while stack:
            task, remaining = stack[-1]
            blocker = next(remaining, None)
            if blocker is None:
                finished.add(task)
                stack.pop()
                path.pop()
            elif blocker in path:
                return [*path[path.index(blocker) :], blocker]
            elif blocker not in finished:
                path.append(blocker)
                stack.append((blocker, iter(blockers.get(blocker, ()))))
    return []
