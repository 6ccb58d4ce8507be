"""Bounded reading of files that other programs may have made."""

from __future__ import annotations

import errno
import os
import stat

MAX_BYTES = 1 << 20
"""Bytes of the largest file that is read."""


def read_regular_file(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> bytes:
    """Read a file. Never wait for a pipe and never read a device.

    Raises OSError, also for a folder, a pipe, a device, and a file of more than `max_bytes`.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    # Something else may be there by now: O_NONBLOCK opens also a pipe at once.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"larger than {max_bytes:,} bytes", str(path))
    return data


def is_missing(path: str | os.PathLike[str], error: Exception) -> bool:
    """Return whether an error means that there is nothing at the path, not even a broken link."""
    is_absent = isinstance(error, FileNotFoundError | NotADirectoryError)
    return is_absent and not os.path.islink(path)
