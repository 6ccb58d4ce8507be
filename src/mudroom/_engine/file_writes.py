"""File writes of tools: recorded before they happen (S3), refused after the run's end (S8)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from hashlib import sha256
from typing import Any

from .._core.ports import FileInfo, Workspace
from ..errors import WorkspaceError

_BLOCK_SIZE = 1 << 20
"""Bytes read at once to hash a file."""


class RecordedWorkspace:
    """A workspace that announces each `replace` before it happens.

    Arguments:
        before_write: called with path and sha256 before and after. If it raises, nothing is
            written.
        after_write: called when the write is done or has failed.
    """

    def __init__(
        self,
        inner: Workspace,
        before_write: Callable[[str, str, str], None],
        after_write: Callable[[], None],
    ) -> None:
        self._inner = inner
        self._before_write = before_write
        self._after_write = after_write

    @property
    def root(self) -> str:
        """Absolute path of the folder."""
        return self._inner.root

    def locate(self, path: str) -> str:
        """Return a path relative to the root."""
        return self._inner.locate(path)

    def stat(self, path: str) -> FileInfo:
        """Return facts about a file."""
        return self._inner.stat(path)

    def open(self, path: str) -> int:
        """Open a file for reading and return its file descriptor."""
        return self._inner.open(path)

    def replace(self, path: str, data: bytes, *, mode: int | None = None) -> bool:
        """Write a whole file. Return True if the file is new."""
        located = self._inner.locate(path)
        self._before_write(located, hash_file(self._inner, located), sha256(data).hexdigest())
        try:
            return self._inner.replace(path, data, mode=mode)
        finally:
            self._after_write()

    def sweep(self, path: str) -> None:
        """Remove temporary files of an interrupted `replace`."""
        self._inner.sweep(path)

    def walk(self, path: str = ".", *, ignored: bool = False) -> Iterator[FileInfo]:
        """Yield the files below a folder."""
        return self._inner.walk(path, ignored=ignored)


class WriteBarrier:
    """Writes of one run in other threads.

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
    try:
        descriptor = workspace.open(path)
    except WorkspaceError:
        return ""
    digest = sha256()
    with os.fdopen(descriptor, "rb") as file:
        while block := file.read(_BLOCK_SIZE):
            digest.update(block)
    return digest.hexdigest()


def run_from_any_thread(
    loop: asyncio.AbstractEventLoop,
    coroutine: Callable[[], Coroutine[Any, Any, None]],
    on_loop: Callable[[], None],
) -> None:
    """Run a coroutine on the loop and wait for it.

    In the loop's own thread call `on_loop` instead.
    """
    try:
        current = asyncio.get_running_loop()
    except RuntimeError:
        current = None
    if current is loop:
        on_loop()
    else:
        asyncio.run_coroutine_threadsafe(coroutine(), loop).result()
