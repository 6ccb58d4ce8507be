"""The folder of journal files: lists, locks and deletes them without opening a database.

The writer of a journal holds the lock `<file>.lock`, which contains its process id.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from ...._core.ports import SessionInfo
from ...._core.ports.journal import make_busy_error
from ...._platform.private_files import delete_local_files
from ...._platform.regular_files import is_open_file
from ....errors import JournalBusy

_SUFFIX = ".db"
_LOG_SUFFIX = ".db-wal"
# No process takes longer to create a file.
_CREATION_SECONDS = 60.0


def get_session_path(home: str | Path, session: str) -> Path:
    return Path(home, "sessions", session + _SUFFIX)


def list_sessions(home: str | Path) -> list[SessionInfo]:
    """List the sessions of a state folder, most recently written first, without empty files."""
    stats: dict[str, os.stat_result] = {}
    with suppress(FileNotFoundError), os.scandir(Path(home, "sessions")) as entries:
        for entry in entries:
            if entry.name.endswith((_SUFFIX, _LOG_SUFFIX)):
                with suppress(FileNotFoundError):  # a log disappears when its session closes
                    stats[entry.name] = entry.stat()
    infos = [
        _make_info(name.removesuffix(_SUFFIX), stat, stats.get(f"{name}-wal"))
        for name, stat in stats.items()
        if name.endswith(_SUFFIX) and stat.st_size
    ]
    return sorted(infos, key=lambda info: info.modified, reverse=True)


def read_info(path: Path) -> SessionInfo:
    log: os.stat_result | None = None
    with suppress(FileNotFoundError):
        log = path.with_name(f"{path.name}-wal").stat()
    return _make_info(path.stem, path.stat(), log)


def _make_info(session: str, file: os.stat_result, log: os.stat_result | None) -> SessionInfo:
    # Readers leave an empty log behind, so its time does not show a write.
    if log is None or not log.st_size:
        return SessionInfo(id=session, modified=file.st_mtime, size=file.st_size)
    modified = max(file.st_mtime, log.st_mtime)
    return SessionInfo(id=session, modified=modified, size=file.st_size + log.st_size)


def delete_session(path: Path) -> None:
    """Delete a session with its outputs, file versions and workspaces. Raises JournalBusy."""
    descriptor = lock(path)
    try:
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        delete_local_files(path.parent.parent, path.stem)
    finally:
        unlock(path, descriptor)


def remove_half_created(path: Path) -> None:
    """Delete journal files left half-created by processes that died.

    Searches the folder of a journal about to be created, whose own files are locked and stay.
    """
    names = set(os.listdir(path.parent))
    created = {name.removesuffix(".new") for name in names if name.endswith(f"{_SUFFIX}.new")}
    locked = {name.removesuffix(".lock") for name in names if name.endswith(f"{_SUFFIX}.lock")}
    # The folder may be on a machine with another clock, so file times are compared with each other.
    now = _read_change_time(path)
    for name in created | (locked - names):
        other = path.with_name(name)
        if name == path.name or _read_change_time(other) > now - _CREATION_SECONDS:
            continue  # a process may be creating it right now, and would find it locked
        # Busy means that a process has it open. There may be many, so do not wait for any.
        with suppress(JournalBusy):
            descriptor = lock(other, attempts=1)
            other.with_name(f"{name}.new").unlink(missing_ok=True)
            unlock(other, descriptor)


def _read_change_time(path: Path) -> float:
    times = [0.0]
    for suffix in (".lock", ".new"):
        with suppress(FileNotFoundError):  # removed or published by its process
            times.append(path.with_name(path.name + suffix).stat().st_mtime)
    return max(times)


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
        if is_open_file(lock_path, descriptor):
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
    """Find the id of the process writing a journal file; "" if there is none."""
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
