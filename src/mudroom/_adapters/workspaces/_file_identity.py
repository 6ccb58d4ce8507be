"""What a file keeps when its content is replaced: owner, extended attributes, other names."""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import suppress

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
