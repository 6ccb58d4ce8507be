"""Open a path beneath a folder's descriptor: the kernel resolves it, so a link swapped in at the last moment leads nowhere."""

from __future__ import annotations

import errno
import functools
import os
import stat
import struct
from collections.abc import Callable

_OPENAT2 = 437
_BENEATH = 0x08
_NO_MAGICLINKS = 0x02
_TRIES = 128

Opener = Callable[[int, str, int], int]
"""(folder's descriptor, relative path, flags) -> descriptor. Raises OSError; EXDEV or ELOOP for a path that leads out."""


def choose_opener(*, kernel: bool | None = None) -> Opener:
    """The best opener there is: openat2, which follows links that stay beneath, or step by step, which follows none.

    Arguments:
        kernel: True or False insists on one of them; None takes openat2 where the kernel has it.
    """
    return (
        open_with_openat2 if (_has_openat2() if kernel is None else kernel) else open_step_by_step
    )


def open_with_openat2(folder: int, path: str, flags: int) -> int:
    """Open with openat2 and RESOLVE_BENEATH. A rename that races with it is answered EAGAIN: try again, a bounded number of times."""
    for _ in range(_TRIES):
        try:
            return _openat2(folder, os.fsencode(path), flags | os.O_CLOEXEC)
        except BlockingIOError:
            continue
    raise OSError(errno.EAGAIN, "it is being renamed all the time")


def open_step_by_step(folder: int, path: str, flags: int) -> int:
    """Open one component after the other, following no link at all."""
    *folders, last = path.split("/")
    at = os.dup(folder)
    try:
        for name in folders:
            step = os.open(
                _plain(name), os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at
            )
            os.close(at)
            at = step
        found = os.open(_plain(last), flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    except NotADirectoryError as error:
        raise OSError(errno.ELOOP, "a part of it is a link or a file") from error
    finally:
        os.close(at)
    # O_PATH with O_NOFOLLOW gives a descriptor of the link itself, which is no way to a file.
    if flags & os.O_PATH and stat.S_ISLNK(os.fstat(found).st_mode):
        os.close(found)
        raise OSError(errno.ELOOP, "it is a link")
    return found


_OPEN_HOW = struct.Struct("QQQ")
"""struct open_how: flags, mode, resolve."""


def _plain(name: str) -> str:
    if name == "..":
        raise OSError(errno.EXDEV, "it leads up")
    return name


@functools.cache
def _syscall() -> Callable[..., int]:
    import ctypes

    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
    return call


def _openat2(folder: int, path: bytes, flags: int) -> int:
    import ctypes

    how = _OPEN_HOW.pack(flags, 0, _BENEATH | _NO_MAGICLINKS)
    found = _syscall()(_OPENAT2, folder, path, how, _OPEN_HOW.size)
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(found)


@functools.cache
def _has_openat2() -> bool:
    folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(_openat2(folder, b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except (OSError, AttributeError):
        return False
    finally:
        os.close(folder)
    return True
