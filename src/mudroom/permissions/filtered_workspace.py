"""The workspace as a run may see it: files it may not read are neither listed nor opened, whatever they are called by."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from .._core.ports import FileInfo, Workspace
from ..errors import WorkspaceError

FindRefusal = Callable[[str], str]
"""An absolute path -> why it may not be read, "" if it may."""


class FilteredWorkspace:
    """The port Workspace, over another one.

    Arguments:
        inner: the workspace. barring: see Barring; it is asked about names and about what they lead to.
    """

    def __init__(self, inner: Workspace, find_refusal: FindRefusal) -> None:
        self._inner, self._find_refusal = inner, find_refusal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open(self, path: str) -> int:
        """A descriptor of a regular file. What is asked about is the file that was opened: no link swapped in meanwhile helps."""
        descriptor = self._inner.open(path)
        whole = os.path.join(self._inner.root, self._inner.locate(path))
        if why := self._find_refusal(whole) or self._find_refusal(
            _path_of_descriptor(descriptor, whole)
        ):
            os.close(descriptor)
            raise WorkspaceError(f"{path} may not be read: {why}", remedy="Do without it.")
        return descriptor

    def walk(self, path: str = ".", *, ignored: bool = False) -> Iterator[FileInfo]:
        """Files below a folder, without those that may not be read. Links are not followed, but the folder may be behind one."""
        start = os.path.join(self._inner.root, self._inner.locate(path))
        real = os.path.realpath(start)
        for info in self._inner.walk(path, ignored=ignored):
            whole = os.path.join(self._inner.root, info.path)
            if not self._find_refusal(whole) and not (
                real != start and self._find_refusal(real + whole[len(start) :])
            ):
                yield info


def _path_of_descriptor(descriptor: int, path: str) -> str:
    """Where an open file lies; by its path where the system does not tell."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return os.path.realpath(path)
