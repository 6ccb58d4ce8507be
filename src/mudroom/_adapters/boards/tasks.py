"""Checks of tasks' texts and dependencies."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ..._core.json_values import clean_text
from ...errors import UsageError


def require_subject(subject: str) -> str:
    """Return a subject as one line. Raises UsageError if it is blank."""
    line = " ".join(subject.split())
    if not line:
        raise UsageError("the subject of a task is blank", remedy="Say in a few words what to do.")
    return line


def format_metadata(metadata: Mapping[str, Any]) -> str:
    """Format metadata as JSON. Raises UsageError for a wrong agent, priority or check."""
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
    """Raise UsageError with the path of a cycle if tasks depend on themselves.

    Arguments:
        blockers: id of a task -> ids of the tasks it depends on.
    """
    if path := find_cycle(blockers):
        chain = " -> ".join(f"#{task}" for task in path)
        raise UsageError(
            f"these tasks depend on each other in a cycle: {chain}",
            remedy="Leave out one of these dependencies.",
        )


def find_cycle(blockers: Mapping[int, Iterable[int]]) -> list[int]:
    """Return the path of a cycle, ending with its first task again; [] if there is none."""
    # Iterative, because a chain of dependencies may be longer than Python's recursion limit.
    finished: set[int] = set()
    for start in blockers:
        path: list[int] = []
        stack = [(start, iter(blockers.get(start, ())))]
        if start in finished:
            continue
        path.append(start)
        while stack:
            task, remaining = stack[-1]
            blocker = next(remaining, None)
            if blocker is None:
                finished.add(task)
                stack.pop()
                path.pop()
            elif blocker in path:
                return [*path[path.index(blocker) :], blocker]
            elif blocker not in finished:
                path.append(blocker)
                stack.append((blocker, iter(blockers.get(blocker, ()))))
    return []
