"""Board port: the task board of a project, as the runs of one session use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    async def release(self, run_id: str) -> None:
        """Return the tasks that a child run works on to the board, at its end."""
        ...
