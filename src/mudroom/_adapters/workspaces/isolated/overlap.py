"""Files that several runs changed, each in a workspace of its own."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import combinations
from typing import NamedTuple

from ...._core.events import Overlap
from ...._core.runs import Work
from ...._platform.regular_files import is_binary
from .git_store import GitStore
from .merge import merge_trees
from .trees import FILE_TYPE, REGULAR, FileChange

_MAX_PATHS = 100
"""Files in one report whose lines are compared."""

Lines = Sequence[bytes]


class Match(NamedTuple):
    """Equal lines of two texts: the first line in both, and their number."""

    old: int
    new: int
    length: int


def find_overlaps(
    store: GitStore, works: Mapping[str, Work], conflicts: Mapping[str, str] | None = None
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


def _find_conflicts(store: GitStore, works: Sequence[Work]) -> dict[str, str]:
    """Return the kinds of the conflicts between any two works, by path."""
    conflicts: dict[str, str] = {}
    for first, second in combinations(works, 2):
        merge = merge_trees(store, first.base, first.tree, second.tree)
        conflicts.update((conflict.path, conflict.kind) for conflict in merge.conflicts)
    return conflicts


def _list_changed_lines(store: GitStore, change: FileChange) -> tuple[tuple[int, int], ...]:
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


def match_lines(old: Lines, new: Lines) -> Iterator[Match]:
    """Yield the equal lines of two texts, in order.

    Lines that are unique in both texts are matched first, the gaps between them with difflib:
    difflib alone takes minutes for long texts with many equal lines.
    """
    shortest = min(len(old), len(new))
    start = 0
    while start < shortest and old[start] == new[start]:
        start += 1
    end = 0
    while end < shortest - start and old[-1 - end] == new[-1 - end]:
        end += 1
    if start:
        yield Match(0, 0, start)
    yield from _match_inner(old, new, start, end)
    if end:
        yield Match(len(old) - end, len(new) - end, end)


def _match_inner(old: Lines, new: Lines, start: int, end: int) -> Iterator[Match]:
    """Yield the equal lines between equal starts and ends."""
    anchors = list(_find_anchors(old[start : len(old) - end], new[start : len(new) - end]))
    places = [(first + start, second + start) for first, second in anchors]
    at_old = at_new = start
    for one, other in [*places, (len(old) - end, len(new) - end)]:
        matcher = SequenceMatcher(None, old[at_old:one], new[at_new:other])
        for first, second, count in matcher.get_matching_blocks():
            if count:
                yield Match(first + at_old, second + at_new, count)
        if one < len(old) - end:
            yield Match(one, other, 1)
        at_old, at_new = one + 1, other + 1


def _find_anchors(old: Lines, new: Lines) -> Iterator[tuple[int, int]]:
    """Yield the places of lines that are unique in both texts, as many as are in the same order."""
    counts_old, counts_new = Counter(old), Counter(new)
    places = {line: place for place, line in enumerate(new) if counts_new[line] == 1}
    pairs = [
        (place, places[line])
        for place, line in enumerate(old)
        if counts_old[line] == 1 and line in places
    ]
    ends: list[int] = []  # smallest last place of an increasing sequence, by its length
    last: list[int] = []  # the pairs that these are
    before: list[int] = []  # by pair: the one before it
    for number, (_, place) in enumerate(pairs):
        length = bisect_left(ends, place)
        before.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [place]
        last[length : length + 1] = [number]
    chain: list[int] = []
    number = last[-1] if last else -1
    while number >= 0:
        chain.append(number)
        number = before[number]
    yield from (pairs[number] for number in reversed(chain))
