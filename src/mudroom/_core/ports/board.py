"""Board port: the task board of a project, as the runs of a session use it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct


class Board(Protocol):
    """The task board of a project, shared by sessions and processes.

    Every change carries the key of its tool call. If the call runs again after a crash, it gets the
    same answer and the change happens once. Methods raise UsageError for wrong arguments and
    BoardError for a board that cannot be used.
    """

    async def create_task(
        self,
        key: str,
        subject: str,
        description: str = "",
        blockers: Sequence[int] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> BoardAnswer: ...

    async def update_task(
        self, key: str, run_id: str, task_id: int, change: TaskChange
    ) -> BoardAnswer:
        """Change a task for a run, atomically."""
        ...

    async def list_tasks(self) -> Sequence[BoardTask]:
        """Return all tasks in the order of their ids."""
        ...

    async def get_task(self, task_id: int) -> BoardTask: ...

    async def claim_next(
        self, run_id: str, owner: str, agent: str, without: Collection[int] = ()
    ) -> BoardTask | None:
        """Claim the next ready task for a run that starts with it; None if there is none.

        Called again for the same run, it returns the task the run already holds.
        """
        ...

    async def end_claim(self, run_id: str, task_id: int, report: str, *, is_done: bool) -> None:
        """Complete the task a run has claimed, or return it to the board.

        A task the run no longer holds stays unchanged.
        """
        ...

    async def release(self, run_id: str, keep: int = 0) -> None:
        """Return a finished child's tasks to the board, except `keep`, which `end_claim` ends."""
        ...


Status = Literal["pending", "in_progress", "completed"]

BoardOffer = Literal["", "request", "all"]
"""Which runs get the board's tools: none, those whose agent names one, or all."""

CLAIM_DETAIL = "board_task"
"""Key in a tool result's detail that holds the task the call changed."""


class BoardTask(Struct, frozen=True, kw_only=True):
    """One task of a board.

    Arguments:
        owner: name of the run or user working on it, "" for none.
        has_process: true if a running process holds it; imported owners have none.
        run: "session#run" that claimed it, "" for none.
        revision: number of changes; a claim stays valid while it is unchanged.
        blockers: ids of the tasks it depends on. waits_for: those not completed yet.
        blocks: ids of the tasks that depend on it.
        report: result of its completion, or of the last failed attempt.
        metadata: further values. "agent" names the agent whose runs may claim the task; ready
            tasks with a higher "priority" are claimed first; "check" is a command that decides
            whether the task is completed.
        is_imported: true if it was read from another program's file.
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
        return self.metadata.get("agent", "")

    @property
    def check(self) -> str:
        """Command that must succeed on the merged files, "" for none."""
        check = self.metadata.get("check")
        return check if isinstance(check, str) else ""  # an earlier version stored any value

    @property
    def is_ready(self) -> bool:
        return self.status == "pending" and not self.waits_for


class TaskChange(Struct, frozen=True, kw_only=True):
    """A change of a task by a run. None and () leave a field unchanged.

    Arguments:
        status: "in_progress" claims the task for the run; "pending" returns it.
        blockers: further tasks it depends on. blocks: further tasks that depend on it.
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
    """The answer to a change: the changed task, and ids of the tasks that became ready."""

    task: BoardTask
    ready: tuple[int, ...] = ()
    is_deleted: bool = False


def update_claims(claims: dict[int, str], detail: Mapping[str, Any]) -> bool:
    """Update claims, subjects by task id, from a tool result; return whether the board changed."""
    task = detail.get(CLAIM_DETAIL)
    if task is None:
        return False
    claims.pop(task["id"], None)
    if task["is_claimed"]:
        claims[task["id"]] = task["subject"]
    return True
