"""`mudroom board`: lists, changes, imports and exports a project's tasks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..._adapters.boards.board import TaskBoard
from ..._adapters.boards.file import get_board_path
from ..._adapters.boards.lesson_files import export_tasks, import_tasks
from ..._core.listings import count_noun
from ..._platform.git_folders import list_project_folders
from ..._projections.board_lines import (
    count_tasks,
    format_details,
    format_ids,
    format_ready,
    format_task,
)
from ...errors import UsageError
from ..output.json_output import print_json
from ..output.listing import print_entry
from .load_settings import load_settings


def open_board(cwd: str) -> TaskBoard:
    """Open the board of a folder's project; a git repository is one project."""
    home = load_settings(cwd).home
    return TaskBoard(get_board_path(home, list_project_folders(cwd)[-1]))


def print_board(cwd: str, *, as_json: bool = False) -> None:
    with open_board(cwd) as board:
        tasks = board.list_tasks()
    if as_json:
        print_json(tasks)
    elif tasks:
        for task in tasks:
            print_entry(format_task(task))
        print(count_tasks(tasks))
    else:
        print_entry("The task board of this project is empty.")
        print_entry('Add a task: mudroom board add "SUBJECT"')


def print_task(cwd: str, task_id: int, *, as_json: bool) -> None:
    with open_board(cwd) as board:
        task = board.get(task_id)
    if as_json:
        print_json(task)
    else:
        print(format_details(task))


def add_task(
    cwd: str, subject: str, description: str | None, blockers: Iterable[int], entries: Iterable[str]
) -> None:
    """Add a task and print it. Values in `entries`, "KEY=VALUE", are JSON or else text."""
    metadata = dict(map(_parse_entry, entries))
    with open_board(cwd) as board:
        print(format_task(board.add(subject, description or "", blockers, metadata)))


def _parse_entry(entry: str) -> tuple[str, Any]:
    key, sign, text = entry.partition("=")
    if not key or not sign:
        remedy = "Give it like --metadata agent=coder."
        raise UsageError(f"no KEY=VALUE: {entry!r}", where="--metadata", remedy=remedy)
    try:
        return key, json.loads(text)
    except ValueError:
        return key, text


def complete_task(cwd: str, task_ids: Iterable[int]) -> None:
    with open_board(cwd) as board:
        for task_id in task_ids:
            ready = board.mark_done(task_id)
            print(f"#{task_id} is done{format_ready(ready)}")


def reopen_tasks(cwd: str, task_ids: Iterable[int]) -> None:
    with open_board(cwd) as board:
        for task_id in task_ids:
            print(format_task(board.reopen(task_id)))


def remove_tasks(cwd: str, task_ids: tuple[int, ...]) -> None:
    with open_board(cwd) as board:
        board.remove(task_ids)
    print(f"removed: {format_ids(task_ids)}")


def import_task_files(cwd: str, folder: str) -> None:
    with open_board(cwd) as board:
        count = import_tasks(board, Path(folder))
    print(f"imported {count_noun(count, 'task')} from {folder}")


def export_task_files(cwd: str, folder: str) -> None:
    with open_board(cwd) as board:
        count, others = export_tasks(board, Path(folder))
    print(f"exported {count_noun(count, 'task')} to {folder}")
    if others:
        print(f"note: the board has no tasks for {', '.join(others)}; these files are unchanged")
