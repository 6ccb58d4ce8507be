"""Files as streams, one lock per file, look-alike names, and texts for results."""

from __future__ import annotations

import io
import os
import stat
import threading
import time
import unicodedata
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Any, BinaryIO

from ..._core.ports import Workspace
from ..._core.tools import PreviewLine, ToolResult
from ...errors import WorkspaceError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


MAX_SECONDS = 0.5  # the search only makes an error clearer, so it must be quick


@contextmanager
def naming_similar_files(workspace: Workspace, path: str) -> Generator[None]:
    """Add a similar name to the error for a missing file.

    The workspace lists only files the run may read, so no other name is disclosed.
    """
    try:
        yield
    except WorkspaceError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        similar = find_similar_file(workspace, path)
        if similar is None:
            raise
        raise WorkspaceError(
            f"{path} does not exist, but {similar} does: {_describe_difference(path, similar)}",
            remedy="Use that name exactly as it is.",
        ) from error.__cause__


def find_similar_file(workspace: Workspace, path: str) -> str | None:
    """Find a file or folder whose name differs only in case and the form of its letters."""
    deadline = time.monotonic() + MAX_SECONDS
    wanted = fold_name(path)
    depth = path.count("/") + 1
    folder = os.path.dirname(path)
    while folder and not is_folder(workspace, folder):
        if folder == os.path.dirname(folder):
            return None  # the root: the path leads outside the workspace
        folder = os.path.dirname(folder)
    infos = workspace.walk(folder or ".", ignored=True)
    with suppress(WorkspaceError):  # the error for the missing file says enough
        for info in takewhile(lambda _: time.monotonic() < deadline, infos):
            named = "/".join(info.path.split("/")[:depth])
            if fold_name(named) == wanted and named != path:
                return named
    return None


def find_other_form(workspace: Workspace, path: str) -> str | None:
    """Find a file whose name looks the same but has letters composed differently."""
    for form in ("NFC", "NFD"):
        other = unicodedata.normalize(form, path)
        if other != path:
            with suppress(WorkspaceError):
                workspace.stat(other)
                return other
    return None


def fold_name(path: str) -> str:
    """Fold away differences between similar names: case, and the form of letters."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _describe_difference(path: str, similar: str) -> str:
    if unicodedata.normalize("NFC", path) != unicodedata.normalize("NFC", similar):
        return "upper and lower case differ"
    form = "decomposed" if unicodedata.is_normalized("NFD", similar) else "composed"
    return f"it looks the same, but its letters with accents are {form} ({similar!a})"


def is_folder(workspace: Workspace, path: str) -> bool:
    try:
        return stat.S_ISDIR(workspace.stat(path).mode)
    except WorkspaceError:
        return False


_STREAM_BUFFER = 1 << 18  # bytes
MAX_PROPOSED_BYTES = 1 << 20  # changes to larger files are not shown as a diff
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
    return ToolResult(text, error=True)


def preview_result(arguments: Mapping[str, Any], result: ToolResult) -> list[PreviewLine]:
    return [("", line) for line in result.text.splitlines()]
