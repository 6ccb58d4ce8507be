"""Renames that replace a file only if its content is as expected, while others may write it."""

from __future__ import annotations

import errno
import functools
import os
import stat
from collections.abc import Callable

from .._core.ports import ContentCheck, FileChangedError, LinkTarget

_NO_REPLACE = 1
_EXCHANGE = 2
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def replace_checked(folder: int, temporary: str, name: str, check: ContentCheck) -> None:
    """Rename a temporary file over another one; afterwards the temporary one may be there still.

    Arguments:
        folder: descriptor of the folder of both. check: see `Workspace.write`.

    Raises FileChangedError, and then the other file is as it was.
    """
    present = _read(folder, name)
    if not check(present):
        raise FileChangedError(name)
    flags = _NO_REPLACE if present is None else _EXCHANGE
    try:
        _rename(folder, temporary, name, flags)
    except (FileExistsError, FileNotFoundError):  # it was made, or removed, just now
        raise FileChangedError(name) from None
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        return
    if present is None or check(replaced := _read(folder, temporary)):
        return
    # The file was written after it was read: put it back, and keep what comes meanwhile.
    written = _read(folder, name)
    _rename(folder, temporary, name, _EXCHANGE)
    if _read(folder, temporary) not in (written, replaced):
        _rename(folder, temporary, name, _EXCHANGE)
    raise FileChangedError(name)


def remove_checked(folder: int, name: str, temporary: str, check: ContentCheck) -> None:
    """Remove a file if its content is as expected. Arguments and errors: as in `replace_checked`.

    Arguments:
        temporary: name that no file of the folder has.
    """
    os.rename(name, temporary, src_dir_fd=folder, dst_dir_fd=folder)
    if check(_read(folder, temporary)):
        os.unlink(temporary, dir_fd=folder)
        return
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        pass  # it was written again meanwhile
    os.unlink(temporary, dir_fd=folder)
    raise FileChangedError(name)


def read_link(folder: int, name: str) -> LinkTarget | None:
    """Return the path in a link of an open folder, None for anything else."""
    try:
        return LinkTarget(os.fsencode(os.readlink(name, dir_fd=folder)))
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return None


def _read(folder: int, name: str) -> bytes | None:
    """Return the content of a regular file or of a link, None if there is none.

    Raises OSError for anything else: what was a file a moment ago may be a pipe by now.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return read_link(folder, name)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", name)
        return file.read()


@functools.cache
def _find_function() -> Callable[..., int] | None:
    """Return renameat2 of the C library, None without it."""
    import ctypes

    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def _rename(folder: int, old: str, new: str, flags: int) -> None:
    import ctypes

    rename = _find_function()
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if rename(folder, os.fsencode(old), folder, os.fsencode(new), flags) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), new)
