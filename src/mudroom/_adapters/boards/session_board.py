"""The port Board: a project's board as the runs of one session use it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ..._core.ports.board import BoardAnswer, BoardTask, TaskChange
from .board import TaskBoard
from .run_changes import RunChanges

T = TypeVar("T")


class SessionBoard:
    """The port Board for one session. The file is opened at first use.

    Claims belong to a lock named after the session: if the session is resumed after a crash, it
    still has its tasks unless another process has taken them.

    Arguments:
        path: file of the board.
        is_owner: false in a worker process, since the session's process holds the lock.
    """

    def __init__(self, path: Path, session: str, *, is_owner: bool = True) -> None:
        self._path = path
        self._session = session
        self._is_owner = is_owner
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mudroom-board")
        self._board: TaskBoard | None = None
        self._is_used = False

    @property
    def name(self) -> str:
        return self._path.name

    async def open(self) -> None:
        """Open the file and hold the lock. Raises BoardError."""
        await self._run(lambda board: None)

    async def close(self, *, keeps_tasks: bool = False) -> None:
        """Return the session's unfinished tasks to the board, and close the file.

        Arguments:
            keeps_tasks: leave them with the session, which continues in a later process.
        """
        if self._is_used:
            close = partial(self._close, keeps_tasks=keeps_tasks)
            await asyncio.get_running_loop().run_in_executor(self._thread, close)
        self._thread.shutdown()

    async def create_task(
        self,
        key: str,
        subject: str,
        description: str = "",
        blockers: Sequence[int] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> BoardAnswer:
        return await self._run(
            lambda board: RunChanges(board, self._session).create(
                key, subject, description, blockers, metadata or {}
            )
        )

    async def update_task(
        self, key: str, run_id: str, task_id: int, change: TaskChange
    ) -> BoardAnswer:
        return await self._run(
            lambda board: RunChanges(board, self._session).update(key, run_id, task_id, change)
        )

    async def list_tasks(self) -> Sequence[BoardTask]:
        return await self._run(lambda board: board.list_tasks())

    async def get_task(self, task_id: int) -> BoardTask:
        return await self._run(lambda board: board.get(task_id))

    async def claim_next(
        self, run_id: str, owner: str, agent: str, without: Collection[int] = ()
    ) -> BoardTask | None:
        return await self._run(
            lambda board: RunChanges(board, self._session).claim_next(run_id, owner, agent, without)
        )

    async def end_claim(self, run_id: str, task_id: int, report: str, *, is_done: bool) -> None:
        await self._run(
            lambda board: RunChanges(board, self._session).end_claim(
                run_id, task_id, report, is_done=is_done
            )
        )

    async def release(self, run_id: str, keep: int = 0) -> None:
        """Return a finished child's tasks to the board.

        Tasks of root runs stay with the session until it closes. By the time this returns, changes
        made by cancelled calls have taken place.
        """
        if self._is_used:
            await self._run(lambda board: RunChanges(board, self._session).release(run_id, keep))

    async def _run(self, act: Callable[[TaskBoard], T]) -> T:
        """Act on the board in its thread. A cancelled call still completes its change."""
        self._is_used = True
        work = asyncio.get_running_loop().run_in_executor(self._thread, self._act, act)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # No one reads its error any more, and asyncio would print it.
            work.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise

    def _act(self, act: Callable[[TaskBoard], T]) -> T:
        if self._board is None:
            self._board = self._open()
        return act(self._board)

    def _close(self, *, keeps_tasks: bool) -> None:
        # Runs in the board's thread, and so after all calls sent to it.
        if board := self._board:
            self._board = None
            board.close(keeps_tasks=keeps_tasks)

    def _open(self) -> TaskBoard:
        if not self._is_owner:
            return TaskBoard(self._path, lock_name=self._session)
        board = TaskBoard(self._path)
        try:
            board.hold_lock(self._session)
        except BaseException:
            board.close()
            raise
        return board
