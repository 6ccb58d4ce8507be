"""The lock file of a process that claims tasks, released by the kernel when the process ends.

That way a claim ends with its process and needs no clock: a suspended process keeps its tasks, and
a killed one loses them at once.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from contextlib import suppress
from pathlib import Path

from ..._platform.private_files import make_private_folder

# The longest that another process holds a lock just to look at it, under heavy load.
_LOOK_SECONDS = 2.0


class OwnerLock:
    """This process's lock on a board.

    Arguments:
        name: name of the lock, which lets a resumed session hold its earlier process's lock again.
            Without a name, or if another process holds it, the lock gets a unique name.

    Attributes:
        name: the name of its lock file, recorded with each claim.
    """

    def __init__(self, board: Path, name: str = "") -> None:
        folder = _get_folder(board)
        make_private_folder(folder)
        _remove_free_locks(folder, name)
        while True:
            self.name = name or uuid.uuid4().hex
            self._path = folder / self.name
            self._descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            if not _lock_soon(self._descriptor):
                name = ""
            elif _is_file_of(self._path, self._descriptor):
                return
            # Taken, or removed by another process between our open and our flock: try again.
            os.close(self._descriptor)

    def release(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def _lock_soon(descriptor: int) -> bool:
    """Lock a file. Return False if another process holds it for longer than a look takes."""
    deadline = time.monotonic() + _LOOK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)


def _is_file_of(path: Path, descriptor: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    return False


def _remove_free_locks(folder: Path, name: str) -> None:
    """Remove the lock files of ended processes, except the one with this name."""
    for path in [path for path in folder.iterdir() if path.name != name]:
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                # Raises an OSError if a running process holds the lock, so its file stays.
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
        # Shared, so that two processes that look at once do not take each other for the owner.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _get_folder(board: Path) -> Path:
    return board.with_name(board.name + ".owners")
