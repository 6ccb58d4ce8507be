"""Open files for programs that search UTF-8: as they are, as a copy, or not at all."""

from __future__ import annotations

import os
import tempfile
from typing import Literal

from msgspec import Struct

from .encodings import MAX_INSPECTED, UTF_8, describe_binary, detect_encoding
from .file_text import decode_file, find_line_break

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
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
