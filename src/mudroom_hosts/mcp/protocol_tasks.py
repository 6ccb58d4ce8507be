"""Protocol tasks: calls that return immediately, and whose results hosts fetch later.

They follow the extension io.modelcontextprotocol/tasks. Each task's state is kept in a file, so the
next server can also answer a host.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from mudroom.driving import Question, replace_private_file
from mudroom.errors import MudroomError

from .approver import CANNOT_ASK, read_answer
from .host_tasks import HostTask, HostTasks, Owner

KEPT_SECONDS = 7 * 86_400  # time that a task's file is kept after its last change
_POLL_MS = 1_000
_INTERNAL_ERROR = -32603
FOLDER = "mcp/tasks"  # for the files, in mudroom's state folder

Status = Literal["working", "completed", "cancelled", "failed"]
ENDED = ("completed", "cancelled", "failed")  # final states


class UnknownTask(Exception):
    """No such task, or it belongs to another owner."""


class NoRightToAnswer(Exception):
    """The request's token lacks the scope `answer`."""


class Response(Struct, frozen=True):
    action: str = "cancel"  # or "accept", "decline"
    content: dict[str, Any] | None = None


class TaskRecord(Struct, kw_only=True):
    id: str
    owner: str
    session: str
    created: str  # ISO 8601, like `updated`
    updated: str
    status: Status = "working"
    message: str = ""  # what it did last
    result: dict[str, Any] | None = None  # of the call, as sent
    error: dict[str, Any] | None = None  # in the protocol's form


class _OpenTask(Struct, eq=False):
    record: TaskRecord
    tasks: Sequence[HostTask]
    describe: Callable[[], dict[str, Any]]  # makes the result
    following: asyncio.Task[None] | None = None


class ProtocolTasks:
    """One server's tasks, and those of earlier servers."""

    def __init__(self, host_tasks: HostTasks, home: str, session: str) -> None:
        self._host_tasks = host_tasks
        self._folder = Path(home, FOLDER)
        self._session = session
        self._open: dict[str, _OpenTask] = {}

    async def create(
        self,
        owner: Owner,
        tasks: Sequence[HostTask],
        describe: Callable[[], dict[str, Any]],
    ) -> dict[str, Any]:
        """Make a task from started work, and return its state once its file is written."""
        now = _get_time()
        record = TaskRecord(
            id=f"{self._session}-{secrets.token_urlsafe(24)}",
            owner=owner.name,
            session=self._session,
            created=now,
            updated=now,
        )
        try:
            await asyncio.to_thread(self._store, record)
        except OSError as error:
            raise MudroomError(
                f"the task cannot be stored: {error.strerror or error}",
                where=str(self._folder),
                remedy="Make the folder writable, or call without tasks of the protocol.",
            ) from error
        open_task = _OpenTask(record, tasks, describe)
        self._open[record.id] = open_task
        open_task.following = asyncio.create_task(self._follow(open_task))
        return self._describe(record)

    async def get(self, id: str, owner: Owner) -> tuple[dict[str, Any], Sequence[Question]]:
        """Return a task's state, and the questions its owner may answer."""
        open_task = self._find(id, owner)
        if open_task is None:
            return self._describe(await self._load(id, owner)), ()
        if open_task.following and all(task.has_ended for task in open_task.tasks):
            await asyncio.wait({open_task.following})  # if cancelled, the end is stored anyway
        _note_progress(open_task)
        is_asked = owner.can_answer and open_task.record.status == "working"
        return self._describe(open_task.record), _list_questions(open_task) if is_asked else ()

    async def update(self, id: str, owner: Owner, responses: Mapping[str, Response]) -> None:
        """Take a host's answers by the ids of their questions; others are ignored."""
        open_task = self._find(id, owner)
        if open_task is None:
            await self._load(id, owner)
            return
        if not owner.can_answer:
            raise NoRightToAnswer
        for question in _list_questions(open_task):
            if (response := responses.get(question.id)) is not None:
                question.answer(read_answer(question, response.action, response.content))

    async def cancel(self, id: str, owner: Owner) -> None:
        open_task = self._find(id, owner)
        if open_task is None:
            await self._load(id, owner)
            return
        await self._host_tasks.cancel(open_task.tasks)

    @contextmanager
    def watch(self, id: str) -> Generator[asyncio.Event]:
        """Yield an event that is set after each change to one of this server's tasks."""
        changed = asyncio.Event()
        open_task = self._open.get(id)
        tasks = open_task.tasks if open_task else ()
        for task in tasks:
            task.watchers.add(changed)
        try:
            yield changed
        finally:
            for task in tasks:
                task.watchers.discard(changed)

    async def close(self) -> None:
        """Wait until all tasks' ends are stored."""
        following = [
            open_task.following for open_task in self._open.values() if open_task.following
        ]
        await asyncio.gather(*following, return_exceptions=True)

    def delete_old(self) -> None:
        """Delete files older than KEPT_SECONDS, including those left by interrupted writes."""
        oldest = time.time() - KEPT_SECONDS
        for path in self._folder.glob("*"):
            try:
                if path.stat().st_mtime < oldest:
                    path.unlink()
            except OSError:
                continue  # another server has deleted it

    def _find(self, id: str, owner: Owner) -> _OpenTask | None:
        open_task = self._open.get(id)
        return open_task if open_task and open_task.record.owner == owner.name else None

    async def _load(self, id: str, owner: Owner) -> TaskRecord:
        if not id.replace("-", "").replace("_", "").isalnum():
            raise UnknownTask
        try:
            data = await asyncio.to_thread(Path(self._folder, f"{id}.json").read_bytes)
            record = msgspec.json.decode(data, type=TaskRecord)
        except (OSError, msgspec.MsgspecError) as error:
            raise UnknownTask from error
        if record.owner != owner.name:
            raise UnknownTask
        if record.status == "working":
            record.status = "failed"
            message = (
                "the server ended while the task worked. "
                f"`mudroom -r {record.session}` on its machine continues it"
            )
            record.error = {"code": _INTERNAL_ERROR, "message": message}
        return record

    async def _follow(self, open_task: _OpenTask) -> None:
        record = open_task.record
        with self.watch(record.id) as changed:
            while not all(task.has_ended for task in open_task.tasks):
                changed.clear()
                _note_progress(open_task)
                if not any(task.can_ask for task in open_task.tasks):
                    for question in _list_questions(open_task):
                        question.answer(CANNOT_ASK)
                await changed.wait()
        try:
            result = open_task.describe()
        except Exception as error:  # noqa: BLE001  (the host must get an end)
            record.error = {"code": _INTERNAL_ERROR, "message": f"{type(error).__name__}: {error}"}
            record.status = "failed"
        else:
            is_cancelled = any(task.is_cancelled for task in open_task.tasks)
            record.status = "cancelled" if is_cancelled else "completed"
            record.result = None if is_cancelled else result
        record.updated = _get_time()
        record.message = ""
        try:
            await asyncio.to_thread(self._store, record)
        except OSError:
            return  # it stays in memory
        self._open.pop(record.id, None)

    def _store(self, record: TaskRecord) -> None:
        path = self._folder / f"{record.id}.json"
        replace_private_file(path, msgspec.json.encode(record))

    def _describe(self, record: TaskRecord) -> dict[str, Any]:
        state: dict[str, Any] = {
            "taskId": record.id,
            "status": record.status,
            "createdAt": record.created,
            "lastUpdatedAt": record.updated,
            "ttlMs": KEPT_SECONDS * 1_000,
            "pollIntervalMs": _POLL_MS,
        }
        if record.message:
            state["statusMessage"] = record.message
        if record.result is not None:
            state["result"] = record.result
        if record.error is not None:
            state["error"] = record.error
        return state


def _note_progress(open_task: _OpenTask) -> None:
    record = open_task.record
    message = "; ".join(task.describe_progress() for task in open_task.tasks[:3])
    if record.status == "working" and message != record.message:
        record.message = message
        record.updated = _get_time()


def _list_questions(open_task: _OpenTask) -> list[Question]:
    return [
        question
        for task in open_task.tasks
        for question in task.questions.values()
        if question.is_open
    ]


def _get_time() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
