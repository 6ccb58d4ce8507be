"""Files that calls change: announced first, so that a crash leaves no doubt what happened (S3), and refused after a cancel (S8)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from .._core.ports import Workspace
from ..errors import WorkspaceError


class RecordedWorkspace:
    """A workspace whose every `replace` is announced, with hashes, before it happens.

    Arguments:
        inner: the workspace. announce: (path, before, after); durable when it returns, or raises, and then nothing is changed.
        made: called when what was announced is done, or has failed.
    """

    def __init__(
        self, inner: Workspace, announce: Callable[[str, str, str], None], made: Callable[[], None]
    ) -> None:
        self._inner, self._announce, self._made = inner, announce, made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def replace(self, path: str, data: bytes, *, mode: int | None = None) -> bool:
        """Write a whole file at once, as the workspace does."""
        located = self._inner.locate(path)
        self._announce(located, hash_file(self._inner, located), sha256(data).hexdigest())
        try:
            return self._inner.replace(path, data, mode=mode)
        finally:
            self._made()


class WriteBarrier:
    """What a run changes in other threads: nothing begins once it is closed, and closing waits for what has begun (S8)."""

    def __init__(self) -> None:
        self._under_way, self._closed = 0, False
        self._idle: asyncio.Event | None = None

    def enter(self, path: str) -> None:
        """Begin a change. Raises WorkspaceError when it is too late; pairs with `leave`."""
        if self._closed:
            raise WorkspaceError("the run has ended", where=path, remedy="Nothing was written.")
        self._under_way += 1

    def leave(self) -> None:
        """A change is done."""
        self._under_way -= 1
        if self._idle and not self._under_way:
            self._idle.set()

    async def close(self) -> None:
        """Let nothing begin any more, and wait for what is under way."""
        self._closed = True
        if self._under_way:
            self._idle = asyncio.Event()
            await self._idle.wait()


def hash_file(workspace: Workspace, path: str) -> str:
    """sha256 of a file's bytes, "" if there is none that can be read."""
    try:
        descriptor = workspace.open(path)
    except WorkspaceError:
        return ""
    digest = sha256()
    with os.fdopen(descriptor, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def run_from_any_thread(
    loop: asyncio.AbstractEventLoop, record: Callable[[], Any], note: Callable[[], None]
) -> None:
    """Have a coroutine done by the loop, waiting for it; on the loop's own thread, where nothing can wait, `note` instead."""
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    if here is loop:
        note()
    else:
        asyncio.run_coroutine_threadsafe(record(), loop).result()
