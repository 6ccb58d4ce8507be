"""The task board: tasks are added, claimed and completed, each with one owner at a time.

The kernel releases a claiming process's lock when the process ends. So a claim ends with its
process and needs no clock: a suspended process keeps its tasks, a killed one loses them.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from ..._core.json_values import clean_text
from ..._core.ports.board import BoardTask
from ..._platform.private_files import make_private_folder
from ..._platform.regular_files import is_open_file
from ...errors import UsageError
from .file import begin_change, connect, read_blockers, read_tasks, translate_errors

_OPEN_BLOCKER = (
    "EXISTS (SELECT 1 FROM edge LEFT JOIN task AS other ON other.id = edge.blocker "
    "WHERE edge.task = task.id AND other.status IS NOT 'completed')"
)
_TAKE = (
    "UPDATE task SET status = 'in_progress', owner = ?, lock = ?, run = ?, "
    "revision = revision + 1 "
    f"WHERE id = ? AND status = 'pending' AND NOT {_OPEN_BLOCKER} "
    "AND (? IS NULL OR agent IN ('', ?))"
)


class TaskBoard:
    """A project's task board, shared by any number of processes. Use one object per thread.

    `lock_name` names the lock for claims if another object holds it. `read_clock` returns seconds
    since 1970, for the log.

    Methods raise BoardError if the file cannot be used and UsageError for wrong arguments.
    """

    def __init__(
        self, path: Path, lock_name: str = "", *, read_clock: Callable[[], float] = time.time
    ) -> None:
        self.path = path
        self._connection = connect(path)
        self._read_clock = read_clock
        self._lock: OwnerLock | None = None
        self.lock_name = lock_name

    def __enter__(self) -> TaskBoard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, *, keeps_tasks: bool = False) -> None:
        """Return the tasks this process still owns to the board, and close the file.

        With `keeps_tasks`, they stay with their owner, who continues later, as after a crash.
        """
        try:
            if self._lock and not keeps_tasks:
                with self.change() as sql:
                    self._return_tasks(sql, self._lock.name)
        finally:
            self._connection.close()
            if self._lock:
                self._lock.release()

    def hold_lock(self, name: str = "") -> None:
        """Hold the lock for claims until `close`. Without a name, the lock gets a unique one."""
        with translate_errors(self.path):
            self._lock = OwnerLock(self.path, name)
        self.lock_name = self._lock.name

    @contextmanager
    def change(self, *, is_durable: bool = True) -> Generator[sqlite3.Connection]:
        """Enter a write transaction and yield its connection; an exception undoes everything.

        A nested change becomes part of the outer one. A claim need not be durable: if the machine
        fails, the claim ends with its process.
        """
        if self._connection.in_transaction:
            yield self._connection
            return
        with translate_errors(self.path):
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
            begin_change(self._connection)
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def list_tasks(self) -> list[BoardTask]:
        """List all tasks by id, after freeing those of ended processes."""
        self.return_abandoned()
        return self.read_tasks()

    def get(self, task_id: int) -> BoardTask:
        tasks = self.read_tasks(task_id)
        if not tasks:
            raise UsageError(
                f"the board has no task #{task_id}",
                where=str(self.path),
                remedy="mudroom board list shows the tasks.",
            )
        return tasks[0]

    def count_open(self) -> int:
        select = "SELECT count(*) FROM task WHERE status <> 'completed'"
        with translate_errors(self.path):
            return int(self._connection.execute(select).fetchone()[0])

    def add(
        self,
        subject: str,
        description: str = "",
        blockers: Iterable[int] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> BoardTask:
        line = require_subject(clean_text(subject))
        row = (line, clean_text(description), format_metadata(metadata or {}))
        with self.change() as sql:
            insert = "INSERT INTO task (subject, description, metadata) VALUES (?, ?, ?)"
            task_id = sql.execute(insert, row).lastrowid or 0
            self._add_edges(sql, task_id, blockers)
            self.write_log(sql, task_id, "added")
        return self.get(task_id)

    def add_blockers(self, task_id: int, blockers: Iterable[int]) -> BoardTask:
        """Make a task depend on more tasks. Refuses a cycle, naming its path."""
        self.get(task_id)
        with self.change() as sql:
            self._add_edges(sql, task_id, blockers)
        return self.get(task_id)

    def claim(self, task_id: int, owner: str, run: str = "", agent: str | None = None) -> BoardTask:
        """Claim a task for an owner in this process. Raises UsageError if it is not ready.

        Agent None may claim tasks meant for any agent. For `run`, see `BoardTask`.
        """
        self.return_abandoned()
        with self.change(is_durable=False) as sql:
            if not self._take(sql, task_id, owner, run, agent):
                refusal = self._explain_refusal(task_id, agent)
                raise UsageError(refusal, remedy="Choose another task.")
        return self.get(task_id)

    def claim_next(
        self,
        owner: str,
        without: Collection[int] = (),
        run: str = "",
        agent: str | None = None,
    ) -> BoardTask | None:
        """Claim the next ready task, by priority and then by id; None if none is ready.

        Skips the tasks with the ids `without`.
        """
        task_id = self._claim_ready(owner, without, run, agent)
        if task_id is None and self.return_abandoned():
            task_id = self._claim_ready(owner, without, run, agent)
        return None if task_id is None else self.get(task_id)

    def complete(self, task: BoardTask, report: str = "") -> list[int] | None:
        """Complete a claimed task; return the ids of tasks that became ready.

        Returns None, changing nothing, if the task has another owner by now.
        """
        with self.change() as sql:
            update = (
                "UPDATE task SET status = 'completed', lock = '', report = ?, "
                "revision = revision + 1 WHERE id = ? AND revision = ? AND lock = ? "
                "AND status = 'in_progress'"
            )
            if not sql.execute(
                update, (clean_text(report), task.id, task.revision, self.lock_name)
            ).rowcount:
                return None
            self.write_log(sql, task.id, "completed", task.owner)
            return self._list_unblocked(sql, task.id)

    def mark_done(self, task_id: int) -> list[int]:
        """Complete a task no process is working on; return the ids of tasks that became ready."""
        self.return_abandoned()
        task = self.get(task_id)
        with self.change() as sql:
            update = (
                "UPDATE task SET status = 'completed', report = '', revision = revision + 1 "
                f"WHERE id = ? AND status <> 'completed' AND lock = '' AND NOT {_OPEN_BLOCKER}"
            )
            if not sql.execute(update, (task_id,)).rowcount:
                raise UsageError(self._explain_refusal(task_id), where=str(self.path))
            self.write_log(sql, task_id, "completed", task.owner)
            return self._list_unblocked(sql, task_id)

    def release(self, task: BoardTask, report: str = "") -> None:
        """Return a claimed task to the board, with a reason in `report`."""
        with self.change() as sql:
            update = (
                "UPDATE task SET status = 'pending', owner = '', lock = '', run = '', report = ?, "
                "revision = revision + 1 WHERE id = ? AND revision = ?"
            )
            # With another revision, the task has another owner by now and is left alone.
            if sql.execute(update, (clean_text(report), task.id, task.revision)).rowcount:
                self.write_log(sql, task.id, "returned", task.owner)

    def release_run(self, run: str, keep: int = 0) -> None:
        """Return a run's tasks in this process to the board, except the one with id `keep`."""
        with self.change() as sql:
            self._return_tasks(sql, self.lock_name, run, keep)

    def edit(self, task_id: int, **texts: str) -> None:
        """Change a task's subject, description or owner. Raises UsageError for a blank subject.

        The owner of a task cannot be changed while a process works on it.
        """
        if "subject" in texts:
            texts["subject"] = require_subject(texts["subject"])
        self.get(task_id)
        with self.change() as sql:
            for name, text in texts.items():
                condition = " AND lock = ''" if name == "owner" else ""
                update = f"UPDATE task SET {name} = ? WHERE id = ?{condition}"
                if not sql.execute(update, (clean_text(text), task_id)).rowcount:
                    raise UsageError(self._explain_refusal(task_id), where=str(self.path))
            self.write_log(sql, task_id, "edited")

    def reopen(self, task_id: int) -> BoardTask:
        """Make a task pending again, and its dependants wait, unless a process works on it."""
        self.return_abandoned()
        self.get(task_id)
        with self.change() as sql:
            update = (
                "UPDATE task SET status = 'pending', owner = '', run = '', "
                "revision = revision + 1 WHERE id = ? AND status <> 'pending' AND lock = ''"
            )
            if not sql.execute(update, (task_id,)).rowcount:
                raise UsageError(self._explain_refusal(task_id), where=str(self.path))
            self.write_log(sql, task_id, "reopened")
        return self.get(task_id)

    def remove(self, task_ids: Collection[int]) -> None:
        """Remove tasks. Their ids are never reused.

        Refuses tasks a process is working on and tasks that others depend on.
        """
        self.return_abandoned()
        for task_id in task_ids:
            task = self.get(task_id)
            if dependants := [other for other in task.blocks if other not in task_ids]:
                others = ", ".join(f"#{other}" for other in dependants)
                raise UsageError(
                    f"task #{task_id} cannot be removed: {others} depends on it",
                    remedy="Remove these tasks, too, or mark it as done.",
                )
        with self.change() as sql:
            for task_id in task_ids:
                delete = "DELETE FROM task WHERE id = ? AND lock = ''"
                if not sql.execute(delete, (task_id,)).rowcount:
                    raise UsageError(self._explain_refusal(task_id), where=str(self.path))
                sql.execute("DELETE FROM edge WHERE task = ?", (task_id,))
                self.write_log(sql, task_id, "removed")

    def return_abandoned(self) -> list[int]:
        """Put ended processes' tasks back on the board; return their ids."""
        with translate_errors(self.path):
            select = "SELECT DISTINCT lock FROM task WHERE status = 'in_progress' AND lock <> ''"
            locks = [str(row[0]) for row in self._connection.execute(select)]
            ended = [lock for lock in locks if not is_owner_alive(self.path, lock)]
        returned: list[int] = []
        # The write lock is not needed if there is nothing to return.
        if ended:
            with self.change() as sql:
                for lock in ended:
                    returned += self._return_tasks(sql, lock)
        return returned

    def write_log(
        self, sql: sqlite3.Connection, task_id: int, change: str, owner: str = ""
    ) -> None:
        """Append a line to the board's log, in the change's transaction."""
        row = (self._read_clock(), task_id, change, owner)
        sql.execute("INSERT INTO log (at, task, change, owner) VALUES (?, ?, ?, ?)", row)

    def edit_metadata(self, task_id: int, changes: Mapping[str, Any]) -> None:
        """Change values in a task's metadata; None removes a value."""
        with self.change() as sql:
            text = format_metadata({**self.get(task_id).metadata, **changes})
            sql.execute("UPDATE task SET metadata = ? WHERE id = ?", (text, task_id))
            self.write_log(sql, task_id, "edited")

    def _claim_ready(
        self, owner: str, without: Collection[int], run: str, agent: str | None
    ) -> int | None:
        marks = ", ".join("?" * len(without))
        select = (
            f"SELECT id FROM task WHERE status = 'pending' AND NOT {_OPEN_BLOCKER} "
            f"AND (? IS NULL OR agent IN ('', ?)) AND id NOT IN ({marks}) "
            "ORDER BY priority DESC, id LIMIT 1"
        )
        with self.change(is_durable=False) as sql:
            row = sql.execute(select, (agent, agent, *without)).fetchone()
            if row is not None and self._take(sql, row[0], owner, run, agent):
                return int(row[0])
        return None

    def _take(
        self, sql: sqlite3.Connection, task_id: int, owner: str, run: str, agent: str | None
    ) -> bool:
        if not self.lock_name:
            self.hold_lock()
        row = (owner, self.lock_name, run, task_id, agent, agent)
        if not sql.execute(_TAKE, row).rowcount:
            return False
        self.write_log(sql, task_id, "claimed", owner)
        return True

    def _return_tasks(
        self, sql: sqlite3.Connection, lock: str, run: str = "", keep: int = 0
    ) -> list[int]:
        """Put a lock's tasks back on the board, or only a run's; return their ids."""
        update = (
            "UPDATE task SET status = 'pending', owner = '', lock = '', run = '', "
            "revision = revision + 1 WHERE lock = ? AND status = 'in_progress' "
            "AND ? IN ('', run) AND id <> ? RETURNING id"
        )
        task_ids = [int(row[0]) for row in sql.execute(update, (lock, run, keep)).fetchall()]
        for task_id in task_ids:
            self.write_log(sql, task_id, "returned")
        return task_ids

    def _add_edges(self, sql: sqlite3.Connection, task_id: int, blockers: Iterable[int]) -> None:
        for blocker in blockers:
            self.get(blocker)
            sql.execute("INSERT OR IGNORE INTO edge VALUES (?, ?)", (task_id, blocker))
        require_no_cycle(read_blockers(sql))

    def _list_unblocked(self, sql: sqlite3.Connection, blocker: int) -> list[int]:
        select = (
            "SELECT id FROM task WHERE status = 'pending' AND id IN "
            f"(SELECT task FROM edge WHERE blocker = ?) AND NOT {_OPEN_BLOCKER} ORDER BY id"
        )
        return [int(row[0]) for row in sql.execute(select, (blocker,))]

    def _explain_refusal(self, task_id: int, agent: str | None = None) -> str:
        task = self.get(task_id)
        if task.status == "completed":
            return f"task #{task_id} is completed already"
        if task.status == "in_progress":
            return f"{task.owner or 'another process'} works on task #{task_id}"
        if agent is not None and task.agent not in ("", agent):
            return f"only the agent {task.agent!r} may claim task #{task_id}"
        if not task.waits_for:
            return f"task #{task_id} is pending"
        others = ", ".join(f"#{other}" for other in task.waits_for)
        return f"task #{task_id} waits for {others}"

    def read_tasks(self, task_id: int | None = None) -> list[BoardTask]:
        """Read one task or all, leaving those of ended processes as they are."""
        with translate_errors(self.path):
            return read_tasks(self._connection, task_id)


# The longest another process holds a lock just to look at it, under heavy load.
_LOOK_SECONDS = 2.0


class OwnerLock:
    """This process's lock on a board.

    Its name is its lock file's, recorded with each claim. A given name lets a resumed session hold
    its earlier process's lock again. Without one, or if another process holds it, the lock gets a
    unique name.
    """

    def __init__(self, board: Path, name: str = "") -> None:
        folder = _get_folder(board)
        make_private_folder(folder)
        _remove_free_locks(folder, name)
        while True:
            self.name = name or uuid.uuid4().hex
            self._path = folder / self.name
            self._descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            if not _lock_soon(self._descriptor):
                name = ""
            elif is_open_file(self._path, self._descriptor):
                return
            # Taken, or removed by another process between our open and our flock: try again.
            os.close(self._descriptor)

    def release(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def _lock_soon(descriptor: int) -> bool:
    """Lock a file. Return False if another process holds it for longer than a look takes."""
    deadline = time.monotonic() + _LOOK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)


def _remove_free_locks(folder: Path, name: str) -> None:
    for path in [path for path in folder.iterdir() if path.name != name]:
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                # Raises an OSError if a running process holds the lock, so its file stays.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(descriptor)


def is_owner_alive(board: Path, name: str) -> bool:
    try:
        descriptor = os.open(_get_folder(board) / name, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # Shared, so that two processes that look at once do not take each other for the owner.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _get_folder(board: Path) -> Path:
    return board.with_name(board.name + ".owners")


def require_subject(subject: str) -> str:
    """Return a subject as one line. Raises UsageError if it is blank."""
    line = " ".join(subject.split())
    if not line:
        raise UsageError("the subject of a task is blank", remedy="Say in a few words what to do.")
    return line


def format_metadata(metadata: Mapping[str, Any]) -> str:
    """Format metadata as JSON. Raises UsageError for an invalid agent, priority or check."""
    values = {name: value for name, value in metadata.items() if value is not None}
    kinds = (
        ("agent", str, "a text"),
        ("priority", int, "a whole number"),
        ("check", str, "a text"),
    )
    for name, kind, article in kinds:
        value = values.get(name, kind())
        if not isinstance(value, kind) or isinstance(value, bool):
            raise UsageError(
                f"metadata.{name} of a task is {article}, not {json.dumps(value)}",
                remedy='Give it like {"agent": "coder", "priority": 1}.',
            )
    return clean_text(json.dumps(values, ensure_ascii=False))


def require_no_cycle(blockers: Mapping[int, Iterable[int]]) -> None:
    """Raise UsageError with the path of a cycle if tasks depend on themselves."""
    try:
        TopologicalSorter(blockers).prepare()
    except CycleError as error:
        chain = " -> ".join(f"#{task}" for task in reversed(error.args[1]))
        raise UsageError(
            f"these tasks depend on each other in a cycle: {chain}",
            remedy="Leave out one of these dependencies.",
        ) from None
