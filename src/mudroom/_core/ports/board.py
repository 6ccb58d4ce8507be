"""Board port: the task board of a project, as the runs of one session use it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from ..board_tasks import BoardAnswer, BoardTask, TaskChange


class Board(Protocol):
    """The task board of a project, shared by sessions and processes.

    A change has the key of its call. A call that runs again after a crash gets the same answer, and
    the change happens once. Methods raise UsageError for wrong arguments, BoardError for a board
    that cannot be used.
    """

    async def create_task(
        self,
        key: str,
        subject: str,
        description: str = "",
        blockers: Sequence[int] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> BoardAnswer:
        """Add a task."""
        ...

    async def update_task(
        self, key: str, run_id: str, task_id: int, change: TaskChange
    ) -> BoardAnswer:
        """Change a task for a run: all of the change, or nothing."""
        ...

    async def list_tasks(self) -> Sequence[BoardTask]:
        """Return all tasks, lowest id first."""
        ...

    async def get_task(self, task_id: int) -> BoardTask:
        """Return one task."""
        ...

    async def claim_next(
        self, run_id: str, owner: str, agent: str, without: Collection[int] = ()
    ) -> BoardTask | None:
        """Claim the first ready task for a run that begins with it; None if there is none.

        Called again for the same run, it returns the task that the run has.

        Arguments:
            without: ids of tasks not to take.
        """
        ...

    async def end_claim(self, run_id: str, task_id: int, report: str, *, is_done: bool) -> None:
        """Complete the task that a run has claimed, or return it to the board.

        A task that the run does not have any more stays as it is.
        """
        ...

    async def release(self, run_id: str, keep: int = 0) -> None:
        """Return the tasks that a child run works on to the board, at its end.

        Arguments:
            keep: id of a task that `end_claim` handles later.
        """
        ...
