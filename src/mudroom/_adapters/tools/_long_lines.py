"""The part of a long line that a search shows: the start, or a window around the first match."""

from __future__ import annotations

import os
from codecs import BOM_UTF8

from ..._platform.patterns import compile_later

# The search program gets this as its limit, too.
MAX_CHARACTERS = 500
_BEFORE = 150  # characters in front of a match
_MATCH = compile_later(rb"(\d+):(\d+):(\d+):")
_CONTEXT = compile_later(rb"(\d+)-(\d+)-")
_CUT = compile_later(rb" \[\.\.\. (?:(\d+) more match(?:es)?|omitted end of long line)\]\Z")


def show_line(descriptor: int, record: bytes, *, is_start: bool = False) -> bytes:
    """Format a line, as the search program prints it with its places, as `number mark text`.

    The program prints `number:column:offset:text` for a match and `number-offset-text` for context.
    Of a long line it prints only the start, followed by the number of matches behind it. The
    window is read from the open file, so a line of any length costs no memory.

    Arguments:
        descriptor: of the file that was searched.
        is_start: show the start although there is a match behind it.
    """
    if match := _MATCH.match(record):
        number, column, offset = map(int, match.groups())
        mark = b":"
    elif match := _CONTEXT.match(record):
        number, offset = map(int, match.groups())
        column, mark = 1, b"-"
    else:
        return record
    if is_start:
        column = 1
    text = record[match.end() :]
    cut = _CUT.search(text)
    if len(text) > MAX_CHARACTERS and cut:
        start = text[: cut.start()]
        if os.pread(descriptor, len(BOM_UTF8), 0) == BOM_UTF8:
            offset += len(BOM_UTF8)  # which the program does not count
        if os.pread(descriptor, 1, offset + len(start)) in (b"", b"\n", b"\r"):
            text = start  # few characters of many bytes: it is all there
        else:
            more = int(cut[1] or 0)
            text = _show_window(descriptor, start, offset, column, more).encode()
    return b"%d" % number + mark + text


def read_column(record: bytes) -> tuple[int, int] | None:
    """Read the line number and column of a match; None for a line of context."""
    match = _MATCH.match(record)
    return (int(match[1]), int(match[2])) if match else None


def _show_window(descriptor: int, start: bytes, offset: int, column: int, more: int) -> str:
    """Format the window with a note.

    Arguments:
        start: of the line. offset: of the line in the file. column: of the match, from 1, in bytes.
        more: matches behind the start.
    """
    place = column - 1
    if place <= len(start) - (len(start) // 3):
        return start.decode("utf-8", "replace") + _describe(more)
    if place >= len(start):
        more -= 1  # the one that is shown
    # Four bytes are one character at most.
    before = os.pread(descriptor, min(place, 4 * _BEFORE), offset + place - min(place, 4 * _BEFORE))
    after = os.pread(descriptor, 4 * MAX_CHARACTERS, offset + place).partition(b"\n")[0]
    window = (
        before.decode("utf-8", "ignore")[-_BEFORE:]
        + after.decode("utf-8", "ignore").rstrip("\r")[: MAX_CHARACTERS - _BEFORE]
    )
    return f"… {window}{_describe(max(more, 0), f' around byte {column:,}')}"


def _describe(more: int, where: str = "") -> str:
    matches = f"; {more:,} more match{'' if more == 1 else 'es'} in it" if more else ""
    return f" [line cut{where}{matches}]"
