"""Tasks of a board as lines, for screens and for models."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from .._core.ports.board import BoardTask
from .engine_text import quote
from .safe_text import sanitize, sanitize_line

MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}
_SUBJECT_LENGTH = 200
_OWNER_LENGTH = 60
_METADATA_LENGTH = 2_000
# Characters of a completed task's report in the prompt of a task that depends on it.
_REPORT_LENGTH = 20_000


def format_task(task: BoardTask) -> str:
    """Format a task as one line: "[ ] #2 Write code (waits for #1)"."""
    line = f"{MARKS[task.status]} #{task.id} {quote(sanitize_line(task.subject, _SUBJECT_LENGTH))}"
    if task.status == "in_progress" and task.owner:
        return f"{line} ({quote(sanitize_line(task.owner, _OWNER_LENGTH))})"
    if task.status == "pending" and task.waits_for:
        return f"{line} (waits for {format_ids(task.waits_for)})"
    return line


def format_details(task: BoardTask) -> str:
    lines = [format_task(task)]
    for label, ids in (("depends on", task.blockers), ("blocks", task.blocks)):
        if ids:
            lines.append(f"{label}: {format_ids(ids)}")
    if task.metadata:
        values = json.dumps(task.metadata, ensure_ascii=False)
        lines.append(f"metadata: {quote(sanitize_line(values, _METADATA_LENGTH))}")
    for label, text in (("description", task.description), ("report", task.report)):
        if text:
            lines.append(f"{label}:\n{quote(sanitize(text))}")
    return "\n".join(lines)


def format_prompt(task: BoardTask, blockers: Iterable[BoardTask]) -> str:
    """Write a task's prompt: its texts, its last report, and the tasks it depends on."""
    parts = [task.subject]
    if task.description:
        parts.append(task.description)
    if task.report:
        parts.append(f"Report of the last attempt:\n{task.report[:_REPORT_LENGTH]}")
    for blocker in blockers:
        if blocker.report:
            subject = sanitize_line(blocker.subject, _SUBJECT_LENGTH)
            title = f"Report of the completed task #{blocker.id} ({subject}):"
            parts.append(f"{title}\n{blocker.report[:_REPORT_LENGTH]}")
    return quote("\n\n".join(parts))


def count_tasks(tasks: Sequence[BoardTask]) -> str:
    done = sum(task.status == "completed" for task in tasks)
    ready = sum(task.is_ready for task in tasks)
    return f"({done}/{len(tasks)} completed, {ready} ready)"


def format_ready(task_ids: Sequence[int]) -> str:
    """Say what a completion made ready: "; ready now: #2, #3", or ""."""
    return f"; ready now: {format_ids(task_ids)}" if task_ids else ""


def format_ids(task_ids: Iterable[int]) -> str:
    return ", ".join(f"#{task_id}" for task_id in task_ids)
