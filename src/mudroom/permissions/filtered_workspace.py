"""Workspace without the files a run may not read: they are neither listed nor opened."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator

from .._core.ports import FileInfo, LinkTarget, SkippedPaths, Workspace, WorkspaceWrapper
from .._platform.path_text import path_from_text, path_to_text
from ..errors import WorkspaceError

FindRefusal = Callable[[str], str]
"""Maps an absolute path to the reason why it may not be read, "" if it may."""


class FilteredWorkspace(WorkspaceWrapper):
    """Workspace port that filters another workspace.

    Arguments:
        find_refusal: called with the name of a file and with the path it leads to.
    """

    def __init__(self, inner: Workspace, find_refusal: FindRefusal) -> None:
        super().__init__(inner)
        self._find_refusal = find_refusal

    @property
    def local(self) -> FilteredWorkspace | None:
        """Access to the open files that may be read."""
        return None if self.inner.local is None else self

    def open(self, path: str) -> int:
        """Open a regular file and return its descriptor.

        The file that was really opened is checked, so replacing a link in between has no effect.
        Raises WorkspaceError if it may not be read.
        """
        if self.inner.local is None:
            raise WorkspaceError(f"{path} is not a file of this machine")
        descriptor = self.inner.local.open(path)
        absolute = os.path.join(self.inner.root, self.inner.locate(path))
        opened = _read_descriptor_path(descriptor, absolute)
        try:
            self._check(path, absolute)
            self._check(path, opened)
        except WorkspaceError:
            os.close(descriptor)
            raise
        return descriptor

    def read_link(self, path: str) -> LinkTarget | None:
        """Return the path in a link, None for anything else."""
        return self.inner.local.read_link(path) if self.inner.local else None

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Read a part of a file. Raises WorkspaceError if it may not be read."""
        if self.inner.local is None:
            self._check(path, os.path.join(self.inner.root, self.inner.locate(path)))
            return self.inner.read(path, offset, size)
        with os.fdopen(self.open(path), "rb") as file:
            file.seek(offset)
            return file.read(size)

    def _check(self, path: str, absolute: str) -> None:
        why = self._find_refusal(absolute)
        if why:
            raise WorkspaceError(f"{path} may not be read: {why}", remedy="Do without it.")

    def walk(
        self, path: str = ".", *, ignored: bool = False, skipped: list[str] | None = None
    ) -> Iterator[FileInfo]:
        """Yield the readable files below a folder."""
        infos = self.inner.walk(path, ignored=ignored, skipped=skipped)
        return self._filter(path, infos, skipped)

    def walk_entries(
        self, path: str = ".", *, ignored: bool = False, skipped: list[str] | None = None
    ) -> Iterator[FileInfo]:
        """Yield everything below a folder, without files that may not be read."""
        infos = self.inner.walk_entries(path, ignored=ignored, skipped=skipped)
        return self._filter(path, infos, skipped)

    def _filter(
        self, path: str, infos: Iterator[FileInfo], skipped: list[str] | None
    ) -> Iterator[FileInfo]:
        """Yield the readable files among those below a folder; count the others.

        Links are not followed, but the folder itself may be reached through one.
        """
        start = os.path.join(self.inner.root, self.inner.locate(path))
        real_start = path_to_text(os.path.realpath(path_from_text(start)))
        for info in infos:
            absolute = os.path.join(self.inner.root, info.path)
            real = real_start + absolute[len(start) :]
            if self._find_refusal(absolute) or (real != absolute and self._find_refusal(real)):
                if isinstance(skipped, SkippedPaths) and not stat.S_ISDIR(info.mode):
                    skipped.refused += 1
                continue
            yield info


def _read_descriptor_path(descriptor: int, path: str) -> str:
    """Return the path of an open file; where procfs is missing, the resolved path."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return os.path.realpath(path)
