"""The port Board: a project's board as the runs of a session change it, once per tool call."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ..._core.json_values import get_decoder
from ..._core.ports.board import BoardAnswer, BoardTask, TaskChange
from ..._core.runs import find_first_id, is_child_id
from ...errors import BoardError, UsageError
from .board import TaskBoard

T = TypeVar("T")


class SessionBoard:
    """The port Board for one session. The file is opened at first use.

    Claims belong to a lock named after the session: if the session is resumed after a crash, it
    still has its tasks unless another process has taken them. Only the session's process holds the
    lock: a worker process owns nothing.
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
        await self._run(lambda board: None)

    async def close(self, *, keeps_tasks: bool = False) -> None:
        """Return the session's unfinished tasks to the board, and close the file.

        With `keeps_tasks`, they stay with the session, which continues in a later process.
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
        return await self._change(
            lambda runs: runs.create(key, subject, description, blockers, metadata or {})
        )

    async def update_task(
        self, key: str, run_id: str, task_id: int, change: TaskChange
    ) -> BoardAnswer:
        return await self._change(lambda runs: runs.update(key, run_id, task_id, change))

    async def list_tasks(self) -> Sequence[BoardTask]:
        return await self._run(lambda board: board.list_tasks())

    async def get_task(self, task_id: int) -> BoardTask:
        return await self._run(lambda board: board.get(task_id))

    async def claim_next(
        self, run_id: str, owner: str, agent: str, without: Collection[int] = ()
    ) -> BoardTask | None:
        return await self._change(lambda runs: runs.claim_next(run_id, owner, agent, without))

    async def end_claim(self, run_id: str, task_id: int, report: str, *, is_done: bool) -> None:
        await self._change(lambda runs: runs.end_claim(run_id, task_id, report, is_done=is_done))

    async def release(self, run_id: str, keep: int = 0) -> None:
        """Return a finished child's tasks to the board.

        Tasks of root runs stay with the session until it closes. By the time this returns, changes
        made by cancelled calls have taken place.
        """
        if self._is_used:
            await self._change(lambda runs: runs.release(run_id, keep))

    async def _change(self, act: Callable[[RunChanges], T]) -> T:
        return await self._run(lambda board: act(RunChanges(board, self._session)))

    async def _run(self, act: Callable[[TaskBoard], T]) -> T:
        """Act on the board in its thread. A cancelled call still completes its change."""
        self._is_used = True
        work = asyncio.get_running_loop().run_in_executor(self._thread, self._act, act)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # No one is left to read its error, and asyncio would print it.
            work.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise

    def _act(self, act: Callable[[TaskBoard], T]) -> T:
        if self._board is None:
            self._board = self._open()
        return act(self._board)

    def _close(self, *, keeps_tasks: bool) -> None:
        # Runs in the board's thread, so after all calls sent to it.
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


log = logging.getLogger("mudroom")

# Characters of the session id shown in an owner's name.
_SHORT_ID = 8


class RunChanges:
    """Changes a board for a session's runs.

    A child's claims belong to the child. A root run's claims belong to the session, so that the
    next prompt continues the work.
    """

    def __init__(self, board: TaskBoard, session: str) -> None:
        self._board = board
        self._session = session

    def create(
        self,
        key: str,
        subject: str,
        description: str,
        blockers: Sequence[int],
        metadata: Mapping[str, Any],
    ) -> BoardAnswer:
        _require_no_check(metadata)
        return self._answer_once(
            key, lambda: BoardAnswer(self._board.add(subject, description, blockers, metadata))
        )

    def update(self, key: str, run_id: str, task_id: int, change: TaskChange) -> BoardAnswer:
        _require_no_check(change.metadata)
        run = self._identify(run_id)
        return self._answer_once(key, lambda: self._update(run, run_id, task_id, change), run)

    def claim_next(
        self, run_id: str, owner: str, agent: str, without: Collection[int]
    ) -> BoardTask | None:
        """Claim the next ready task for a run, or return the one it already has."""
        run = self._identify(run_id)
        with self._board.change(is_durable=False):
            own = next(
                (each for each in self._board.read_tasks() if _is_claimed_by(each, run)), None
            )
            return own or self._board.claim_next(owner, without, run, agent)

    def end_claim(self, run_id: str, task_id: int, report: str, *, is_done: bool) -> None:
        run = self._identify(run_id)
        with self._board.change():
            for task in self._board.read_tasks(task_id):
                if not _is_claimed_by(task, run):
                    continue
                if is_done:
                    self._board.complete(task, report)
                else:
                    self._board.release(task, report)

    def release(self, run_id: str, keep: int = 0) -> None:
        if is_child_id(run_id):
            self._board.release_run(self._identify(run_id), keep)

    def _identify(self, run_id: str) -> str:
        """Identify the owner of a run's claims: the child, across all its runs, or the session."""
        return f"{self._session}#{find_first_id(run_id) if is_child_id(run_id) else ''}"

    def _answer_once(self, key: str, act: Callable[[], BoardAnswer], run: str = "") -> BoardAnswer:
        """Change the board and store the answer, or return an earlier attempt's answer."""
        with self._board.change() as sql:
            answer = _read_answer(sql, key)
            if answer and self._is_valid(answer, run):
                return answer
            answer = act()
            text = msgspec.json.encode(answer).decode()
            sql.execute("INSERT OR REPLACE INTO op VALUES (?, ?)", (key, text))
        return answer

    def _is_valid(self, answer: BoardAnswer, run: str) -> bool:
        """Return whether an earlier answer still holds: a claim may have been lost since."""
        if not run or answer.task.status != "in_progress" or answer.task.run != run:
            return True
        tasks = self._board.read_tasks(answer.task.id)
        return any(task.status == "completed" or _is_claimed_by(task, run) for task in tasks)

    def _update(self, run: str, run_id: str, task_id: int, change: TaskChange) -> BoardAnswer:
        board = self._board
        board.return_abandoned()
        texts = {name: getattr(change, name) for name in ("subject", "description")}
        if change.status != "in_progress":
            texts["owner"] = change.owner
        texts = {name: text for name, text in texts.items() if text is not None}
        if texts:
            board.edit(task_id, **texts)
        if change.metadata:
            board.edit_metadata(task_id, change.metadata)
        if change.blockers:
            board.add_blockers(task_id, change.blockers)
        for blocked in change.blocks:
            board.add_blockers(blocked, [task_id])
        task = board.get(task_id)
        ready: list[int] = []
        if change.status == "in_progress" and not _is_claimed_by(task, run):
            owner = change.owner or self._describe(run_id)
            board.claim(task_id, owner, run, change.agent)
        elif change.status == "completed":
            ready = self._complete(task, run)
        elif change.status == "pending":
            self._reopen(task, run)
        elif change.status == "deleted":
            board.remove([task_id])
            return BoardAnswer(task, is_deleted=True)
        return BoardAnswer(board.get(task_id), tuple(ready))

    def _complete(self, task: BoardTask, run: str) -> list[int]:
        if task.check and not run.endswith("#"):
            raise UsageError(
                f"task #{task.id} has a check, so a child cannot complete it",
                remedy="End your turn with a report of what you have done.",
            )
        ready = self._board.complete(task) if self._may_end(task, run) else None
        return self._board.mark_done(task.id) if ready is None else ready

    def _reopen(self, task: BoardTask, run: str) -> None:
        if self._may_end(task, run):
            self._board.release(task)
        elif task.status != "pending":
            self._board.reopen(task.id)

    def _may_end(self, task: BoardTask, run: str) -> bool:
        """Return whether a run may complete or return a claimed task.

        The run that claimed it may, and so may the root runs of the same session.
        """
        is_root = run.endswith("#")
        return _is_claimed_by(task, run) or (is_root and task.run.startswith(run))

    def _describe(self, run_id: str) -> str:
        session = f"session {self._session[:_SHORT_ID]}"
        return f"run {run_id}, {session}" if is_child_id(run_id) else session


def delete_answers(home: str | Path, session: str) -> None:
    """Remove a deleted session's stored answers from all boards of a state folder.

    A board that cannot be used keeps them, with a warning.
    """
    for path in Path(home, "boards").glob("*.db"):
        try:
            with TaskBoard(path) as board, board.change(is_durable=False) as sql:
                # "$" follows "#" in ASCII, so the range has all keys of the session.
                delete = "DELETE FROM op WHERE key >= ? AND key < ?"
                sql.execute(delete, (f"{session}#", f"{session}$"))
        except BoardError as error:
            log.warning("the answers to a deleted session are still on the task board: %s", error)


def _require_no_check(metadata: Mapping[str, Any]) -> None:
    """Raise UsageError if a run tries to set the check that judges its own work."""
    if "check" in metadata:
        raise UsageError(
            "only the user gives the check of a task",
            remedy="Leave metadata.check out. The user gives it with mudroom board add.",
        )


def _is_claimed_by(task: BoardTask, run: str) -> bool:
    return task.status == "in_progress" and task.run == run


def _read_answer(sql: sqlite3.Connection, key: str) -> BoardAnswer | None:
    row = sql.execute("SELECT answer FROM op WHERE key = ?", (key,)).fetchone()
    return get_decoder(BoardAnswer).decode(row[0]) if row else None
