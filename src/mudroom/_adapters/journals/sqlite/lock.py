"""The writer's lock of a journal file: `<file>.lock`, which contains its process id."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from ...._core.ports.journal import make_busy_error

# More than one, because `find_writer_pid` holds a shared lock for a moment.
_ATTEMPTS = 3

# Seconds.
_ATTEMPT_DELAY = 0.01


def lock(path: Path, attempts: int = _ATTEMPTS) -> int:
    """Lock a journal file for writing; return the locked descriptor. Raises JournalBusy."""
    lock_path = _lock_path(path)
    while True:
        descriptor = os.open(lock_path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = _read_pid(descriptor)
            os.close(descriptor)
            attempts -= 1
            if attempts:
                time.sleep(_ATTEMPT_DELAY)
                continue
            raise make_busy_error(f"process {pid}", str(path)) from None
        if _is_file(descriptor, lock_path):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
            return descriptor
        # The previous writer removed the file between our open and our flock: try again.
        os.close(descriptor)


def unlock(path: Path, descriptor: int) -> None:
    # Removed while still locked, so that no two processes can each hold a lock.
    with suppress(OSError):
        _lock_path(path).unlink()
    os.close(descriptor)


def find_writer_pid(path: Path) -> str:
    """Return the id of the process that writes a journal file, "" if there is none."""
    try:
        descriptor = os.open(_lock_path(path), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return ""
    except BlockingIOError:
        return _read_pid(descriptor)
    finally:
        os.close(descriptor)


def _read_pid(descriptor: int) -> str:
    return os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _is_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
