"""Reads tasks from the rows of a board's file."""

from __future__ import annotations

import json
import sqlite3

from ..._core.ports.board import BoardTask

_TASKS = (
    "SELECT id, subject, description, status, owner, lock, run, revision, report, metadata, "
    "source <> '' FROM task"
)
_EDGES = (
    "SELECT edge.task, edge.blocker, task.status FROM edge LEFT JOIN task ON task.id = edge.blocker"
)


def read_tasks(sql: sqlite3.Connection, task_id: int | None = None) -> list[BoardTask]:
    """Read one task or all, in the order of their ids."""
    one = task_id is not None
    values = {"id": task_id}
    edge_select = _EDGES + (" WHERE edge.task = :id OR edge.blocker = :id" if one else "")
    task_select = _TASKS + (" WHERE id = :id" if one else "")
    rows = sql.execute(task_select + " ORDER BY id", values).fetchall()
    edges = sql.execute(edge_select + " ORDER BY 1, 2", values).fetchall()
    blockers: dict[int, list[int]] = {}
    waits_for: dict[int, list[int]] = {}
    blocks: dict[int, list[int]] = {}
    for task, blocker, status in edges:
        blockers.setdefault(task, []).append(blocker)
        blocks.setdefault(blocker, []).append(task)
        if status != "completed":
            waits_for.setdefault(task, []).append(blocker)
    return [
        BoardTask(
            id=row[0],
            subject=row[1],
            description=row[2],
            status=row[3],
            owner=row[4],
            has_process=bool(row[5]),
            run=row[6],
            revision=row[7],
            report=row[8],
            metadata=json.loads(row[9]),
            is_imported=bool(row[10]),
            blockers=tuple(blockers.get(row[0], ())),
            waits_for=tuple(waits_for.get(row[0], ())),
            blocks=tuple(blocks.get(row[0], ())),
        )
        for row in rows
    ]


def read_blockers(sql: sqlite3.Connection) -> dict[int, list[int]]:
    """Read the ids of the tasks each task depends on."""
    blockers: dict[int, list[int]] = {}
    for task, blocker in sql.execute("SELECT task, blocker FROM edge ORDER BY 1, 2"):
        blockers.setdefault(task, []).append(blocker)
    return blockers
