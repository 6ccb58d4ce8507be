"""The line numbers of `read` in texts that models send back.

They count as numbers only at the lines they belong to. The rows of a table begin with numbers, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from ..._platform.lazy_pattern import compile_later

_NUMBERS = compile_later(r"(?: *\d+\t)*")
_NUMBER = compile_later(r" *(\d{1,12})\t")


class UnclearNumbersError(ValueError):
    """Numbers that may belong to the file or be line numbers; the text says what to do."""


class NumberedText(Struct, frozen=True):
    """A text without its line numbers, and these, by the index of their line."""

    text: str
    numbers: Mapping[int, int]

    @property
    def first_line(self) -> int:
        """The number of the line in which the text begins."""
        index, number = next(iter(self.numbers.items()))
        return number - index

    @property
    def ends_with_number(self) -> bool:
        """True if the last line has nothing but a number."""
        last = self.text.rpartition("\n")[2]
        return not last and self.text.count("\n") in self.numbers

    def fits(self, line: int, *, starts_line: bool) -> bool:
        """Return whether the numbers are those of a place that begins in a line."""
        if 0 in self.numbers and not starts_line:
            return False
        return all(line + index == number for index, number in self.numbers.items())


def read_numbers(text: str) -> NumberedText | None:
    """Take the number off each line that begins with one; None when no line does."""
    lines = text.split("\n")
    numbers = {
        index: int(match[1])
        for index, line in enumerate(lines)
        if (match := _NUMBER.match(line)) is not None
    }
    if not numbers:
        return None
    bare = [_NUMBER.sub("", line, 1) if i in numbers else line for i, line in enumerate(lines)]
    return NumberedText("\n".join(bare), numbers)


def check_unnumbered(new: str, line: int, lines: Sequence[str], *, starts_line: bool) -> None:
    """Refuse a new text with line numbers where the old text had none.

    Arguments:
        line: number of the first line of the place. lines: the whole lines there, as in the file.

    Raises UnclearNumbersError.
    """
    usual = max(map(_count_numbers, lines))
    rows = new.split("\n")
    numbers = range(line, line + max(len(lines), len(rows)))
    for index, row in enumerate(rows):
        expected = usual if index or starts_line else 0
        match = _NUMBER.match(row)
        if match and _count_numbers(row) > expected and int(match[1]) in numbers:
            raise UnclearNumbersError(
                f"new_string: its line {index + 1} begins with {match[1]} and a tab, as `read` "
                "shows line numbers. Leave them out. If the file is to have them, use write."
            )


def strip_new_numbers(new: str, line: int, old: NumberedText) -> str:
    """Take the line numbers off a new text whose old text had some.

    Raises UnclearNumbersError when a number may belong to the file.
    """
    rows = new.split("\n")
    old_rows = old.text.split("\n")
    usual = max(map(_count_numbers, old_rows))
    numbers = range(line, line + max(len(rows), len(old_rows)))
    bare: list[str] = []
    for index, row in enumerate(rows):
        match = _NUMBER.match(row)
        if match is None:
            bare.append(row)
        elif int(match[1]) not in numbers or _count_numbers(row) <= usual:
            raise UnclearNumbersError(
                f"new_string: its line {index + 1} begins with {match[1]} and a tab, which may be "
                "a line number or text of the file. Leave out the line numbers that `read` shows."
            )
        else:
            bare.append(row[match.end() :])
    return "\n".join(bare)


def _count_numbers(row: str) -> int:
    match = _NUMBERS.match(row)
    return match[0].count("\t") if match else 0
