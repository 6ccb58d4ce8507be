"""File writes of tools: recorded before they happen (S3), refused after the run's end (S8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from hashlib import sha256
from stat import S_IFMT, S_ISLNK
from typing import Any

from .._core.ports import ContentCheck, Workspace, WorkspaceWrapper
from ..errors import WorkspaceError
from .changes.content_hashes import hash_entry, hash_file, hash_link


class RecordedWorkspace(WorkspaceWrapper):
    """A workspace that announces each write and removal before it happens.

    Arguments:
        before_write: called with path, sha256 before and after ("" for no file). If it raises,
            nothing is written.
        after_write: called with path and success when the write has ended.
    """

    def __init__(
        self,
        inner: Workspace,
        before_write: Callable[[str, str, str], None],
        after_write: Callable[[str, bool], None],
    ) -> None:
        super().__init__(inner)
        self._before_write = before_write
        self._after_write = after_write

    def write(
        self,
        path: str,
        data: bytes,
        *,
        mode: int | None = None,
        check: ContentCheck | None = None,
    ) -> bool:
        """Write a whole file. Return True if the file is new."""
        after = sha256(data).hexdigest()
        if S_ISLNK(mode or 0):
            after = hash_link(data)
        with self._announce(path, after, follows=not S_IFMT(mode or 0)):
            return self.inner.write(path, data, mode=mode, check=check)

    def remove(self, path: str, *, check: ContentCheck | None = None) -> None:
        """Remove a file."""
        with self._announce(path, "", follows=False):
            self.inner.remove(path, check=check)

    @contextmanager
    def _announce(self, path: str, after: str, *, follows: bool) -> Generator[None]:
        located = self.inner.locate(path)
        before = hash_file(self.inner, located) if follows else hash_entry(self.inner, located)
        self._before_write(located, before, after)
        is_written = False
        try:
            yield
            is_written = True
        finally:
            self._after_write(located, is_written)


class WriteBarrier:
    """Counter of the file writes of one run, which run in other threads.

    After `close` no write starts; `close` waits for running ones (S8).

    Attributes:
        loop: event loop of the run.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
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


def run_from_any_thread(
    loop: asyncio.AbstractEventLoop,
    coroutine: Callable[[], Coroutine[Any, Any, None]],
    on_loop: Callable[[], object],
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
