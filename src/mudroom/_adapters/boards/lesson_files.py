"""Import and export of task files, one `task_N.json` per task as in learn-claude-code.

An imported file's text is kept. The export writes it byte for byte until its task changes, and
still keeps the order of keys, and keys unknown to the board, afterwards.
"""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta, Struct

from ..._core.json_values import clean_text
from ..._core.ports.board import BoardTask, Status
from ..._core.schemas import explain_mismatch
from ...errors import BoardError, UsageError
from .board import TaskBoard, format_metadata, require_no_cycle
from .file import read_blockers

_FILE_NAME = re.compile(r"task_([1-9][0-9]{0,17})\.json")
# Holds the highest id ever used, in case its task has been removed.
_HIGH_WATER_MARK = ".highwatermark"


# Larger numbers are not exact in every JSON reader.
_Id = Annotated[int, Meta(ge=1, lt=1 << 53)]


class TaskFile(Struct, frozen=True, rename="camel"):
    id: _Id
    subject: str
    description: str = ""
    status: Status = "pending"
    blocked_by: list[_Id] = []
    blocks: list[_Id] = []
    owner: str | None = ""
    metadata: dict[str, Any] | None = None


def import_tasks(board: TaskBoard, folder: Path) -> int:
    """Add the tasks in a folder's files to a board, all or none; return how many.

    Raises UsageError for a file that is not a task, an id the board already has, or a cycle.
    """
    texts = _read_files(folder)
    tasks = {task_id: _parse(text, path) for task_id, (path, text) in texts.items()}
    mark = _read_high_water_mark(folder)
    with board.change() as sql:
        for task_id, task in tasks.items():
            _insert(sql, task, texts[task_id][1])
            board.write_log(sql, task_id, "imported")
        require_no_cycle(read_blockers(sql))
        update = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'task'"
        sql.execute(update, (mark,))
        for task in board.read_tasks():
            if task.id in tasks:
                view = json.dumps(_make_fields(task))
                sql.execute("UPDATE task SET exported = ? WHERE id = ?", (view, task.id))
    return len(tasks)


def export_tasks(board: TaskBoard, folder: Path) -> tuple[int, list[str]]:
    """Write a file for each task; return how many, and the names of files without a task.

    Raises BoardError if the folder cannot be written.
    """
    tasks = board.list_tasks()
    with board.change() as sql:
        sources = {row[0]: row[1:] for row in sql.execute("SELECT id, source, exported FROM task")}
        row = sql.execute("SELECT seq FROM sqlite_sequence WHERE name = 'task'").fetchone()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for task in tasks:
            text = _format(task, *sources[task.id])
            (folder / f"task_{task.id}.json").write_bytes(text.encode())
        if row and row[0] > max((task.id for task in tasks), default=0):
            (folder / _HIGH_WATER_MARK).write_text(str(row[0]))
        names = {f"task_{task.id}.json" for task in tasks}
        others = {path.name for path in folder.iterdir() if _FILE_NAME.fullmatch(path.name)}
    except OSError as error:
        raise BoardError(
            f"the task files cannot be written: {error.strerror}",
            where=str(error.filename or folder),
            remedy="Name another folder.",
        ) from error
    return len(tasks), sorted(others - names)


def _read_files(folder: Path) -> dict[int, tuple[Path, str]]:
    """Read the path and text of each task file, by the id in its name, in order."""
    texts: dict[int, tuple[Path, str]] = {}
    try:
        for path in folder.iterdir():
            if match := _FILE_NAME.fullmatch(path.name):
                texts[int(match[1])] = (path, path.read_bytes().decode())
    except OSError as error:
        raise UsageError(
            f"the task files cannot be read: {error.strerror}", where=str(error.filename or folder)
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError("a task file is not UTF-8", where=str(folder)) from error
    if not texts:
        remedy = "Name the folder that has files like task_1.json."
        raise UsageError("there are no task files", where=str(folder), remedy=remedy)
    return dict(sorted(texts.items()))


def _parse(text: str, path: Path) -> TaskFile:
    try:
        task = msgspec.convert(json.loads(text), TaskFile)
        format_metadata(task.metadata or {})
    except (ValueError, RecursionError, UsageError) as error:
        remedy = "Correct the file, or move it away."
        reason = explain_mismatch(error, what="task")
        raise UsageError(f"this is not a task: {reason}", where=str(path), remedy=remedy) from error
    if path.name != f"task_{task.id}.json":
        raise UsageError(f"the file has the task #{task.id}", where=str(path))
    return task


def _read_high_water_mark(folder: Path) -> int:
    try:
        return int((folder / _HIGH_WATER_MARK).read_text("ascii"))
    except FileNotFoundError:
        return 0
    except (OSError, ValueError) as error:
        remedy = "Correct the file, or remove it."
        raise UsageError(
            "the highest id cannot be read", where=str(folder / _HIGH_WATER_MARK), remedy=remedy
        ) from error


def _insert(sql: sqlite3.Connection, task: TaskFile, text: str) -> None:
    """Add a task with its id and all its dependencies, even on tasks that are missing."""
    insert = (
        "INSERT INTO task (id, subject, description, status, owner, metadata, source) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
    )
    texts = (clean_text(task.subject), clean_text(task.description), task.status)
    metadata = format_metadata(task.metadata or {})
    row = (task.id, *texts, clean_text(task.owner or ""), metadata, text)
    if not sql.execute(insert, row).rowcount:
        raise UsageError(
            f"the board has a task #{task.id} already",
            remedy="Import into the board of another folder, or remove the tasks of this one.",
        )
    edges = [(task.id, blocker) for blocker in task.blocked_by]
    edges += [(blocked, task.id) for blocked in task.blocks]
    sql.executemany("INSERT OR IGNORE INTO edge VALUES (?, ?)", edges)


def _make_fields(task: BoardTask) -> dict[str, Any]:
    """Make the fields of a task file. As in the course, completed tasks no longer block."""
    return {
        "id": task.id,
        "subject": task.subject,
        "description": task.description,
        "status": task.status,
        "blockedBy": list(task.waits_for),
        "blocks": list(task.blocks),
        "owner": task.owner,
        "metadata": dict(task.metadata),
    }


def _format(task: BoardTask, source: str, exported: str) -> str:
    """Format a task file. `source` is the imported text, "" for none."""
    fields = _make_fields(task)
    if not source:
        if not task.metadata:
            del fields["metadata"]
        return json.dumps(fields, indent=2, ensure_ascii=False)
    # An earlier version of the board did not store the metadata.
    before: dict[str, Any] = {"metadata": {}, **json.loads(exported)}
    if fields == before:
        return source
    content = cast(dict[str, Any], json.loads(source))
    content.update({name: value for name, value in fields.items() if value != before[name]})
    text = json.dumps(content, indent=2, ensure_ascii=source.isascii())
    return text + "\n" if source.endswith("\n") else text
