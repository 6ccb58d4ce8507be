"""Environment ports: the files that a run sees (Workspace) and where its commands run (Sandbox)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from msgspec import Struct


class CommandResult(Struct, frozen=True):
    """End of a command.

    Arguments:
        code: exit code; negative: number of the signal.
        timed_out: true if the timeout ended the command.
    """

    code: int
    timed_out: bool = False


class Sandbox(Protocol):
    """A place to run commands."""

    @property
    def tier(self) -> str:
        """Protection level: "full", "file", "ask" or "off"."""
        ...

    async def run(
        self, command: str, *, timeout: float, sink: Callable[[bytes], None]
    ) -> CommandResult:
        """Run a bash command in the workspace.

        Returns when the command's own process ends, or after the timeout; all descendants are
        killed first. A cancel kills them, too.

        Arguments:
            timeout: seconds.
            sink: receives the bytes of stdout and stderr as they arrive.
        """
        ...

    def close(self) -> None:
        """Stop helper processes; commands that still run are not killed."""
        ...


class FileInfo(Struct, frozen=True):
    """Facts about a file.

    Arguments:
        path: relative to the workspace.
        size: bytes. mtime: seconds since 1970. mode: permission bits.
    """

    path: str
    size: int
    mtime: float
    mode: int


class Workspace(Protocol):
    """The files that a run sees. Paths are opened beneath the root; others raise WorkspaceError."""

    @property
    def root(self) -> str:
        """Absolute path of the folder."""
        ...

    def locate(self, path: str) -> str:
        """Return a path relative to the root, "." for the root. A spill file stays absolute."""
        ...

    def stat(self, path: str) -> FileInfo:
        """Return facts about a regular file or a folder (`mode` tells which).

        Raises WorkspaceError for anything else.
        """
        ...

    def open(self, path: str) -> int:
        """Open a regular file for reading and return its file descriptor."""
        ...

    def replace(self, path: str, data: bytes, *, mode: int | None = None) -> bool:
        """Write a whole file atomically and create missing folders.

        Return True if the file is new.
        """
        ...

    def sweep(self, path: str) -> None:
        """Remove temporary files that an interrupted `replace` of this path left."""
        ...

    def walk(self, path: str = ".", *, ignored: bool = False) -> Iterator[FileInfo]:
        """Yield the files below a folder; does not follow links.

        Arguments:
            ignored: True includes files that git ignores.
        """
        ...
