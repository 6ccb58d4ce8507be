"""The disk space that the isolated workspaces of a session may take."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from threading import Lock

from ....errors import WorkspaceError

DEFAULT_BYTES = 4096 << 20

_REST = 20
"""Seconds between two measurements, for each second that one takes: they cost at most 5 %."""

_BLOCK = 512
"""Bytes of one unit in the facts about a file."""


class Quota:
    """Limit of the disk space of a folder. Nothing is deleted to keep it.

    Arguments:
        folder: folder of the session. max_bytes: the limit.
    """

    def __init__(self, folder: str, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._folder = folder
        self._lock = Lock()
        self._used = 0
        self._next = 0.0

    def check(self, needed: int) -> None:
        """Check that a new workspace fits, and count it. Raises WorkspaceError if it does not fit.

        Arguments:
            needed: its bytes.
        """
        with self._lock:
            if self._used + needed > self.max_bytes or time.monotonic() >= self._next:
                self._measure()
            if self._used + needed > self.max_bytes:
                raise WorkspaceError(
                    f"the isolated workspaces of this session take {_to_mb(self._used)} MiB; one "
                    f"more of {_to_mb(needed)} MiB would pass the limit of "
                    f"{_to_mb(self.max_bytes)} MiB",
                    remedy="Wait until other children have ended, set isolated_mb higher, or let "
                    "the run share the folder.",
                )
            self._used += needed

    def _measure(self) -> None:
        start = time.monotonic()
        self._used = measure_folder(self._folder)
        end = time.monotonic()
        self._next = end + (end - start) * _REST


def measure_folder(folder: str) -> int:
    """Return the bytes that the files of a folder take on the disk."""
    total = 0
    left = [folder]
    while left:
        # A folder may have been removed meanwhile, be unreadable, or lie too deep for a path.
        with suppress(OSError), os.scandir(left.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
    return total


def _to_mb(size: int) -> str:
    return f"{-(-size // (1 << 20)):,}"
