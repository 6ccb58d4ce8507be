"""Text files: byte order marks, encodings and line ends; one lock per file; texts for results."""

from __future__ import annotations

import codecs
import io
import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from msgspec import Struct

from .._core.ports import Workspace
from .._core.tools import PreviewLine, ToolResult
from .._platform.binary_files import is_binary

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

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
_STREAM_BUFFER = 1 << 18  # bytes
MAX_PROPOSED_BYTES = 1 << 20
"""Size of a file up to which a proposed change is shown as a difference."""
_LOCKS = tuple(threading.Lock() for _ in range(64))
"""Locks that runs share: a path always gets the same one. It is held from reading to renaming."""


class FileText(Struct, frozen=True):
    """The text of a file as a model sees it, and the format to write it back in.

    Arguments:
        text: without byte order mark; lines end with "\\n".
        encoding: name of a codec. bom: the byte order mark, or b"".
        crlf: True when all lines end with CRLF; mixed line ends stay in the text.
    """

    text: str
    encoding: str = "utf-8"
    bom: bytes = b""
    crlf: bool = False

    def encode(self, text: str) -> bytes:
        """Encode another text in the format of this file. Raises UnicodeEncodeError."""
        if self.crlf:
            text = text.replace("\n", "\r\n")
        return self.bom + text.encode(self.encoding)


def decode_text(data: bytes) -> FileText:
    """Decode by byte order mark, else as UTF-8, else as Latin-1, which accepts any bytes."""
    bom, encoding = detect_encoding(data)
    try:
        text = data[len(bom) :].decode(encoding)
    except UnicodeDecodeError:
        bom = b""
        encoding = "latin-1"
        text = data.decode(encoding)
    if uses_crlf(text):
        return FileText(text.replace("\r\n", "\n"), encoding, bom, crlf=True)
    return FileText(text, encoding, bom)


def uses_crlf(text: str) -> bool:
    """Return True when the text has at least one line end and all of them are CRLF."""
    ends = text.count("\n")
    return ends > 0 and text.count("\r\n") == ends


def detect_encoding(data: bytes) -> tuple[bytes, str]:
    """Return the byte order mark and the encoding it names; b"" and UTF-8 without one."""
    if data.startswith(_BOM_BYTES):
        return next((bom, encoding) for bom, encoding in _BOMS if data.startswith(bom))
    return b"", "utf-8"


def describe_binary(head: bytes) -> str:
    """Name the kind of binary file that begins with these bytes; "" for text."""
    if head.startswith(_BOM_BYTES):
        return ""
    if head.startswith(_MAGIC_BYTES):
        return next(kind for magic, kind in _MAGIC if head.startswith(magic))
    return "binary file" if is_binary(head) else ""


def get_file_lock(workspace: Workspace, located: str) -> threading.Lock:
    """Return the lock of a file."""
    return _LOCKS[hash(os.path.join(workspace.root, located)) % len(_LOCKS)]


class _WorkspaceFile(io.RawIOBase):
    """A file of a workspace as a stream: each read opens the file again."""

    def __init__(self, workspace: Workspace, path: str) -> None:
        self._workspace = workspace
        self._path = path
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        if whence == os.SEEK_CUR:
            offset += self._position
        self._position = offset
        return offset

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer)
        data = self._workspace.read(self._path, self._position, len(view))
        view[: len(data)] = data
        self._position += len(data)
        return len(data)


def open_stream(workspace: Workspace, path: str) -> BinaryIO:
    """Return a file as a stream that is read from its start. Reading raises WorkspaceError."""
    return io.BufferedReader(_WorkspaceFile(workspace, path), _STREAM_BUFFER)


def count_lines(text: str) -> int:
    """Count the lines of a text; a last line without an end counts."""
    return text.count("\n") + (not text.endswith("\n") and bool(text))


def make_error_result(text: str) -> ToolResult:
    """Return an error result: the text names the problem and the remedy."""
    return ToolResult(text, error=True)


def preview_result(arguments: Mapping[str, Any], result: ToolResult) -> list[PreviewLine]:
    """Return the lines of a result, for screens."""
    return [("", line) for line in result.text.splitlines()]
