"""A few lines of a text file of any size, as a model reads them."""

from __future__ import annotations

import codecs
from typing import BinaryIO

from msgspec import Struct

from .encodings import MAX_INSPECTED, Encoding, detect_encoding, trim_sample
from .file_text import REPLACEMENT, FileText, decode_file, list_lines, show_text

MAX_LINE_CHARACTERS = 2_000
# A character has at most 4 bytes in UTF-8, and a line end at most 2.
_MAX_ROW_BYTES = 4 * MAX_LINE_CHARACTERS + 2
_MAX_CHARACTERS = 48_000  # of one call; the engine shortens results over 50,000
_LINE_OVERHEAD = 8  # characters of a line's number, tab and end
_MAX_COUNTED_BYTES = 64 << 20  # the lines of a larger file are not counted
_MAX_SKIPPED_BYTES = 1 << 30  # bytes that are skipped to find the first line
_SMALL_FILE = 40_000  # bytes of a file whose lines all fit into one call


class LineRange(Struct, frozen=True):
    """Some lines of a file.

    Arguments:
        lines: without their ends. first: number of the first one, from 1.
        total: lines of the file; None when not counted. has_more: True when lines follow.
        note: remark on the encoding for the model.
    """

    lines: tuple[str, ...]
    first: int
    total: int | None
    has_more: bool
    note: str = ""


def read_lines(file: BinaryIO, size: int, first: int, count: int) -> LineRange:
    """Read lines of a text file that is open at its start.

    Arguments:
        size: bytes of the file. first: number of the first line, from 1.
        count: how many lines at most; there are fewer when they are long.
    """
    data = file.read(MAX_INSPECTED)
    if size <= _SMALL_FILE and (small := _read_small_file(data, first, count)):
        return small
    data = trim_sample(data)
    encoding = detect_encoding(data)
    if encoding.is_wide or (b"\r" in data and b"\n" not in data):
        is_cut = size > MAX_INSPECTED
        return _list_lines(decode_file(data), first, count, is_cut=is_cut)
    file.seek(0)
    return _stream_lines(file, first, count, size, encoding)


def _read_small_file(data: bytes, first: int, count: int) -> LineRange | None:
    """Read lines of a small file in plain UTF-8 without long lines; None for any other."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if "\r" in text or "\0" in text or text.startswith("\ufeff"):
        return None
    lines = text.removesuffix("\n").split("\n")
    if len(text) > MAX_LINE_CHARACTERS and max(map(len, lines)) > MAX_LINE_CHARACTERS:
        return None
    chosen = tuple(lines[first - 1 : first - 1 + count])
    return LineRange(chosen, first, len(lines), first - 1 + len(chosen) < len(lines))


def _stream_lines(
    file: BinaryIO, first: int, count: int, size: int, encoding: Encoding
) -> LineRange:
    """Read lines of a file of any size, in an encoding whose line end is the byte of "\\n"."""
    skipped = _skip_lines(file, first - 1)
    if skipped is None:
        return LineRange((), first, None, has_more=False)
    rows: list[bytes] = []
    room = _MAX_CHARACTERS
    while len(rows) < count and room > 0 and (row := _read_line(file)):
        rows.append(row)
        room -= min(len(row), MAX_LINE_CHARACTERS) + _LINE_OVERHEAD
    total, has_more = _count_rest(file, skipped + len(rows), size)
    if first == 1 and rows:
        rows[0] = rows[0].removeprefix(encoding.bom)
    lines, note = _decode_lines(rows, encoding)
    return LineRange(lines, first, total, has_more, note)


def _skip_lines(file: BinaryIO, count: int) -> int | None:
    """Skip lines, and count how many there were; None after too many bytes."""
    skipped = 0
    budget = _MAX_SKIPPED_BYTES
    last = b"\n"
    while skipped < count:
        piece = file.readline(1 << 16)
        if not piece:
            return skipped + (not last.endswith(b"\n"))
        last = piece
        skipped += piece.endswith(b"\n")
        budget -= len(piece)
        if budget < 0:
            return None
    return skipped


def _read_line(file: BinaryIO) -> bytes:
    """Read a line with its end; b"" at the end of the file, only the start of a very long one."""
    row = file.readline(_MAX_ROW_BYTES)
    piece = row
    budget = _MAX_SKIPPED_BYTES
    while piece and not piece.endswith(b"\n") and budget > 0:
        piece = file.readline(1 << 20)
        budget -= len(piece)
    return row


def _count_rest(file: BinaryIO, seen: int, size: int) -> tuple[int | None, bool]:
    """Count the lines of the file, None if it is too large, and tell if any follow."""
    if size > _MAX_COUNTED_BYTES:
        return None, bool(file.read(1))
    total = seen
    last = b"\n"
    while block := file.read(1 << 20):
        total += block.count(b"\n")
        last = block[-1:]
    total += last != b"\n"
    return total, total > seen


def _decode_lines(rows: list[bytes], encoding: Encoding) -> tuple[tuple[str, ...], str]:
    """Decode the lines, with a note on their encoding."""
    errors = encoding.errors if encoding.codec == "utf-8" else "replace"
    make_decoder = codecs.getincrementaldecoder(encoding.codec)
    # A line that was cut may end within a character, which the decoder then leaves out.
    texts = [make_decoder(errors).decode(row, len(row) < _MAX_ROW_BYTES) for row in rows]
    lines = tuple(map(_clean_line, texts))
    notes = [encoding.note] if encoding.note else []
    if any(map(_has_foreign, texts)):
        notes.append(f"{REPLACEMENT} stands for bytes that are not text; edit keeps them")
    return lines, f"({'; '.join(notes)})" if notes else ""


def _has_foreign(text: str) -> bool:
    return not text.isascii() and show_text(text) != text


def _clean_line(line: str) -> str:
    line = show_text(line.removesuffix("\n").removesuffix("\r"))
    if len(line) <= MAX_LINE_CHARACTERS:
        return line
    return line[:MAX_LINE_CHARACTERS] + " [line cut]"


def _list_lines(file: FileText, first: int, count: int, *, is_cut: bool) -> LineRange:
    """List lines of a file whose line end is not the byte of "\\n": UTF-16, or only CR.

    Arguments:
        is_cut: only the start of the file was read.
    """
    all_lines = list_lines(file.text)
    lines: list[str] = []
    room = _MAX_CHARACTERS
    for line in all_lines[first - 1 :][:count]:
        lines.append(_clean_line(line))
        room -= len(lines[-1]) + _LINE_OVERHEAD
        if room <= 0:
            break
    total = None if is_cut and lines else len(all_lines)
    has_more = is_cut or first - 1 + len(lines) < len(all_lines)
    note = f"({file.encoding.note})" if file.encoding.note else ""
    return LineRange(tuple(lines), first, total, has_more, note)
