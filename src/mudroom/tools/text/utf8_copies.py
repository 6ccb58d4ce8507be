"""UTF-8 copies of open files in other encodings, for programs that search UTF-8."""

from __future__ import annotations

import os
import tempfile

from .encodings import MAX_INSPECTED, UTF_8, describe_binary, detect_encoding
from .file_text import decode_file, find_line_break

_HEAD = 8_192


def copy_as_utf8(descriptor: int) -> tuple[int, int] | None:
    """Copy an open file as `read` shows it; None for one that is UTF-8 already, or not text.

    Returns the descriptor of the copy, which has no name, and the bytes that it has. A file of more
    than MAX_INSPECTED bytes is not copied.
    """
    size = os.fstat(descriptor).st_size
    if size > MAX_INSPECTED:
        return None
    try:
        if describe_binary(os.pread(descriptor, _HEAD, 0)):
            return None
        data = os.pread(descriptor, size, 0)
    except OSError:
        return None  # the search program meets the same error and reports it
    has_lines = b"\r" not in data or b"\n" in data
    is_plain = data.isascii() and b"\x1b$" not in data and b"\0" not in data
    if has_lines and (is_plain or detect_encoding(data).codec == UTF_8.codec):
        return None
    shown = decode_file(data).shown
    content = shown.replace("\r", "\n") if find_line_break(shown) == "\r" else shown
    encoded = content.encode()
    return _make_unnamed_file(encoded), len(encoded)


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
