"""Lock file of a process that claims tasks. The kernel releases it when the process ends.

So a claim ends with its process, without a clock: a process that sleeps keeps its tasks, and a
killed one loses them at once.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from contextlib import suppress
from pathlib import Path

from .._platform.private_files import make_private_folder


class OwnerLock:
    """The lock of this process on a board.

    `name`: the name of its lock file, recorded with each claim.
    """

    def __init__(self, board: Path) -> None:
        folder = _get_folder(board)
        make_private_folder(folder)
        _remove_free_locks(folder)
        while True:
            self.name = uuid.uuid4().hex
            self._path = folder / self.name
            flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            if self._path.exists():
                return
            # Another process removed the file between our open and our flock.
            os.close(self._descriptor)

    def release(self) -> None:
        """Release the lock and remove its file."""
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def _remove_free_locks(folder: Path) -> None:
    """Remove the lock files of processes that have ended."""
    for path in list(folder.iterdir()):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(descriptor)


def is_owner_alive(board: Path, name: str) -> bool:
    """Return whether the process that holds this lock is running."""
    try:
        descriptor = os.open(_get_folder(board) / name, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # A shared lock, so that two processes that look at the same time do not see each other.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _get_folder(board: Path) -> Path:
    return board.with_name(board.name + ".owners")
