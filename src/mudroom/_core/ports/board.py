"""Board port: the task board of a project, as the runs of one session use it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Protocol, get_args

from msgspec import Struct


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


Status = Literal["pending", "in_progress", "completed"]

STATUSES: tuple[Status, ...] = get_args(Status)

BoardOffer = Literal["", "request", "all"]
"""Runs that have the tools for the board: none, those whose agent names a tool, or all."""

CLAIM_DETAIL = "board_task"
"""Key in the detail of a tool result: the task of the board that the call changed."""


class BoardTask(Struct, frozen=True, kw_only=True):
    """One task of a board.

    Arguments:
        owner: name of the run or user that works on it, "" for none.
        has_process: a running process holds it; an imported owner has none.
        run: session and run that claimed it, "" for none: "session#run".
        revision: number of changes; a claim is valid as long as it is unchanged.
        blockers: ids of the tasks that it depends on. waits_for: those not completed.
        blocks: ids of the tasks that depend on it.
        report: result of its completion, or of the last failed attempt.
        metadata: further values. "agent" names the agent whose runs may claim the task; of the
            ready tasks, those with a higher "priority" come first; "check" is a command that
            decides whether the task is completed.
        is_imported: it comes from a file.
    """

    id: int
    subject: str
    description: str = ""
    status: Status = "pending"
    owner: str = ""
    has_process: bool = False
    run: str = ""
    revision: int = 1
    blockers: tuple[int, ...] = ()
    waits_for: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    report: str = ""
    metadata: Mapping[str, Any] = {}
    is_imported: bool = False

    @property
    def agent(self) -> str:
        """Name of the agent whose runs may claim the task, "" for all."""
        return self.metadata.get("agent", "")

    @property
    def check(self) -> str:
        """Command that must succeed with the merged files, "" for none."""
        check = self.metadata.get("check")
        return check if isinstance(check, str) else ""  # an earlier version stored any value

    @property
    def is_ready(self) -> bool:
        """Return whether a run can claim it."""
        return self.status == "pending" and not self.waits_for


class TaskChange(Struct, frozen=True, kw_only=True):
    """Change of a task by a run. None and () leave a field as it is.

    Arguments:
        status: "in_progress" claims the task for the run; "pending" returns it.
        agent: name of the agent of the run.
        blockers: further tasks that it depends on. blocks: tasks that depend on it.
        metadata: values to change; None removes one.
    """

    status: Status | Literal["deleted"] | None = None
    subject: str | None = None
    description: str | None = None
    owner: str | None = None
    agent: str | None = None
    blockers: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    metadata: Mapping[str, Any] = {}


class BoardAnswer(Struct, frozen=True, omit_defaults=True):
    """Answer to a change: the task after it, and the tasks that it made ready.

    Arguments:
        is_deleted: the task is not on the board any more.
    """

    task: BoardTask
    ready: tuple[int, ...] = ()
    is_deleted: bool = False


def update_claims(claims: dict[int, str], detail: Mapping[str, Any]) -> bool:
    """Update the tasks that a run works on, by id, from the detail of a tool result.

    Return whether the result is one of a change of the board.
    """
    task = detail.get(CLAIM_DETAIL)
    if task is None:
        return False
    claims.pop(task["id"], None)
    if task["is_claimed"]:
        claims[task["id"]] = task["subject"]
    return True
