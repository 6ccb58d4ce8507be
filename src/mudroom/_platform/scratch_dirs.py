"""Scratch directories: temporary folders that a later process can recognize as abandoned.

The owner holds a lock on its folder, which the kernel releases however the owner dies. So a locked
folder is in use, in whichever container its owner runs, and an unlocked one is abandoned; see
`orphan_cleanup`. Standard library only, because the sandbox daemon imports this module.
"""

from __future__ import annotations

import fcntl
import os

from .patterns import compile_later

SCRATCH_NAME = compile_later(r"mudroom-\d+-[0-9a-f]{12}")
# Levels of folders open at a time while they are removed.
_LEVELS = 50
_OPEN_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ScratchDir:
    """A temporary folder that only this user may enter. As a context manager it yields its path.

    Arguments:
        base: absolute path of the parent folder, "" for the process's temporary folder.

    Raises OSError if it cannot be created.
    """

    def __init__(self, base: str = "") -> None:
        self._owner = os.getpid()
        while True:
            self.path = (
                f"{base or choose_default_base()}/mudroom-{self._owner}-{os.urandom(6).hex()}"
            )
            os.mkdir(self.path, 0o700)
            try:
                self._lock = os.open(self.path, _OPEN_DIR)
            except FileNotFoundError:
                continue  # a clean-up saw the folder before it was locked and removed it
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass  # a clean-up is about to remove it: make another one
            except OSError:
                return  # a file system without locks: no clean-up will touch the folder
            else:
                if os.fstat(self._lock).st_nlink:
                    return
            os.close(self._lock)

    def __enter__(self) -> str:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove the folder and its content, as far as possible.

        Does nothing the second time, or in a process that did not create it, such as a fork.
        """
        if self._lock >= 0 and self._owner == os.getpid():
            remove_dir(self.path, self._lock)
            os.close(self._lock)
            self._lock = -1


def choose_default_base() -> str:
    import tempfile

    return os.path.abspath(tempfile.gettempdir())


def open_abandoned(path: str) -> int | None:
    """Lock an abandoned scratch folder of this user and return its descriptor.

    None if it has an owner, belongs to another user, is a link, or is gone, and always on a file
    system without locks.
    """
    try:
        descriptor = os.open(path, _OPEN_DIR)
    except OSError:
        return None
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def remove_dir(path: str, descriptor: int) -> None:
    try:
        # It works on descriptors, so no link is ever followed.
        while _remove_levels(descriptor, descriptor, _LEVELS):
            pass
        os.rmdir(path)
    except OSError:
        pass  # the next clean-up tries again


def remove_tree(path: str | os.PathLike[str]) -> None:
    """Remove a folder and its content, however deep, as far as possible."""
    try:
        descriptor = os.open(path, _OPEN_DIR)
    except OSError:
        return
    try:
        remove_dir(os.fspath(path), descriptor)
    finally:
        os.close(descriptor)


def _remove_levels(directory: int, top: int, levels: int) -> bool:
    """Remove the content of a folder, moving what is deeper than `levels` to the top.

    Return True if something was moved and has yet to be removed there.
    """
    # A command can nest folders more deeply than a process can open files or recurse.
    has_moved = False
    for name in os.listdir(directory):
        try:
            os.unlink(name, dir_fd=directory)
            continue
        except (IsADirectoryError, PermissionError):
            inner = _open_writable(name, directory)
        try:
            if levels:
                has_moved |= _remove_levels(inner, top, levels - 1)
        finally:
            os.close(inner)
        if levels:
            os.rmdir(name, dir_fd=directory)
        else:
            os.rename(name, os.urandom(16).hex(), src_dir_fd=directory, dst_dir_fd=top)
            has_moved = True
    return has_moved


def _open_writable(name: str, parent: int) -> int:
    """Open a folder and make it writable, even if its mode denies that to its owner."""
    try:
        directory = os.open(name, _OPEN_DIR, dir_fd=parent)
    except PermissionError:
        flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        place = os.open(name, flags, dir_fd=parent)
        try:
            os.chmod(f"/proc/self/fd/{place}", 0o700)
            return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        finally:
            os.close(place)
    os.fchmod(directory, 0o700)
    return directory
