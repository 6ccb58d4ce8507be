"""What new text takes over from the place it is put in: line ends, foreign bytes, letters."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...._platform.patterns import compile_later
from .file_text import REPLACEMENT, show_text

_LINE_END = compile_later("\r\n?|\n")
_MAX_COMPARED = 1_000_000  # old lines by new lines; comparing equal ones takes about a second
# In encodings with two bytes a character, the second one may look like ASCII.
_UNKNOWN_LETTERS = compile_later(r"[^\0-\x7f]+[0-9@-~]?")


def keep_line_ends(text: str, start: int, end: int, new: str, sent: str) -> str:
    """Give the lines of a new text the line ends of the place that it replaces.

    Lines that stay keep theirs; added lines get the one of the line before them.

    Arguments:
        text: the file as it is shown. start, end: the place in it.
        new: with "\\n" at its line ends. sent: as the model sent it; decides in a file that has no
            line end.
    """
    part = text[start:end]
    following = _LINE_END.search(text, end)
    if following is not None:
        last = following[0]
    else:
        ends_before = _find_last_end(text[:end]) or _find_last_end(sent)
        last = ends_before or "\n"
    ends = [match[0] for match in _LINE_END.finditer(part)]
    ends.append(last)
    if len(set(ends)) == 1:
        return new.replace("\n", last)
    return _join_lines(_LINE_END.split(part), ends, new.split("\n"))


def _find_last_end(text: str) -> str:
    position = max(text.rfind("\n"), text.rfind("\r"))
    if position < 0:
        return ""
    return "\r\n" if text[position - 1 : position + 1] == "\r\n" else text[position]


def _join_lines(old: Sequence[str], ends: Sequence[str], new: Sequence[str]) -> str:
    """Join new lines with the ends of the old lines that they equal, replace or follow."""
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

    Raises ValueError when there are so many lines that comparing them would take long.
    """
    if len(old) * len(new) > _MAX_COMPARED:
        raise ValueError(
            f"The {len(old)} lines that change end in two ways (CRLF, LF), and too many change at "
            "once to keep the end of each. Change fewer lines in one call."
        )
    from difflib import SequenceMatcher  # in files with two kinds of line ends only

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

    Raises ValueError when it is not clear which byte is meant.
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

    Letters outside ASCII may stay, but whole: each may be half of a character. "" if they do.
    """
    before = re.search(r"(?<![^\0-\x7f])[^\0-\x7f]*+\Z", text[max(0, start - 64) : start])
    prefix = before[0] if before else ""
    following = re.match(r"[^\0-\x7f]*[\0-\x7f]?", text[end : end + 64])
    suffix = following[0] if following else ""
    allowed = set(_UNKNOWN_LETTERS.findall(prefix + text[start:end] + suffix))
    written = _UNKNOWN_LETTERS.findall(prefix + new + suffix)
    return show_text(next((letters for letters in written if letters not in allowed), ""))
