"""Workspace port: the files that a run sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from msgspec import Struct

from ...errors import WorkspaceError

ContentCheck = Callable[[bytes | None], bool]
"""Returns whether a file's content is as expected. It is called with None for no file, and with a
LinkTarget for a link that is not followed.
"""


class LinkTarget(bytes):
    """The path a symbolic link contains."""


class FileChangedError(WorkspaceError):
    """A file is not as a write expected it."""


class FileInfo(Struct, frozen=True):
    """Facts about a file.

    Arguments:
        path: relative to the workspace.
        size: bytes. mtime: seconds since 1970. mode: permission bits.
        ctime: seconds since 1970 of the last change of content, name or mode; 0.0 if unknown.
        ignored: true if git ignores the file; set only by `walk_entries`.
    """

    path: str
    size: int
    mtime: float
    mode: int
    ctime: float = 0.0
    ignored: bool = False


class SkippedPaths(list[str]):
    """Paths a walk could not list, and counts of what else it left out.

    Attributes:
        too_deep: folders below the deepest level listed; not among the paths.
        refused: number of files a rule forbids to read. Their names stay hidden.
    """

    def __init__(self) -> None:
        super().__init__()
        self.too_deep: list[str] = []
        self.refused = 0


class LocalFiles(Protocol):
    """File descriptors of a workspace's files, when they are on this machine."""

    def open(self, path: str) -> int:
        """Open a regular file of the workspace for reading and return its descriptor.

        Raises WorkspaceError for a path that leads outside, even if a link changes meanwhile.
        """
        ...

    def read_link(self, path: str) -> LinkTarget | None:
        """Read a symbolic link of the workspace; None for anything else."""
        ...


class Workspace(Protocol):
    r"""The files a run sees. A path outside the workspace raises WorkspaceError.

    Paths are valid text: a byte of a name that is not UTF-8 is written as \xNN.

    The methods block, so call them in a thread unless the workspace is local and the file small.
    """

    @property
    def root(self) -> str:
        """Absolute path of the folder."""
        ...

    @property
    def local(self) -> LocalFiles | None:
        """Access by file descriptor, None if the files are on another machine."""
        ...

    def locate(self, path: str) -> str:
        """Return a path relative to the root, "." for the root. Spill files stay absolute."""
        ...

    def stat(self, path: str) -> FileInfo:
        """Return facts about a regular file or a folder, told apart by `mode`.

        Raises WorkspaceError for anything else.
        """
        ...

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Read at most `size` bytes of a regular file from `offset`.

        Returns fewer bytes only at the end of the file, b"" past it.
        """
        ...

    def write(
        self, path: str, data: bytes, *, mode: int | None = None, check: ContentCheck | None = None
    ) -> bool:
        """Write a whole file atomically, creating missing folders. Return True if it is new.

        Arguments:
            mode: permission bits; None keeps the old file's. If it includes a file type, a link at
                the path is replaced rather than followed; with S_IFLNK, `data` is the path of a new
                link.
            check: judges the content to be replaced. If it refuses, the file stays unchanged and
                FileChangedError is raised.
        """
        ...

    def remove(self, path: str, *, check: ContentCheck | None = None) -> None:
        """Remove a regular file or a link. `check`: see `write`."""
        ...

    def remove_unfinished(self, path: str) -> None:
        """Remove temporary files left by an interrupted `write` of this path."""
        ...

    def walk(
        self, path: str = ".", *, ignored: bool = False, skipped: list[str] | None = None
    ) -> Iterator[FileInfo]:
        """Yield the regular files below a folder, sorted, without following links.

        Arguments:
            ignored: True includes files that git ignores.
            skipped: receives paths that cannot be listed, for example without permission. A
                SkippedPaths also receives what else was left out.
        """
        ...

    def walk_entries(
        self, path: str = ".", *, ignored: bool = False, skipped: list[str] | None = None
    ) -> Iterator[FileInfo]:
        """Yield everything below a folder, to find changes: files, folders, links, pipes.

        `mode` tells the type. Of `.git`, only the files that determine commits, branches, the index
        and settings are included.

        Arguments:
            ignored: True includes the contents of folders that git ignores; False yields only
                those folders themselves.
            skipped: as for `walk`.
        """
        ...


class WorkspaceWrapper:
    """A workspace that delegates to another one; subclasses override some methods."""

    def __init__(self, inner: Workspace) -> None:
        self.inner = inner

    @property
    def root(self) -> str:
        return self.inner.root

    @property
    def local(self) -> LocalFiles | None:
        return self.inner.local

    def locate(self, path: str) -> str:
        return self.inner.locate(path)

    def stat(self, path: str) -> FileInfo:
        return self.inner.stat(path)

    def read(self, path: str, offset: int, size: int) -> bytes:
        return self.inner.read(path, offset, size)

    def write(
        self, path: str, data: bytes, *, mode: int | None = None, check: ContentCheck | None = None
    ) -> bool:
        return self.inner.write(path, data, mode=mode, check=check)

    def remove(self, path: str, *, check: ContentCheck | None = None) -> None:
        self.inner.remove(path, check=check)

    def remove_unfinished(self, path: str) -> None:
        self.inner.remove_unfinished(path)

    def walk(
        self, path: str = ".", *, ignored: bool = False, skipped: list[str] | None = None
    ) -> Iterator[FileInfo]:
        return self.inner.walk(path, ignored=ignored, skipped=skipped)

    def walk_entries(
        self, path: str = ".", *, ignored: bool = False, skipped: list[str] | None = None
    ) -> Iterator[FileInfo]:
        return self.inner.walk_entries(path, ignored=ignored, skipped=skipped)
