"""Texts in which spellings that look the same are the same, with the way back to the original."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator

from ..._platform.lazy_pattern import compile_later

_MARKS = "\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f\u3099\u309a"
_IS_MARK = compile_later(f"[{_MARKS}]")
_LINE_ENDS = compile_later("\r\n?")
_LOOK_ALIKES = compile_later(f"\r\n?|[\u1100-\u11ff]+|[^\\s{_MARKS}]?[{_MARKS}]+|[^\0-\x7f]")
_SAME = (
    ("\u00a0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B))), " "),
    ("\u200b\u200c\u200d\u2060\ufeff\u00ad", ""),
    ("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d", "-"),
    ("\u2018\u2019\u201a\u201b\u2032", "'"),
    ("\u201c\u201d\u201e\u201f\u2033", '"'),
)
_TABLE = {ord(character): same for characters, same in _SAME for character in characters}


class FoldedText:
    """A text with some parts replaced, and the places of the original.

    Arguments:
        original: the text. pattern: finds the parts. fold: returns what replaces a part.
    """

    def __init__(self, original: str, pattern: re.Pattern[str], fold: Callable[[str], str]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._parts: list[tuple[int, int]] = []
        pieces: list[str] = []
        copied = 0
        length = 0
        for match in pattern.finditer(original):
            folded = fold(match[0])
            if folded == match[0]:
                continue
            pieces += (original[copied : match.start()], folded)
            length += match.start() - copied
            self._starts.append(length)
            length += len(folded)
            self._ends.append(length)
            self._parts.append(match.span())
            copied = match.end()
        self.text = "".join(pieces) + original[copied:] if pieces else original

    def find_all(self, wanted: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end, in the original, of each place; places do not overlap.

        A part that was replaced is never cut: such a place does not count.
        """
        position = self.text.find(wanted)
        while position >= 0:
            start = self.find_start(position)
            end = self.find_end(position + len(wanted))
            if start is None or end is None:
                position = self.text.find(wanted, position + 1)
                continue
            yield start, end
            position = self.text.find(wanted, position + len(wanted))

    def find_start(self, position: int) -> int | None:
        """Return where the character at a position begins in the original; None within a part."""
        number = bisect_right(self._starts, position) - 1
        if number < 0:
            return position
        if position < self._ends[number]:
            return self._parts[number][0] if position == self._starts[number] else None
        return self._parts[number][1] + position - self._ends[number]

    def find_end(self, position: int) -> int | None:
        """Return where the character before a position ends in the original; None within a part."""
        if position == 0:
            return 0
        number = bisect_right(self._starts, position - 1) - 1
        if number < 0:
            return position
        if position <= self._ends[number]:
            return self._parts[number][1] if position == self._ends[number] else None
        return self._parts[number][1] + position - self._ends[number]


def fold_line_ends(text: str) -> FoldedText:
    """Make all line ends "\\n"."""
    return FoldedText(text, _LINE_ENDS, lambda _: "\n")


def fold_look_alikes(text: str) -> FoldedText:
    """Make line ends, spaces, dashes and quotes the same, drop what has no width, and compose.

    Composed and decomposed letters (NFC and NFD) become the same.
    """
    return FoldedText(text, _LOOK_ALIKES, _fold_part)


def _fold_part(part: str) -> str:
    if part[0] == "\r":
        return "\n"
    return unicodedata.normalize("NFC", part).translate(_TABLE)


def is_mark(character: str) -> bool:
    """Return whether a character is an accent of the letter before it."""
    return _IS_MARK.match(character) is not None
