"""Files that several runs changed, each in a workspace of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from ..._core.merge_events import Overlap
from ..._core.runs import Work
from ..._platform.binary_files import is_binary
from .line_merge import Match, match_lines
from .merge import merge_trees
from .store import TreeStore
from .trees import FILE_TYPE, REGULAR, FileChange

_MAX_PATHS = 100
"""Files in one report whose lines are compared."""


def find_overlaps(
    store: TreeStore, works: Mapping[str, Work], conflicts: Mapping[str, str] | None = None
) -> list[Overlap]:
    """Return the files that at least two runs changed, by path.

    Arguments:
        works: by run id.
        conflicts: kinds by path, if they are known; None to merge each two works.
    """
    changes: dict[str, dict[str, FileChange]] = {}
    for run, work in works.items():
        for change in store.list_changes(work.base, work.tree):
            changes.setdefault(change.path, {})[run] = change
    shared = {path: by_run for path, by_run in changes.items() if len(by_run) > 1}
    if conflicts is None:
        runs = dict.fromkeys(run for by_run in shared.values() for run in by_run)
        conflicts = _find_conflicts(store, [works[run] for run in runs])
    overlaps: list[Overlap] = []
    for number, (path, by_run) in enumerate(sorted(shared.items())):
        is_compared = number < _MAX_PATHS
        lines = {
            run: _list_changed_lines(store, change)
            for run, change in by_run.items()
            if is_compared and change.status == "modified"
        }
        kind = conflicts.get(path) or _name_kind([change.status for change in by_run.values()])
        is_mergeable = path not in conflicts
        overlaps.append(Overlap(path, tuple(by_run), kind, lines, is_mergeable=is_mergeable))
    return overlaps


def _find_conflicts(store: TreeStore, works: Sequence[Work]) -> dict[str, str]:
    """Return the kinds of the conflicts between any two works, by path."""
    conflicts: dict[str, str] = {}
    for first, second in combinations(works, 2):
        merge = merge_trees(store, first.base, first.tree, second.tree)
        conflicts.update((conflict.path, conflict.kind) for conflict in merge.conflicts)
    return conflicts


def _list_changed_lines(store: TreeStore, change: FileChange) -> tuple[tuple[int, int], ...]:
    """Return the ranges of changed lines in the new content of a file."""
    if change.mode & FILE_TYPE != REGULAR:
        return ()
    old, new = (store.read(side) for side in (change.before, change.after))
    if is_binary(old, new):
        return ()
    ranges: list[tuple[int, int]] = []
    place = at = 0
    lines = new.splitlines()
    old_lines = old.splitlines()
    for first, start, count in [
        *match_lines(old_lines, lines),
        Match(len(old_lines), len(lines), 0),
    ]:
        if start > at:
            ranges.append((at + 1, start))
        elif first > place:  # lines were removed in front of this one
            ranges.append((at, at))
        place, at = first + count, start + count
    return tuple(ranges)


def _name_kind(statuses: list[str]) -> str:
    if "deleted" in statuses:
        return "modified-deleted"
    if "type" in statuses:
        return "type"
    return "both-added" if set(statuses) == {"added"} else "both-modified"
