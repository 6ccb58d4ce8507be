"""The differences between two texts as numbered lines for screens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .._core.tools import PreviewLine

# Single lines are compared only up to so many changed ones; a larger change is shown as a whole.
_MAX_COMPARED_LINES = 4_000


def diff_texts(
    before: str, after: str, *, context: int = 2, first_line: int = 1
) -> list[PreviewLine]:
    """List the changed lines with their numbers, and `context` unchanged lines around them.

    Removed lines have their old number, all others their new number.

    Arguments:
        first_line: number of the first line of both texts; 0 if it is not known, for lines without
            numbers.
    """
    old = before.splitlines()
    new = after.splitlines()
    start = _count_equal(old, new)
    end = _count_equal(old[start:][::-1], new[start:][::-1])
    first = max(0, start - context)
    old = old[first : len(old) - max(0, end - context)]
    new = new[first : len(new) - max(0, end - context)]
    lines = _compare_lines(old, new, context)
    if not first_line:
        return [(sign, text) for sign, _, text in lines]
    start = first_line + first
    width = len(str(start + max(len(old), len(new))))
    return [(sign, f"{start + at:>{width}}  {text}" if sign else text) for sign, at, text in lines]


def _count_equal(old: Sequence[str], new: Sequence[str]) -> int:
    """Count the lines that are equal at the start."""
    count = 0
    for before, after in zip(old, new, strict=False):
        if before != after:
            break
        count += 1
    return count


def _compare_lines(
    old: Sequence[str], new: Sequence[str], context: int
) -> Iterator[tuple[str, int, str]]:
    """Yield the sign, the index and the text of each line."""
    if len(old) + len(new) > _MAX_COMPARED_LINES:
        groups = [[("replace", 0, len(old), 0, len(new))]]
    else:
        import difflib

        matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
        groups = list(matcher.get_grouped_opcodes(context))
    for n, group in enumerate(groups):
        if n:
            yield "", 0, "…"
        for tag, old_start, old_end, new_start, new_end in group:
            if tag == "equal":
                for at in range(new_start, new_end):
                    yield " ", at, new[at]
                continue
            for at in range(old_start, old_end):
                yield "-", at, old[at]
            for at in range(new_start, new_end):
                yield "+", at, new[at]
