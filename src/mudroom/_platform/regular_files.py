"""Bounded reading of files that other programs may have made."""

from __future__ import annotations

import errno
import os
import shutil
import stat

MAX_BYTES = 1 << 20
"""Bytes of the largest file that is read."""

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""O_NONBLOCK opens a pipe at once, too: it may have replaced the file a moment ago."""


def read_regular_file(
    path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES, follow_link: bool = True
) -> bytes:
    """Read a file. Never wait for a pipe and never read a device.

    Raises OSError, also for a folder, a pipe, a device, and a file of more than `max_bytes`, and
    without `follow_link` for a symbolic link.
    """
    descriptor = open_regular_file(path, follow_link=follow_link)
    return read_open_file(descriptor, str(path), max_bytes=max_bytes)


def open_regular_file(path: str | os.PathLike[str], *, follow_link: bool = True) -> int:
    """Open a regular file for reading and return its descriptor. Raises OSError for all others."""
    # Opening a device can have effects, so look first.
    check_regular(os.stat(path, follow_symlinks=follow_link), str(path))
    return os.open(path, _FLAGS if follow_link else _FLAGS | os.O_NOFOLLOW)


def read_open_file(descriptor: int, path: str, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Read an open file and close it. `path`: for the errors, which are OSError."""
    with open(descriptor, "rb") as file:
        check_regular(os.fstat(descriptor), path)
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"larger than {max_bytes:,} bytes", path)
    return data


def copy_open_file(descriptor: int, path: str, target: str, *, max_bytes: int) -> None:
    """Copy an open file to a new path, with its mode, and close it. Raises OSError."""
    with open(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        check_regular(facts, path)
        if facts.st_size > max_bytes:
            raise OSError(errno.EFBIG, f"larger than {max_bytes:,} bytes", path)
        with open(target, "xb") as copy:
            shutil.copyfileobj(file, copy)
            os.fchmod(copy.fileno(), stat.S_IMODE(facts.st_mode))
            os.utime(copy.fileno(), ns=(facts.st_atime_ns, facts.st_mtime_ns))


def check_regular(facts: os.stat_result, path: str) -> None:
    """Raise OSError if something at a path is no regular file."""
    if stat.S_ISLNK(facts.st_mode):
        raise OSError(errno.ELOOP, "a symbolic link", path)
    if not stat.S_ISREG(facts.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)


def is_missing(path: str | os.PathLike[str], error: Exception) -> bool:
    """Return whether an error means that there is nothing at the path, not even a broken link."""
    is_absent = isinstance(error, FileNotFoundError | NotADirectoryError)
    return is_absent and not os.path.islink(path)
