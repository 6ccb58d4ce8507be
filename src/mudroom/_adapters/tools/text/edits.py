"""Replacements in a text; new text takes over line ends and foreign bytes from its place."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from ...._platform.patterns import compile_later
from ...._projections.engine_text import is_quoted, unquote
from .file_text import LINE_END, REPLACEMENT, FileText, find_line_break, set_line_ends, show_text

_MAX_COMPARED = 1_000_000  # old lines times new lines; comparing equal ones takes about a second
# In encodings with two bytes per character, the second one may look like ASCII.
_UNKNOWN_LETTERS = compile_later(r"[^\0-\x7f]+[0-9@-~]?")


def keep_line_ends(text: str, start: int, end: int, new: str, sent: str) -> str:
    """Give a new text's lines the line ends of the place it replaces.

    Lines that stay keep theirs; added lines get that of the line before them. `new` has "\\n" as
    its line end; `sent`, the text as the model sent it, decides in a file without line ends.
    """
    part = text[start:end]
    following = LINE_END.search(text, end)
    if following is not None:
        last = following[0]
    else:
        ends_before = _find_last_end(text[:end]) or _find_last_end(sent)
        last = ends_before or "\n"
    ends = [match[0] for match in LINE_END.finditer(part)]
    ends.append(last)
    if len(set(ends)) == 1:
        return new.replace("\n", last)
    return _join_lines(LINE_END.split(part), ends, new.split("\n"))


def _find_last_end(text: str) -> str:
    position = max(text.rfind("\n"), text.rfind("\r"))
    if position < 0:
        return ""
    return "\r\n" if text[position - 1 : position + 1] == "\r\n" else text[position]


def _join_lines(old: Sequence[str], ends: Sequence[str], new: Sequence[str]) -> str:
    """Join new lines with the ends of the old lines they equal, replace or follow."""
    shorter = min(len(old), len(new))
    first = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    rest = shorter - first
    last = next((i for i in range(rest) if old[-1 - i] != new[-1 - i]), rest)
    changed = old[first : len(old) - last]
    added = new[first : len(new) - last]
    if changed:
        chosen = _choose_ends(changed, ends[first:], added)
    else:
        chosen = [ends[max(first - 1, 0)]] * len(added)
    kept_ends = [*ends[:first], *chosen, *ends[len(ends) - last :]]
    return "".join(line + end for line, end in zip(new[:-1], kept_ends, strict=False)) + new[-1]


def _choose_ends(old: Sequence[str], ends: Sequence[str], new: Sequence[str]) -> list[str]:
    """Choose the end of each new line from those of the old lines.

    Raises ValueError if there are too many lines to compare quickly.
    """
    if len(old) * len(new) > _MAX_COMPARED:
        raise ValueError(
            f"The {len(old)} lines that change end in two ways (CRLF, LF), and too many change at "
            "once to keep the end of each. Change fewer lines in one call."
        )
    from difflib import SequenceMatcher  # only for files with two kinds of line ends

    matcher = SequenceMatcher(None, old, new, autojunk=False)
    chosen: list[str] = []
    for kind, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        for offset in range(new_end - new_start):
            if kind == "insert":
                source = max(old_start - 1, 0)
            else:
                source = min(old_start + offset, old_end - 1)
            chosen.append(ends[source])
    return chosen


def keep_foreign(part: str, shown_part: str, new: str, shown: str, text: str) -> str:
    """Put the place's foreign bytes back where the new text shows U+FFFD for them.

    Raises ValueError if it is unclear which byte is meant.
    """
    if shown == text:
        return new  # U+FFFD is a character of the file
    foreign = [raw for raw, seen in zip(part, shown_part, strict=True) if seen == REPLACEMENT]
    pieces = new.split(REPLACEMENT)
    old_pieces = shown_part.split(REPLACEMENT)
    count = len(pieces) - 1
    if len(set(foreign)) == 1 and count <= len(foreign):
        return new.replace(REPLACEMENT, foreign[0])
    if count != len(foreign) or old_pieces[1:-1] != pieces[1:-1]:
        raise ValueError(
            f"new_string: {REPLACEMENT} stands for bytes that are not text, and it is not clear "
            "which ones are meant. Change a part without them, or use a program in bash."
        )
    kept = [piece + raw for piece, raw in zip(pieces[:-1], foreign, strict=True)]
    return "".join(kept) + pieces[-1]


def find_unknown_letters(text: str, start: int, end: int, new: str) -> str:
    """Find the first letters that a replacement would write in an unknown encoding.

    Letters outside ASCII may stay, but only whole: each may be half of a character. "" if they do.
    """
    before = re.search(r"(?<![^\0-\x7f])[^\0-\x7f]*+\Z", text[max(0, start - 64) : start])
    prefix = before[0] if before else ""
    following = re.match(r"[^\0-\x7f]*[\0-\x7f]?", text[end : end + 64])
    suffix = following[0] if following else ""
    allowed = set(_UNKNOWN_LETTERS.findall(prefix + text[start:end] + suffix))
    written = _UNKNOWN_LETTERS.findall(prefix + new + suffix)
    return show_text(next((letters for letters in written if letters not in allowed), ""))


_MAX_NAMED_LINES = 10
_MAX_FOLDED = 4 << 20  # characters of a file to search for look-alikes; takes about 4 seconds


class EditRefusedError(ValueError):
    """The edit is unclear, or the file cannot take it; the text says what to do."""


class Replacement(Struct, frozen=True):
    start: int
    end: int
    text: str


def find_replacements(
    file: FileText, old: str, new: str, *, replace_all: bool
) -> list[Replacement]:
    """Find the places an edit replaces; none if the old text is not in the file.

    Models send text as they saw it: ignorant of line ends, with `read`'s line numbers, and with
    quoting marks. Each of these is undone only where the file confirms it.

    Raises EditRefusedError, or ValueError with a text for the model.
    """
    return _Search(file, set_line_ends(old, "\n"), new, replace_all).find()


def apply_replacements(text: str, replacements: Sequence[Replacement]) -> str:
    parts: list[str] = []
    position = 0
    for one in replacements:
        parts += (text[position : one.start], one.text)
        position = one.end
    return "".join(parts) + text[position:]


class _Search:
    """The search for an edit. `old` and `new` have "\\n" as their line end."""

    def __init__(self, file: FileText, old: str, new: str, replace_all: bool) -> None:
        self._file = file
        self._shown = file.shown
        self._line_break = find_line_break(self._shown)
        self._has_other_ends = "\r" in self._shown or "\n" not in self._shown
        self._old = old
        self._sent_new = new
        self._new = set_line_ends(new, "\n")
        self._replace_all = replace_all
        self._numbered = read_numbers(old)
        self._numbered_lines = self._find_line(self._numbered.first_line if self._numbered else 0)

    def find(self) -> list[Replacement]:
        ends = fold_line_ends(self._shown)
        places = self._list_places(ends, self._old)
        numbered = self._find_numbered(ends)
        if places and numbered and not places[0][0] <= numbered[0] < places[-1][1]:
            raise EditRefusedError(
                "old_string may begin with a line number of `read`, or with a number of the file: "
                f"both are there (lines {self._count_line(numbered[0])} and "
                f"{self._count_line(places[0][0])}). Quote it without line numbers."
            )
        if places:
            return self._replace(places, self._new)
        if numbered and self._numbered:
            return self._replace_numbered(numbered, self._numbered)
        if is_quoted(self._old) and (places := self._list_places(ends, unquote(self._old))):
            return self._replace(places, unquote(self._new))
        is_plain = self._shown.isascii() and self._old.isascii()
        if is_plain or len(self._shown) > _MAX_FOLDED:
            return []
        return self._find_look_alike()

    def _list_places(self, text: FoldedText, wanted: str) -> list[tuple[int, int]]:
        return [
            (start, end)
            for start, end in text.find_all(wanted)
            if not is_mark(self._shown[end : end + 1])
        ]

    def _find_numbered(self, ends: FoldedText) -> tuple[int, int] | None:
        if self._numbered is None or not self._numbered.text:
            return None
        places = self._list_places(ends, self._numbered.text)
        return next((place for place in places if self._fits(self._numbered, *place)), None)

    def _fits(self, numbered: NumberedText, start: int, end: int) -> bool:
        if numbered.ends_with_number and self._shown[end : end + 1] not in ("", "\r", "\n"):
            return False  # a lone number is a line without text
        if not self._numbered_lines.start <= start < self._numbered_lines.stop:
            return False  # a quick test: counting the lines before each place would take long
        return numbered.fits(self._count_line(start), starts_line=self._starts_line(start))

    def _find_line(self, number: int) -> range:
        """Find where a line and its line end begin and end; empty if there is no such line."""
        start = 0
        for _ in range(number - 1):
            start = self._shown.find(self._line_break, start) + 1
            if not start:
                return range(0)
        end = self._shown.find(self._line_break, start)
        return range(start, (len(self._shown) if end < 0 else end) + 1)

    def _starts_line(self, start: int) -> bool:
        return self._shown[start - 1 : start] in ("", self._line_break)

    def _count_line(self, position: int) -> int:
        return self._shown.count(self._line_break, 0, position) + 1

    def _replace(self, places: Sequence[tuple[int, int]], new: str) -> list[Replacement]:
        if len(places) > 1 and not self._replace_all:
            numbers = dict.fromkeys(self._count_line(s) for s, _ in places[:_MAX_NAMED_LINES])
            more = ", …" if len(places) > _MAX_NAMED_LINES else ""
            raise EditRefusedError(
                f"old_string is in the file {len(places)} times "
                f"(lines {', '.join(map(str, numbers))}{more}). "
                "Quote more lines around the one meant, or set replace_all."
            )
        if read_numbers(new):
            self._check_new_numbers(new, places)
        return [self._make(start, end, new) for start, end in places]

    def _check_new_numbers(self, new: str, places: Sequence[tuple[int, int]]) -> None:
        line = 1
        counted = 0
        for start, end in places:
            line += self._shown.count(self._line_break, counted, start)
            counted = start
            first = self._shown.rfind(self._line_break, 0, start) + 1
            last = self._shown.find(self._line_break, max(start, end - 1))
            lines = self._shown[first : last if last >= 0 else None].split(self._line_break)
            check_unnumbered(new, line, lines, starts_line=self._starts_line(start))

    def _replace_numbered(
        self, place: tuple[int, int], numbered: NumberedText
    ) -> list[Replacement]:
        if self._replace_all:
            raise EditRefusedError(
                "old_string: a text with line numbers has one place. "
                "Leave the numbers out, or replace_all."
            )
        new = strip_new_numbers(self._new, self._count_line(place[0]), numbered)
        return [self._make(*place, new)]

    def _find_look_alike(self) -> list[Replacement]:
        """Find the only place that looks like the old text, keeping its own characters."""
        text = fold_look_alikes(self._shown)
        for old, numbered in self._list_readings():
            wanted = fold_look_alikes(old).text
            places = self._list_places(text, wanted) if wanted else []
            if numbered:
                places = [place for place in places if self._fits(numbered, *place)]
            if len(places) > 1:
                lines = ", ".join(str(self._count_line(s)) for s, _ in places[:_MAX_NAMED_LINES])
                raise EditRefusedError(
                    f"old_string is not in the file, but looks like {len(places)} places "
                    f"(lines {lines}): {self._describe_difference(old, *places[0])} "
                    "Quote more lines around the one meant."
                )
            for start, end in places:
                line = self._count_line(start)
                new = strip_new_numbers(self._new, line, numbered) if numbered else self._new
                if numbered is None and read_numbers(new):
                    self._check_new_numbers(new, [(start, end)])
                return [self._replace_difference(start, end, old, new)]
        return []

    def _list_readings(self) -> Iterator[tuple[str, NumberedText | None]]:
        yield self._old, None
        if self._numbered:
            yield self._numbered.text, self._numbered

    def _replace_difference(self, start: int, end: int, old: str, new: str) -> Replacement:
        """Replace only the difference; the rest of the place keeps its spaces, quotes, accents."""
        same_start = _count_same_start(old, new)
        same_end = _count_same_end(old[same_start:], new[same_start:])
        changed = old[same_start : len(old) - same_end]
        part = self._shown[start:end]
        folded = fold_look_alikes(part)
        inner_start = folded.find_end(len(fold_look_alikes(old[:same_start]).text))
        rest = len(fold_look_alikes(old[len(old) - same_end :]).text)
        inner_end = folded.find_start(len(folded.text) - rest) if rest else len(part)
        inner = None
        if inner_start is not None and inner_end is not None:
            if not changed and inner_end > inner_start:
                inner_end = inner_start  # a zero-width character is where text is inserted
            inner = set_line_ends(part[inner_start:inner_end], "\n")
        if inner is None or inner_start is None or inner_end is None or inner != changed:
            difference = self._describe_difference(old, start, end)
            raise EditRefusedError(
                f"old_string is not in the file, but line {self._count_line(start)} looks like it: "
                f"{difference} Quote it exactly, or change less of it."
            )
        inserted = new[same_start : len(new) - same_end]
        kept = (part[:inner_start], part[inner_end:])
        before, after = (set_line_ends(text, "\n") for text in kept)
        return self._make(start, end, before + inserted + after)

    def _describe_difference(self, old: str, start: int, end: int) -> str:
        """Name the first character where a place differs from the old text."""
        part = self._shown[start:end]
        index = _count_common(old, set_line_ends(part, "\n"))
        index += part[:index].count("\r\n")
        position = start + min(index, max(len(part) - 1, 0))
        character = self._shown[position]
        column = position - self._shown.rfind(self._line_break, 0, position)
        name = unicodedata.name(character, "")
        return (
            f"it differs by U+{ord(character):04X}{f' {name}' if name else ''} in line "
            f"{self._count_line(position)}, column {column}."
        )

    def _make(self, start: int, end: int, new: str) -> Replacement:
        text = self._file.text
        ended = new
        if "\n" in new and self._has_other_ends:
            ended = keep_line_ends(self._shown, start, end, new, self._sent_new)
        if REPLACEMENT in ended and REPLACEMENT in self._shown:
            ended = keep_foreign(text[start:end], self._shown[start:end], ended, self._shown, text)
        return Replacement(start, end, ended)


def _count_common(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _count_same_start(old: str, new: str) -> int:
    """Count the common leading characters, stopping before a letter with a different accent."""
    count = _count_common(old, new)
    while count and (is_mark(old[count : count + 1]) or is_mark(new[count : count + 1])):
        count -= 1
    return count


def _count_same_end(old: str, new: str) -> int:
    """Count the common trailing characters, which must not begin with an accent."""
    count = _count_common(old[::-1], new[::-1])
    while count and is_mark(old[len(old) - count]):
        count -= 1
    return count


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
    """A text with some parts replaced, which can find places in the original."""

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
        """Yield the start and end of each place in the original; places do not overlap.

        Places that cut a replaced part do not count.
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
        """Find where a character begins in the original; None within a replaced part."""
        number = bisect_right(self._starts, position) - 1
        if number < 0:
            return position
        if position < self._ends[number]:
            return self._parts[number][0] if position == self._starts[number] else None
        return self._parts[number][1] + position - self._ends[number]

    def find_end(self, position: int) -> int | None:
        """Find where the character before a position ends in the original; None within a part."""
        if position == 0:
            return 0
        number = bisect_right(self._starts, position - 1) - 1
        if number < 0:
            return position
        if position <= self._ends[number]:
            return self._parts[number][1] if position == self._ends[number] else None
        return self._parts[number][1] + position - self._ends[number]


def fold_line_ends(text: str) -> FoldedText:
    return FoldedText(text, _LINE_ENDS, lambda _: "\n")


def fold_look_alikes(text: str) -> FoldedText:
    """Unify line ends, spaces, dashes and quotes, drop invisible characters, and compose letters.

    Composed and decomposed letters (NFC and NFD) become the same.
    """
    return FoldedText(text, _LOOK_ALIKES, _fold_part)


def _fold_part(part: str) -> str:
    if part[0] == "\r":
        return "\n"
    return unicodedata.normalize("NFC", part).translate(_TABLE)


def is_mark(character: str) -> bool:
    return _IS_MARK.match(character) is not None


_NUMBERS = compile_later(r"(?: *\d+\t)*")
_NUMBER = compile_later(r"(?<! ) *+(\d{1,12})\t")


class UnclearNumbersError(ValueError):
    """Numbers may be line numbers or belong to the file; the text says what to do."""


class NumberedText(Struct, frozen=True):
    """A text without its line numbers, and the numbers by line index."""

    text: str
    numbers: Mapping[int, int]

    @property
    def first_line(self) -> int:
        index, number = next(iter(self.numbers.items()))
        return number - index

    @property
    def ends_with_number(self) -> bool:
        last = self.text.rpartition("\n")[2]
        return not last and self.text.count("\n") in self.numbers

    def fits(self, line: int, *, starts_line: bool) -> bool:
        """Return whether the numbers are right for a place that begins in this line."""
        if 0 in self.numbers and not starts_line:
            return False
        return all(line + index == number for index, number in self.numbers.items())


def read_numbers(text: str) -> NumberedText | None:
    """Remove the number from each line that begins with one; None if none does."""
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
    """Refuse a new text with line numbers if the old text had none.

    `line` is the number of the place's first line, `lines` the whole lines there.
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
    """Remove line numbers from a new text; UnclearNumbersError if one may belong to the file."""
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
