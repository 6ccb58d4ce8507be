"""Files as text: byte order marks, encodings, line ends; and one writer at a time for a file."""

from __future__ import annotations

import codecs
import os
import threading
from collections.abc import Sequence

from msgspec import Struct

from .._core.ports import Workspace
from .._core.tools import ToolResult

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_MAGIC: Sequence[tuple[bytes, str]] = (
    (b"\x89PNG", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"%PDF", "PDF document"),
    (b"PK\x03\x04", "ZIP archive"),
    (b"\x1f\x8b", "gzip archive"),
    (b"BZh", "bzip2 archive"),
    (b"\xfd7zXZ", "xz archive"),
    (b"\x7fELF", "ELF program"),
    (b"SQLite format 3", "SQLite database"),
    (b"\x00asm", "WebAssembly module"),
    (b"\xca\xfe\xba\xbe", "Java class"),
)
_BOM_BYTES = tuple(bom for bom, _ in _BOMS)
_MAGIC_BYTES = tuple(magic for magic, _ in _MAGIC)
_LOCKS = tuple(threading.Lock() for _ in range(64))
"""Two runs may share a file: each path always falls to the same one of these. They guard a change from reading to renaming."""


class FileText(Struct, frozen=True):
    """A file's text as a model sees it, with "\\n" at the ends of lines, and what it takes to write it back as it was.

    Arguments:
        text: without byte order mark. encoding: a codec's name. bom: the byte order mark, or b"".
        crlf: whether all its lines end with CRLF; where ends are mixed they stay in the text.
    """

    text: str
    encoding: str = "utf-8"
    bom: bytes = b""
    crlf: bool = False

    def encode(self, text: str) -> bytes:
        """Another text in the bytes of this file. Raises UnicodeEncodeError."""
        return self.bom + (text.replace("\n", "\r\n") if self.crlf else text).encode(self.encoding)


def decode_text(data: bytes) -> FileText:
    """Bytes as text: by byte order mark, else UTF-8, else Latin-1, which takes any bytes."""
    bom, encoding = detect_encoding(data)
    body = data[len(bom) :]
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError:
        bom, encoding, text = b"", "latin-1", data.decode("latin-1")
    crlf = uses_crlf(text)
    return FileText(text.replace("\r\n", "\n") if crlf else text, encoding, bom, crlf)


def uses_crlf(text: str) -> bool:
    """Whether every line ends with CRLF, and there is at least one."""
    ends = text.count("\n")
    return ends > 0 and text.count("\r\n") == ends


def detect_encoding(data: bytes) -> tuple[bytes, str]:
    """The byte order mark at the start and the encoding it tells; b"" and UTF-8 without one."""
    if not data.startswith(_BOM_BYTES):
        return b"", "utf-8"
    return next((bom, encoding) for bom, encoding in _BOMS if data.startswith(bom))


def describe_binary(head: bytes) -> str:
    """What sort of binary file begins like this; "" for text."""
    if head.startswith(_BOM_BYTES):
        return ""
    if head.startswith(_MAGIC_BYTES):
        return next(kind for magic, kind in _MAGIC if head.startswith(magic))
    return "binary file" if b"\0" in head else ""


def file_lock(workspace: Workspace, located: str) -> threading.Lock:
    """The lock of a file."""
    return _LOCKS[hash(os.path.join(workspace.root, located)) % len(_LOCKS)]


def read_start(workspace: Workspace, path: str, limit: int) -> bytes:
    """At most `limit` bytes from the start of a file. Raises WorkspaceError."""
    with os.fdopen(workspace.open(path), "rb") as file:
        return file.read(limit)


def count_lines(text: str) -> int:
    """How many lines a text has."""
    return text.count("\n") + (not text.endswith("\n") and bool(text))


def format_count(number: int, thing: str) -> str:
    """ "1 line", "2 lines"."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def error_result(text: str) -> ToolResult:
    """A result that tells the model what is wrong and what to do instead."""
    return ToolResult(text, error=True)
