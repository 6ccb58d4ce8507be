"""Temporary folders: what a killed process leaves behind, a later one removes. Standard library only.

The owner holds a lock on the folder, which the kernel takes from him when he dies, however he dies. So a folder with a lock is
left alone whoever holds it, in whichever container, and one without has no owner any more.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import time
from collections.abc import Iterator
from functools import cache
from itertools import islice

_NAME = re.compile(r"mudroom-\d+-[0-9a-f]{12}")
_AT_ONCE, _ROUNDS = 64, 5
_READ_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ScratchDir:
    """A folder that only this user may enter; as a context it gives its path, and is gone after it.

    Arguments:
        base: absolute path of the folder it is made in, "" for this process's folder of temporary files.

    Raises OSError where it cannot be made.
    """

    def __init__(self, base: str = "") -> None:
        self._owner = os.getpid()
        while True:
            self.path = f"{base or default_base()}/mudroom-{self._owner}-{os.urandom(6).hex()}"
            os.mkdir(self.path, 0o700)
            self._lock = os.open(self.path, _READ_FOLDER)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass  # it is being swept away: the name was there before it had an owner
            except OSError:
                return  # a file system without locks: no sweep will touch it
            else:
                if os.fstat(self._lock).st_nlink:
                    return
            os.close(self._lock)

    def __enter__(self) -> str:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove it with all that is in it, as far as that can be; in the process that made it, and once."""
        if self._lock >= 0 and self._owner == os.getpid():
            _remove(self.path, self._lock)
            os.close(self._lock)
            self._lock = -1


def default_base() -> str:
    """Absolute path of this process's folder of temporary files."""
    import tempfile

    return os.path.abspath(tempfile.gettempdir())


@cache
def remove_orphans_once() -> None:
    """As `sweep_beside`, the first time this is called."""
    remove_orphans_in_background()


def remove_orphans_in_background() -> None:
    """Sweep where temporary folders usually lie, beside all else; twice, for who was just being born at the first time."""
    import threading

    threading.Thread(target=_sweep_twice, daemon=True).start()


def _sweep_twice() -> None:
    for pause in (0.0, 0.2):
        time.sleep(pause)
        for base in {default_base(), "/tmp"}:
            remove_orphans(base)


def remove_orphans(base: str) -> None:
    """Remove this user's temporary folders in `base` whose owners have died, and kill the processes whose environment names them.

    What cannot be removed stays; at most some dozens go at once.
    """
    dead: dict[str, int] = {}
    try:
        dead.update(islice(_dead(base), _AT_ONCE))
        if dead:
            _end(tuple(dead))
        for path, lock in dead.items():
            _remove(path, lock)
    finally:
        for lock in dead.values():
            os.close(lock)


def _dead(base: str) -> Iterator[tuple[str, int]]:
    """Folders without an owner, and the lock that is on them from now."""
    try:
        names = [name for name in os.listdir(base) if _NAME.fullmatch(name)]
    except OSError:
        return
    for name in names:
        path = os.path.join(base, name)
        try:
            lock = os.open(path, _READ_FOLDER)
        except OSError:
            continue  # another user's, a link, or gone
        if os.fstat(lock).st_uid == os.geteuid() and _locked(lock):
            yield path, lock
        else:
            os.close(lock)


def _locked(folder: int) -> bool:
    """Whether nobody had the lock, so that it is ours now. Where a file system has no locks it never is."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _end(folders: tuple[str, ...]) -> None:
    """Kill who was started with one of these folders in a variable, and who they start meanwhile; never our own kin."""
    marks = [
        f"={folder}/".encode()
        for folder in folders
        if not any(value.startswith(f"{folder}/") for value in os.environ.values())
    ]
    for _ in range(_ROUNDS):
        if sum(_killed(int(name), marks) for name in _numbers()) == 0:
            return


def _numbers() -> list[str]:
    try:
        return [
            name for name in os.listdir("/proc") if name.isdecimal() and int(name) != os.getpid()
        ]
    except OSError:
        return []  # not Linux


def _killed(pid: int, marks: list[bytes]) -> bool:
    """Kill it if it bears a mark: the one that was looked at, and no other that has its number by then."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
        if not any(mark in environment for mark in marks):
            return False
        signal.pidfd_send_signal(process, signal.SIGKILL)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(process)


def _remove(path: str, folder: int) -> None:
    try:
        _empty(folder)
        os.rmdir(path)
    except (OSError, RecursionError):
        pass  # the next sweep tries again


def _empty(folder: int) -> None:
    """Remove all that is in the folder, through descriptors: no link is followed, whoever puts one there meanwhile."""
    for name in os.listdir(folder):
        try:
            os.unlink(name, dir_fd=folder)
        except (IsADirectoryError, PermissionError):
            inner = _opened(name, folder)
            try:
                _empty(inner)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=folder)


def _opened(name: str, folder: int) -> int:
    """Descriptor of a folder in it, also of one that was closed to its own owner."""
    try:
        inner = os.open(name, _READ_FOLDER, dir_fd=folder)
    except PermissionError:
        place = os.open(
            name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder
        )
        try:
            os.chmod(f"/proc/self/fd/{place}", 0o700)
            return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        finally:
            os.close(place)
    os.fchmod(inner, 0o700)
    return inner
