"""Files as streams, one lock per file, and texts for results."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from ..._core.ports import Workspace
from ..._core.tools import PreviewLine, ToolResult

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_STREAM_BUFFER = 1 << 18  # bytes
# Changes to larger files are not shown as a difference.
MAX_PROPOSED_BYTES = 1 << 20
# Shared by all runs: a path always gets the same lock, held from reading to renaming. Two paths may
# share one, which costs only time.
_LOCKS = tuple(threading.Lock() for _ in range(64))


def get_file_lock(workspace: Workspace, located: str) -> threading.Lock:
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
    """Open a file as a stream, at its start. Reading raises WorkspaceError."""
    return io.BufferedReader(_WorkspaceFile(workspace, path), _STREAM_BUFFER)


def make_error_result(text: str) -> ToolResult:
    """Make an error result; the text should name the problem and the remedy."""
    return ToolResult(text, error=True)


def preview_result(arguments: Mapping[str, Any], result: ToolResult) -> list[PreviewLine]:
    return [("", line) for line in result.text.splitlines()]
