"""Text files as the tools see them: their text, their lines, and copies in UTF-8."""

from __future__ import annotations

import codecs
import os
from typing import BinaryIO, Literal

from msgspec import Struct

from ...._platform.patterns import compile_later
from .encodings import MAX_INSPECTED, UTF_8, Encoding, describe_binary, detect_encoding, trim_sample

_NOT_SHOWN = compile_later("[\0\ud800-\udfff]")
LINE_END = compile_later("\r\n?|\n")
REPLACEMENT = "\ufffd"  # shown for characters that no result can hold


class FileText(Struct, frozen=True):
    """A file's text, without byte order mark, with its own line ends.

    A byte that is not valid UTF-8 is half of a surrogate pair, as with Python's "surrogateescape".
    """

    text: str
    encoding: Encoding

    @property
    def shown(self) -> str:
        """The text as `read` shows it: equally long, with U+FFFD for other bytes."""
        return show_text(self.text)

    def encode(self, text: str) -> bytes:
        """Encode another text in this file's encoding. Raises UnicodeEncodeError."""
        encoding = self.encoding
        return encoding.bom + text.encode(encoding.codec, encoding.errors)


def decode_file(data: bytes) -> FileText:
    """Decode a file's whole content. Never fails, and loses nothing."""
    encoding = detect_encoding(data)
    text = data[len(encoding.bom) :].decode(encoding.codec, encoding.errors)
    return FileText(text, encoding)


def show_text(text: str) -> str:
    """Replace characters that no result can hold: NUL, foreign bytes, lone surrogates."""
    return text if text.isascii() and "\0" not in text else _NOT_SHOWN.sub(REPLACEMENT, text)


def find_line_break(text: str) -> str:
    """Find the character that ends lines: "\\r" only where there is no "\\n".

    It decides how every tool counts lines.
    """
    return "\r" if "\r" in text and "\n" not in text else "\n"


def list_lines(text: str) -> list[str]:
    """List the lines as `read` numbers them, without their ends."""
    if not text:
        return []
    line_break = find_line_break(text)
    lines = text.removesuffix(line_break).split(line_break)
    return [line.removesuffix("\r") for line in lines] if "\r\n" in text else lines


def find_line_end(text: str) -> str | None:
    """Find the line end shared by all lines; None if they differ or there is none."""
    ends = {match[0] for match in LINE_END.finditer(text)}
    return ends.pop() if len(ends) == 1 else None


def set_line_ends(text: str, end: str) -> str:
    return LINE_END.sub(end, text)


def count_lines(text: str) -> int:
    """Count the lines, including a final one without an end."""
    return text.count("\n") + (not text.endswith("\n") and bool(text))


_HEAD = 8_192

# "too large" means that its encoding takes too much memory.
Unsearchable = Literal["binary", "too large"]


class Utf8Copy(Struct, frozen=True):
    """A copy in UTF-8 as `read` shows the file; not exact if the encoding is unclear."""

    descriptor: int
    size: int
    is_exact: bool


def copy_as_utf8(descriptor: int) -> Utf8Copy | Unsearchable | None:
    """Copy a file that is not UTF-8; None if it is, or the reason it cannot be searched."""
    size = os.fstat(descriptor).st_size
    head = os.pread(descriptor, _HEAD, 0)
    if describe_binary(head):
        return "binary"
    if size > MAX_INSPECTED:
        whole_lines = head[: head.rfind(b"\n") + 1] or head[:-4]
        return None if detect_encoding(whole_lines).codec == UTF_8.codec else "too large"
    data = os.pread(descriptor, size, 0)
    has_lines = b"\r" not in data or b"\n" in data
    is_plain = data.isascii() and b"\x1b$" not in data and b"\0" not in data
    if has_lines and (is_plain or detect_encoding(data).codec == UTF_8.codec):
        return None
    file = decode_file(data)
    shown = file.shown
    content = shown.replace("\r", "\n") if find_line_break(shown) == "\r" else shown
    encoded = content.encode()
    return Utf8Copy(_make_unnamed_file(encoded), len(encoded), file.encoding.is_known)


def _make_unnamed_file(content: bytes) -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("mudroom-search")
    else:
        import tempfile  # slow to import

        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


MAX_LINE_CHARACTERS = 2_000
# A character has at most 4 bytes in UTF-8, and a line end at most 2.
_MAX_ROW_BYTES = 4 * MAX_LINE_CHARACTERS + 2
_MAX_CHARACTERS = 48_000  # per call; the engine shortens results over 50,000
_LINE_OVERHEAD = 8  # characters of a line's number, tab and end
_MAX_COUNTED_BYTES = 64 << 20  # of a file; lines of larger files are not counted
_MAX_SKIPPED_BYTES = 1 << 30  # to skip when looking for the first line
_SMALL_FILE = 40_000  # bytes; all lines of a smaller file fit into one call


class LineRange(Struct, frozen=True):
    """Some lines of a file.

    Arguments:
        lines: without their ends. first: number of the first line, from 1.
        total: lines of the file; None if not counted.
        note: remark about the encoding for the model.
    """

    lines: tuple[str, ...]
    first: int
    total: int | None
    has_more: bool
    note: str = ""


def read_lines(file: BinaryIO, size: int, first: int, count: int) -> LineRange:
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
    """Read lines of a file of any size, in an encoding with the byte "\\n" as line end."""
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
    """Skip lines; return how many there were, None after too many bytes."""
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
    """Read a line with its end; b"" at the end of the file, only the start of a very long line."""
    row = file.readline(_MAX_ROW_BYTES)
    piece = row
    budget = _MAX_SKIPPED_BYTES
    while piece and not piece.endswith(b"\n") and budget > 0:
        piece = file.readline(1 << 20)
        budget -= len(piece)
    return row


def _count_rest(file: BinaryIO, seen: int, size: int) -> tuple[int | None, bool]:
    """Count the file's lines, None if it is too large; also return whether any follow."""
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
    errors = encoding.errors if encoding.codec == "utf-8" else "replace"
    make_decoder = codecs.getincrementaldecoder(encoding.codec)
    # A cut line may end within a character, which the decoder then leaves out.
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
    """List lines if the line end is not the byte "\\n"; `is_cut`: the file goes on."""
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
