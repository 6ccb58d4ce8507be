"""A text file as the tools see it, with all that it takes to write its bytes back."""

from __future__ import annotations

import os
from typing import Literal

from msgspec import Struct

from ...._platform.lazy_pattern import compile_later
from .encodings import MAX_INSPECTED, UTF_8, Encoding, describe_binary, detect_encoding

_NOT_SHOWN = compile_later("[\0\ud800-\udfff]")
LINE_END = compile_later("\r\n?|\n")
# Shown in place of a character that no result can hold.
REPLACEMENT = "\ufffd"


class FileText(Struct, frozen=True):
    """The text of a file, exactly as it is stored.

    Arguments:
        text: without byte order mark, with the file's line ends. A byte that is not valid UTF-8 is
            half of a surrogate pair, as Python's "surrogateescape" writes it.
    """

    text: str
    encoding: Encoding

    @property
    def shown(self) -> str:
        """The text as `read` shows it: of the same length, with U+FFFD for other bytes."""
        return show_text(self.text)

    def encode(self, text: str) -> bytes:
        """Encode another text as this file is encoded. Raises UnicodeEncodeError."""
        encoding = self.encoding
        return encoding.bom + text.encode(encoding.codec, encoding.errors)


def decode_file(data: bytes) -> FileText:
    """Decode the whole content of a file. This never fails, and loses nothing."""
    encoding = detect_encoding(data)
    text = data[len(encoding.bom) :].decode(encoding.codec, encoding.errors)
    return FileText(text, encoding)


def show_text(text: str) -> str:
    """Replace characters that no result can hold: NUL, foreign bytes, halves of pairs."""
    return text if text.isascii() and "\0" not in text else _NOT_SHOWN.sub(REPLACEMENT, text)


def find_line_break(text: str) -> str:
    """Find the character that ends lines: "\\r" only where there is no "\\n".

    It decides how lines are counted, the same for every tool.
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
    """Find the line end that all lines have; None if they differ, or if there is none.

    Example:
        find_line_end("a\\r\\nb\\r\\n") == "\\r\\n"
    """
    ends = {match[0] for match in LINE_END.finditer(text)}
    return ends.pop() if len(ends) == 1 else None


def set_line_ends(text: str, end: str) -> str:
    return LINE_END.sub(end, text)


def count_lines(text: str) -> int:
    """Count the lines, including a last one without an end."""
    return text.count("\n") + (not text.endswith("\n") and bool(text))


_HEAD = 8_192

# Too large means: in an encoding that takes too much memory.
Unsearchable = Literal["binary", "too large"]


class Utf8Copy(Struct, frozen=True):
    """A copy in UTF-8, as `read` shows the file.

    Arguments:
        descriptor: of a file without a name. size: bytes.
        is_exact: False when the encoding cannot be told: only ASCII text can be found for sure.
    """

    descriptor: int
    size: int
    is_exact: bool


def copy_as_utf8(descriptor: int) -> Utf8Copy | Unsearchable | None:
    """Copy a file that is not in UTF-8; None for one that is, or why it cannot be searched.

    Raises OSError if it cannot be read.
    """
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
