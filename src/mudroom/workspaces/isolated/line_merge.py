"""Three-way merge of lines, for a machine without `git merge-tree`.

Lines that are unique in both texts are matched first, the gaps between them with difflib.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from msgspec import Struct

from .conflict_marks import BASE, OURS, THEIRS

_MARKS = tuple(
    f"{line}\n".encode()
    for line in (f"<<<<<<< {OURS}", f"||||||| {BASE}", "=======", f">>>>>>> {THEIRS}")
)

Lines = Sequence[bytes]


class Match(NamedTuple):
    """Equal lines of two texts: the first line in both, and their number."""

    old: int
    new: int
    length: int

    @property
    def end(self) -> int:
        """Line of the old text after the equal lines."""
        return self.old + self.length


class LineMerge(Struct, frozen=True):
    """The result: the merged text; with conflicts it has the sides between marks."""

    text: bytes
    has_conflicts: bool = False


def merge_lines(base: bytes, ours: bytes, theirs: bytes) -> LineMerge:
    """Merge the changes of both sides. Changes of adjacent lines are a conflict, as for git."""
    old, mine, other = (text.splitlines(keepends=True) for text in (base, ours, theirs))
    parts: list[bytes] = []
    has_conflicts = False
    at = (0, 0, 0)
    for place, to_mine, to_other, count in _find_common(old, mine, other):
        sides = old[at[0] : place], mine[at[1] : to_mine], other[at[2] : to_other]
        merged = _choose(*sides)
        if merged is None:
            has_conflicts = True
            merged = _mark(*sides)
        parts += merged
        parts += old[place : place + count]
        at = (place + count, to_mine + count, to_other + count)
    return LineMerge(b"".join(parts), has_conflicts)


def _choose(base: Lines, ours: Lines, theirs: Lines) -> Lines | None:
    """Return the side that a part of the text gets, None for a conflict."""
    if ours in (base, theirs):
        return theirs
    return ours if theirs == base else None


def _mark(base: Lines, ours: Lines, theirs: Lines) -> list[bytes]:
    marked: list[bytes] = []
    for mark, lines in zip(_MARKS, (ours, base, theirs, ()), strict=True):
        marked += (mark, *lines)
        if not marked[-1].endswith(b"\n"):
            marked[-1] += b"\n"
    return marked


def _find_common(base: Lines, ours: Lines, theirs: Lines) -> Iterator[tuple[int, int, int, int]]:
    """Yield the lines of the base that both sides have: places in all three, and their number."""
    matches = iter([*match_lines(base, theirs), Match(len(base), len(theirs), 0)])
    theirs_match = next(matches)
    for ours_match in match_lines(base, ours):
        while True:
            start = max(ours_match.old, theirs_match.old)
            count = min(ours_match.end, theirs_match.end) - start
            if count > 0:
                to_ours = ours_match.new + start - ours_match.old
                to_theirs = theirs_match.new + start - theirs_match.old
                yield start, to_ours, to_theirs, count
            if theirs_match.end >= ours_match.end or theirs_match.old == len(base):
                break
            theirs_match = next(matches)
    yield len(base), len(ours), len(theirs), 0


def match_lines(old: Lines, new: Lines) -> Iterator[Match]:
    """Yield the equal lines of two texts, in order."""
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
