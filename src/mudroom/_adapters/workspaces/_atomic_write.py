"""Atomic writes in an open folder: readers see the old file or the new one, never a part.

A file keeps its owner, extended attributes and other names. Files that a rename would take from
their owner, or from their other names, are the exception.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from contextlib import suppress

from ..._core.ports import ContentCheck
from ..._platform.protected_names import UNFINISHED_PREFIX
from ._checked_rename import remove_checked, replace_checked

_PREFIX = f"{UNFINISHED_PREFIX}-"


def write_atomically(
    folder: int,
    name: str,
    data: bytes,
    old: os.stat_result | None,
    mode: int | None,
    check: ContentCheck | None = None,
) -> None:
    """Write a temporary file, make it durable and rename it over the old one.

    Arguments:
        folder: descriptor. old: facts about the file that is replaced, None for a new file.
        mode, check: see `Workspace.write`.
    """

    if old is not None and mode is None and check is None and has_other_names(old):
        rewrite_in_place(folder, name, data, old)
        return
    temporary = _make_name()
    keeps_owner = write_entry(folder, temporary, data, old, mode, old_name=name)
    if old is not None and mode is None and check is None and not keeps_owner:
        os.unlink(temporary, dir_fd=folder)
        rewrite_in_place(folder, name, data, old)
        return
    try:
        if check is None:
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            replace_checked(folder, temporary, name, check)
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
        os.fsync(folder)
    except BaseException:
        with suppress(FileNotFoundError):  # it has its new name already
            os.unlink(temporary, dir_fd=folder)
        raise


def write_entry(
    folder: int,
    name: str,
    data: bytes,
    old: os.stat_result | None,
    mode: int | None,
    *,
    old_name: str,
    permissions: int = 0o666,
) -> bool:
    """Write a new file or link and make it durable. It is removed again after an error.

    Arguments:
        old: facts about the file whose owner, attributes and mode the new one gets; None if there
            is none. old_name: its name in the folder.
        mode: see `Workspace.write`.
        permissions: of a file with no old one and no mode; the umask takes some of them away.

    Returns False if the file could not be given the owner of the old one.
    """
    if mode is not None and stat.S_ISLNK(mode):
        os.symlink(data, os.fsencode(name), dir_fd=folder)
        return True
    keeps_owner = True
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    # What will be private must not be readable while it is written.
    at_first = permissions if mode is None and old is None else 0o600
    descriptor = os.open(name, flags, at_first, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if old is not None:
                keeps_owner = keep_owner(descriptor, old)
                keep_attributes(descriptor, folder, old_name)
            if mode is None and old is not None:
                mode = stat.S_IMODE(old.st_mode)
            if mode is not None:
                os.fchmod(descriptor, mode & 0o777)
            os.fsync(descriptor)
    except BaseException:
        os.unlink(name, dir_fd=folder)
        raise
    return keeps_owner


def remove_file(folder: int, name: str, check: ContentCheck | None) -> None:
    """Remove a file of an open folder. `check`: see `Workspace.write`."""
    if check is None:
        os.unlink(name, dir_fd=folder)
    else:
        remove_checked(folder, name, _make_name(), check)


def _make_name() -> str:
    return f"{_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"


def remove_temporary_files(folder: int) -> None:
    """Remove the temporary files of ended processes from a folder."""
    for name in os.listdir(folder):
        if name.startswith(_PREFIX) and not _is_in_use(name):
            os.unlink(name, dir_fd=folder)


def _is_in_use(temporary: str) -> bool:
    """Return whether the process that wrote the file still runs."""
    pid = temporary.removeprefix(_PREFIX).partition("-")[0]
    if os.path.exists("/proc/self"):
        return os.path.exists(f"/proc/{pid}")
    return pid == str(os.getpid())


_IN_PLACE_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def has_other_names(old: os.stat_result | None) -> bool:
    """Return whether hard links lead to the same file, which a rename would separate from them."""
    return old is not None and stat.S_ISREG(old.st_mode) and old.st_nlink > 1


def keep_owner(descriptor: int, old: os.stat_result) -> bool:
    """Give a new file the owner and group of an old one. Return whether that is permitted."""
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) == (old.st_uid, old.st_gid):
        return True
    try:
        os.fchown(descriptor, old.st_uid, old.st_gid)
    except PermissionError:
        return False  # only the Unix user root may give a file away
    return True


def keep_attributes(descriptor: int, folder: int, name: str) -> None:
    """Give a new file the extended attributes of an old one: those of users, and access lists.

    A new file has the default access list of its folder, if that has one; the old file's counts.
    Attributes that the user may not set are left out, as are all on a file system without them.
    """
    if sys.platform != "linux":
        return
    try:
        old = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return  # the file may be written, not read
    try:
        kept = set(os.listxattr(old))
        for attribute in set(os.listxattr(descriptor)) - kept:
            with suppress(OSError):
                os.removexattr(descriptor, attribute)
        for attribute in kept:
            with suppress(OSError):
                os.setxattr(descriptor, attribute, os.getxattr(old, attribute))
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
    finally:
        os.close(old)


def rewrite_in_place(folder: int, name: str, data: bytes, old: os.stat_result) -> None:
    """Replace the content of a file and keep the file itself.

    A reader may see a part of the new content, so this is only for files that a rename would
    change: those with other names, and those of another user. The room is reserved first, and the
    old content is put back if the new one cannot be written. Raises OSError.
    """
    descriptor = os.open(name, _IN_PLACE_FLAGS, dir_fd=folder)
    with open(descriptor, "r+b", buffering=0) as file:
        present = os.fstat(descriptor)
        if (present.st_dev, present.st_ino) != (old.st_dev, old.st_ino):
            raise OSError(errno.ESTALE, "another file has taken its name", name)
        content = file.read()
        try:
            if len(data) > len(content):
                os.posix_fallocate(descriptor, len(content), len(data) - len(content))
            _overwrite(descriptor, data)
        except OSError:
            with suppress(OSError):
                _overwrite(descriptor, content)
            raise


def _overwrite(descriptor: int, data: bytes) -> None:
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], written)
    os.ftruncate(descriptor, len(data))
    os.fsync(descriptor)
