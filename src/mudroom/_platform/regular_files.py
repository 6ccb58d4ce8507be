"""Bounded reading of files that other programs may have made."""

from __future__ import annotations

import errno
import os
import stat

from .open_beneath import open_real_path

MAX_BYTES = 1 << 20
"""Bytes of the largest file that is read."""


def read_regular_file(
    path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES, beneath: str = ""
) -> bytes:
    """Read a file. Never wait for a pipe and never read a device.

    Arguments:
        beneath: folder that the file must lie in, even if something is exchanged meanwhile. Both
            paths are given without links then. "" for anywhere.

    Raises OSError, also for a folder, a pipe, a device, and a file of more than `max_bytes`.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    if beneath:
        descriptor = open_real_path(os.fspath(path), beneath, flags)
    else:
        # Opening some devices has effects, so look before. What is opened may be another thing.
        _check_regular(os.stat(path), path)
        descriptor = os.open(path, flags)
    with open(descriptor, "rb") as file:
        _check_regular(os.fstat(descriptor), path)
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"larger than {max_bytes:,} bytes", str(path))
    return data


def _check_regular(facts: os.stat_result, path: str | os.PathLike[str]) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def is_missing(path: str | os.PathLike[str], error: Exception) -> bool:
    """Return whether an error means that there is nothing at the path, not even a broken link."""
    is_absent = isinstance(error, FileNotFoundError | NotADirectoryError)
    return is_absent and not os.path.islink(path)
