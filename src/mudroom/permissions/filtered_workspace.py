"""Workspace without the files a run may not read: they are neither listed nor opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from .._core.ports import FileInfo, Workspace
from ..errors import WorkspaceError

FindRefusal = Callable[[str], str]
"""Maps an absolute path to the reason why it may not be read, "" if it may."""


class FilteredWorkspace:
    """Workspace port that filters another workspace.

    Arguments:
        find_refusal: called with the name of a file and with the path it leads to.
    """

    def __init__(self, inner: Workspace, find_refusal: FindRefusal) -> None:
        self._inner = inner
        self._find_refusal = find_refusal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open(self, path: str) -> int:
        """Open a regular file and return its descriptor.

        The file that was really opened is checked, so replacing a link in between has no effect.
        Raises WorkspaceError if it may not be read.
        """
        descriptor = self._inner.open(path)
        absolute = os.path.join(self._inner.root, self._inner.locate(path))
        opened = _path_of_descriptor(descriptor, absolute)
        if why := self._find_refusal(absolute) or self._find_refusal(opened):
            os.close(descriptor)
            raise WorkspaceError(f"{path} may not be read: {why}", remedy="Do without it.")
        return descriptor

    def walk(self, path: str = ".", *, ignored: bool = False) -> Iterator[FileInfo]:
        """Yield the readable files below a folder.

        Links are not followed, but the folder itself may be reached through one.
        """
        start = os.path.join(self._inner.root, self._inner.locate(path))
        real_start = os.path.realpath(start)
        for info in self._inner.walk(path, ignored=ignored):
            absolute = os.path.join(self._inner.root, info.path)
            if self._find_refusal(absolute):
                continue
            if real_start != start and self._find_refusal(real_start + absolute[len(start) :]):
                continue
            yield info


def _path_of_descriptor(descriptor: int, path: str) -> str:
    """Return the path of an open file; where procfs is missing, the resolved path."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return os.path.realpath(path)
