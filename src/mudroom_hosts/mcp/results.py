"""Results of calls: what the host receives about tasks, as text and as values."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from mudroom import Reason
from mudroom.driving import replace_private_file
from mudroom.views import add_facts, format_words, quote, sanitize_line

from .host_tasks import HostTask, is_success

MAX_TEXT = 24_000  # characters of a report: about 6,000 tokens; hosts warn at 10,000
MAX_TEXT_OF_MANY = 30_000  # characters of all of a call's reports
_MIN_TEXT = 200
_MAX_CHILDREN = 100
_MAX_FILES = 200
_MAX_REFUSED = 2_000  # characters of the refused calls and their reasons


class ToolAnswer(Struct, frozen=True):
    text: str
    values: dict[str, Any]  # the structured content, in the shape of the output schema
    is_error: bool = False


class AnswerMaker:
    def __init__(self, session: str, spill_folder: str) -> None:
        self._session = session
        self._spill_folder = spill_folder

    def describe(self, task: HostTask, limit: int = MAX_TEXT) -> ToolAnswer:
        """Describe a task's state, or its report cut to `limit` characters."""
        if not task.has_ended:
            text = (
                f"Task {task.id} goes on ({task.describe_progress()}). "
                f'Call task_result with {{"task": "{task.id}"}} for its report.'
            )
            return ToolAnswer(text, self._make_values(task, ""))
        report = task.report
        if report is None:
            text = f"The task failed: {task.error}"
            return ToolAnswer(text, self._make_values(task, ""), True)
        answer = self._shorten(task, format_words(report), limit)
        text = "\n".join([add_facts(report, answer), *_describe_denials(task)])
        return ToolAnswer(text, self._make_values(task, answer), not is_success(task))

    def describe_many(self, tasks: Sequence[HostTask]) -> ToolAnswer:
        """Describe the states of tasks in order; an error only if all have failed."""
        limit = max(_MIN_TEXT, MAX_TEXT_OF_MANY // len(tasks))
        answers = [self.describe(task, limit) for task in tasks]
        texts = [
            f"## Task {task.id}{f': {name}' if (name := task.arguments.description) else ''}\n"
            f"{answer.text}"
            for task, answer in zip(tasks, answers, strict=True)
        ]
        values = {"results": [answer.values for answer in answers]}
        is_error = all(answer.is_error for answer in answers)
        return ToolAnswer("\n\n".join(texts), values, is_error)

    def list_tasks(self, tasks: Iterable[HostTask]) -> ToolAnswer:
        rows: list[dict[str, Any]] = []
        lines: list[str] = []
        for task in tasks:
            reason = task.report.reason.value if task.report else ""
            title = task.arguments.description or task.arguments.prompt.partition("\n")[0][:80]
            ending = reason or task.error or "no report"
            state = ending if task.has_ended else task.describe_progress()
            lines.append(f"{task.id}  {state}  {title}")
            rows.append(
                {"task": task.id, "run": task.run_id, "state": task.state, "reason": reason}
            )
        values = {"session": self._session, "results": rows}
        return ToolAnswer("\n".join(lines) or "no task yet", values)

    def _make_values(self, task: HostTask, answer: str) -> dict[str, Any]:
        values: dict[str, Any] = {
            "task": task.id,
            "run": task.run_id,
            "session": self._session,
            "state": task.state,
            "reason": "",
            "report": answer,
            "children": msgspec.to_builtins(task.list_children()[:_MAX_CHILDREN]),
            "permission_denials": msgspec.to_builtins(task.denials),
        }
        if task.error:
            values["error"] = task.error
        report = task.report
        if report is None:
            if task.has_ended:
                reason = Reason.CANCELLED if task.is_cancelled else Reason.ERROR
                values["reason"] = reason.value
            return values
        values["reason"] = report.reason.value
        values["changed"] = list(report.files_changed[:_MAX_FILES])
        values["reads"] = len(report.files_read)
        values["usage"] = {
            "requests": task.turns,
            "input_tokens": report.usage.input_tokens,
            "output_tokens": report.usage.output_tokens,
            "usd": report.usd,
            "seconds": round(report.seconds, 3),
        }
        if task.arguments.schema is not None and report.ok:
            values["output"] = msgspec.to_builtins(report.outputs)
        return values

    def _shorten(self, task: HostTask, text: str, limit: int) -> str:
        if len(text) <= limit:
            return text
        # A run may open files here that it was told about, and cannot guess other names.
        path = Path(self._spill_folder, f"{task.run_id}-report-{os.urandom(8).hex()}.txt")
        replace_private_file(path, text.encode("utf-8", "replace"))
        notice = f"[… cut: the whole report, {len(text):,} characters, is in {path}]"
        return f"{text[:limit]}\n{notice}"


def _describe_denials(task: HostTask) -> list[str]:
    if not task.denials:
        return []
    texts = dict.fromkeys(f"{denial.tool} ({denial.why})" for denial in task.denials)
    return [f"[refused: {quote(sanitize_line('; '.join(texts), _MAX_REFUSED))}]"]
