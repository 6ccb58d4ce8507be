"""Bounded reading of files that other programs may have made, and the test for binary contents."""

from __future__ import annotations

import errno
import os
import shutil
import stat

from .open_beneath import open_real_path

# Size of the largest file to read.
MAX_BYTES = 1 << 20

# O_NONBLOCK, because a pipe may have replaced the file a moment ago: opening it must not block.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read_regular_file(
    path: str | os.PathLike[str],
    *,
    max_bytes: int = MAX_BYTES,
    follow_link: bool = True,
    beneath: str = "",
) -> bytes:
    """Read a regular file, never waiting for a pipe or touching a device.

    With `beneath`, the file must lie in that folder even if something changes meanwhile; both paths
    are then given without links.

    Raises OSError, also for a folder, a pipe, a device, a file of more than `max_bytes` and, unless
    `follow_link`, a symbolic link.
    """
    if beneath:
        descriptor = open_real_path(os.fspath(path), beneath, _FLAGS)
    else:
        # Look first, because opening a device can have effects.
        check_regular(os.stat(path, follow_symlinks=follow_link), str(path))
        descriptor = os.open(path, _FLAGS if follow_link else _FLAGS | os.O_NOFOLLOW)
    return read_open_file(descriptor, str(path), max_bytes=max_bytes)


def read_open_file(descriptor: int, path: str, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Read an open file and close it. `path` is used in errors, which are OSError."""
    with open(descriptor, "rb") as file:
        check_regular(os.fstat(descriptor), path)
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"larger than {max_bytes:,} bytes", path)
    return data


def copy_open_file(descriptor: int, path: str, target: str, *, max_bytes: int) -> None:
    """Copy an open file to a new path with its mode and times, and close it. Raises OSError."""
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
    if stat.S_ISLNK(facts.st_mode):
        raise OSError(errno.ELOOP, "a symbolic link", path)
    if not stat.S_ISREG(facts.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)


def is_open_file(path: str | os.PathLike[str], descriptor: int) -> bool:
    """Return whether a path still names an open file, such as a lock that others may remove."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def is_missing(path: str | os.PathLike[str], error: Exception) -> bool:
    """Return whether an error means that nothing is at the path, not even a broken link."""
    is_absent = isinstance(error, FileNotFoundError | NotADirectoryError)
    return is_absent and not os.path.islink(path)


# Leading bytes in which git also looks for a NUL.
_HEAD_BYTES = 8_000


def is_binary(*contents: bytes) -> bool:
    return any(b"\0" in content[:_HEAD_BYTES] for content in contents)
