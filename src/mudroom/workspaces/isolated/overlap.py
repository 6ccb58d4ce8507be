"""Files that several runs changed, each in a workspace of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from msgspec import Struct

from .merge import merge_trees
from .store import FileChange, TreeStore

_HUNK = re.compile(rb"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", re.MULTILINE)
_REGULAR = 0o100000
_MAX_PATHS = 100
"""Files in one report whose lines are compared."""


class StoredWork(Struct, frozen=True):
    """What a run made of its files.

    Arguments:
        run: id of the run. base: tree at its start. tree: tree at its end.
    """

    run: str
    base: str
    tree: str


class Overlap(Struct, frozen=True):
    """A file that at least two runs changed.

    Arguments:
        path: relative to the folder. runs: their ids.
        kind: "both-modified", "both-added", "modified-deleted", "binary" or "type".
        lines: changed lines by run: the first and the last, in the file of the run.
        is_mergeable: true if git can merge all changes of the file.
    """

    path: str
    runs: tuple[str, ...]
    kind: str
    lines: dict[str, tuple[tuple[int, int], ...]] = {}
    is_mergeable: bool = False

    def describe(self, names: dict[str, str]) -> str:
        """Return the overlap as a line.

        Arguments:
            names: of runs by id; a run without one is named by its id.

        Example:
            src/config.py: alice 10-24, bob 18-19: conflict
        """
        parts = [f"{names.get(run, run)}{_format_ranges(self.lines.get(run))}" for run in self.runs]
        result = "can be merged" if self.is_mergeable else f"conflict ({self.kind})"
        return f"{self.path}: {', '.join(parts)}: {result}"

    def to_json(self) -> dict[str, Any]:
        """Return the overlap as JSON."""
        return {
            "path": self.path,
            "by": list(self.runs),
            "kind": self.kind,
            "lines": {run: [list(lines) for lines in ranges] for run, ranges in self.lines.items()},
            "mergeable": self.is_mergeable,
        }


def find_overlaps(store: TreeStore, works: Sequence[StoredWork]) -> list[Overlap]:
    """Return the files that at least two runs changed, by path."""
    changes: dict[str, dict[StoredWork, FileChange]] = {}
    for work in works:
        for change in store.list_changes(work.base, work.tree):
            changes.setdefault(change.path, {})[work] = change
    shared = {path: by_work for path, by_work in changes.items() if len(by_work) > 1}
    conflicts = _find_conflicts(store, list({work: None for by in shared.values() for work in by}))
    overlaps: list[Overlap] = []
    for number, (path, by_work) in enumerate(sorted(shared.items())):
        is_compared = number < _MAX_PATHS
        lines = {
            work.run: _list_changed_lines(store, change)
            for work, change in by_work.items()
            if is_compared and change.status == "modified"
        }
        runs = [work.run for work in by_work]
        kind = conflicts.get(path) or _name_kind([change.status for change in by_work.values()])
        overlaps.append(Overlap(path, tuple(runs), kind, lines, is_mergeable=path not in conflicts))
    return overlaps


def _find_conflicts(store: TreeStore, works: Sequence[StoredWork]) -> dict[str, str]:
    """Return the kinds of the conflicts between any two works, by path."""
    conflicts: dict[str, str] = {}
    for first, second in combinations(works, 2):
        merge = merge_trees(store, first.base, first.tree, second.tree)
        conflicts.update((conflict.path, conflict.kind) for conflict in merge.conflicts)
    return conflicts


def _list_changed_lines(store: TreeStore, change: FileChange) -> tuple[tuple[int, int], ...]:
    """Return the ranges of changed lines in the new content of a file."""
    if change.mode & 0o170000 != _REGULAR:
        return ()
    output = store.git.run("diff", "--unified=0", "--no-color", change.before, change.after)
    ranges: list[tuple[int, int]] = []
    for match in _HUNK.finditer(output):
        start = int(match[1])
        count = int(match[2]) if match[2] else 1
        ranges.append((start, max(start, start + count - 1)))
    return tuple(ranges)


def _name_kind(statuses: list[str]) -> str:
    if "deleted" in statuses:
        return "modified-deleted"
    if "type" in statuses:
        return "type"
    return "both-added" if set(statuses) == {"added"} else "both-modified"


def _format_ranges(ranges: tuple[tuple[int, int], ...] | None) -> str:
    if not ranges:
        return ""
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
    return " " + "+".join(texts)
