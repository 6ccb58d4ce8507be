"""File writes of tools: recorded before they happen (S3), refused after the run's end (S8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from hashlib import sha256
from typing import Any

from .._core.ports import FileInfo, LocalFiles, Workspace
from ..errors import WorkspaceError

_BLOCK_SIZE = 1 << 20
"""Bytes read at once to hash a file."""


class RecordedWorkspace:
    """A workspace that announces each write and removal before it happens.

    Arguments:
        before_write: called with path, sha256 before and after ("" for no file). If it raises,
            nothing is written.
        after_write: called with the path when the write is done, with "" when it has failed.
    """

    def __init__(
        self,
        inner: Workspace,
        before_write: Callable[[str, str, str], None],
        after_write: Callable[[str], None],
    ) -> None:
        self._inner = inner
        self._before_write = before_write
        self._after_write = after_write

    @property
    def root(self) -> str:
        """Absolute path of the folder."""
        return self._inner.root

    @property
    def local(self) -> LocalFiles | None:
        """Access to the open files."""
        return self._inner.local

    def locate(self, path: str) -> str:
        """Return a path relative to the root."""
        return self._inner.locate(path)

    def stat(self, path: str) -> FileInfo:
        """Return facts about a file."""
        return self._inner.stat(path)

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Read a part of a file."""
        return self._inner.read(path, offset, size)

    def write(self, path: str, data: bytes, *, mode: int | None = None) -> bool:
        """Write a whole file. Return True if the file is new."""
        located = self._inner.locate(path)
        self._before_write(located, hash_file(self._inner, located), sha256(data).hexdigest())
        written = ""
        try:
            is_new = self._inner.write(path, data, mode=mode)
            written = located
        finally:
            self._after_write(written)
        return is_new

    def remove(self, path: str) -> None:
        """Remove a file."""
        located = self._inner.locate(path)
        self._before_write(located, hash_file(self._inner, located), "")
        removed = ""
        try:
            self._inner.remove(path)
            removed = located
        finally:
            self._after_write(removed)

    def remove_unfinished(self, path: str) -> None:
        """Remove temporary files of an interrupted write."""
        self._inner.remove_unfinished(path)

    def walk(
        self, path: str = ".", *, ignored: bool = False, skipped: list[str] | None = None
    ) -> Iterator[FileInfo]:
        """Yield the files below a folder."""
        return self._inner.walk(path, ignored=ignored, skipped=skipped)


class WriteBarrier:
    """Counter of the file writes of one run, which run in other threads.

    After `close` no write starts; `close` waits for running ones (S8).
    """

    def __init__(self) -> None:
        self._running = 0
        self._is_closed = False
        self._idle: asyncio.Event | None = None

    def enter(self, path: str) -> None:
        """Start a write; `leave` ends it. Raises WorkspaceError if the barrier is closed."""
        if self._is_closed:
            raise WorkspaceError("the run has ended", where=path, remedy="Nothing was written.")
        self._running += 1

    def leave(self) -> None:
        """End a write."""
        self._running -= 1
        if self._idle and not self._running:
            self._idle.set()

    async def close(self) -> None:
        """Refuse new writes and wait for running ones."""
        self._is_closed = True
        if self._running:
            self._idle = asyncio.Event()
            await self._idle.wait()


def hash_file(workspace: Workspace, path: str) -> str:
    """Return the sha256 of a file's bytes, "" if it does not exist or cannot be read."""
    digest = sha256()
    offset = 0
    try:
        while block := workspace.read(path, offset, _BLOCK_SIZE):
            digest.update(block)
            offset += len(block)
            if len(block) < _BLOCK_SIZE:
                break
    except WorkspaceError:
        return ""
    return digest.hexdigest()


def run_from_any_thread(
    loop: asyncio.AbstractEventLoop,
    coroutine: Callable[[], Coroutine[Any, Any, None]],
    on_loop: Callable[[], None],
) -> None:
    """Run a coroutine on the loop from another thread, and wait for it.

    Arguments:
        on_loop: called instead if this is the thread of the loop, which must not wait.
    """
    try:
        current = asyncio.get_running_loop()
    except RuntimeError:
        current = None
    if current is loop:
        on_loop()
    else:
        asyncio.run_coroutine_threadsafe(coroutine(), loop).result()
