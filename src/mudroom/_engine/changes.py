"""Files that calls change: announced first, so that a crash leaves no doubt what happened (S3), and refused after a cancel (S8)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from .._core.ports import Workspace
from ..errors import WorkspaceError


class Announced:
    """A workspace whose every `replace` is announced, with hashes, before it happens.

    Arguments:
        inner: the workspace. announce: (path, before, after); durable when it returns, or raises, and then nothing is changed.
    """

    def __init__(self, inner: Workspace, announce: Callable[[str, str, str], None]) -> None:
        self._inner, self._announce = inner, announce

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def replace(self, path: str, data: bytes, *, mode: int | None = None) -> bool:
        """Write a whole file at once, as the workspace does."""
        located = self._inner.locate(path)
        self._announce(located, fingerprint(self._inner, located), sha256(data).hexdigest())
        return self._inner.replace(path, data, mode=mode)


def fingerprint(workspace: Workspace, path: str) -> str:
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


def from_any_thread(loop: asyncio.AbstractEventLoop, record: Callable[[], Any], note: Callable[[], None]) -> None:
    """Have a coroutine done by the loop, waiting for it; on the loop's own thread, where nothing can wait, `note` instead."""
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    if here is loop:
        note()
    else:
        asyncio.run_coroutine_threadsafe(record(), loop).result()
