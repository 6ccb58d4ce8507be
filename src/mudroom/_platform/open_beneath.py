"""Opens paths beneath a folder's descriptor so that no link leads out, not even in a race."""

from __future__ import annotations

import errno
import functools
import os
import stat
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress

# System call and flags from linux/openat2.h; Python has no function for them.
_OPENAT2 = 437
_BENEATH = 0x08
_NO_MAGICLINKS = 0x02
_MAX_TRIES = 128
# System calls refuse longer paths. Checked by hand where each call gets only one name.
_PATH_MAX = 4096

Opener = Callable[[int, str, int], int]
"""(folder descriptor, relative path, flags) -> descriptor.

Raises OSError, with errno EXDEV or ELOOP for a path that leads out.
"""


def is_beneath(path: str, folder: str) -> bool:
    """Return whether a path is `folder` or inside it. Both are absolute, without links."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def choose_opener(*, kernel: bool | None = None) -> Opener:
    """Choose openat2 if the kernel has it, else one step at a time; `kernel` forces the choice.

    openat2 follows links that stay beneath the folder, while the other follows no links.
    """
    use_kernel = _has_openat2() if kernel is None else kernel
    return open_with_openat2 if use_kernel else open_step_by_step


def open_with_openat2(folder: int, path: str, flags: int) -> int:
    """Open with openat2 and RESOLVE_BENEATH, retrying when a rename interferes (EAGAIN)."""
    for _ in range(_MAX_TRIES):
        try:
            return _openat2(folder, os.fsencode(path), flags | os.O_CLOEXEC)
        except BlockingIOError:
            continue
    raise OSError(errno.EAGAIN, "it is renamed again and again")


def open_step_by_step(folder: int, path: str, flags: int) -> int:
    """Open one component after another, following no link."""
    if len(os.fsencode(path)) >= _PATH_MAX:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    *folders, last = path.split("/")
    current = os.dup(folder)
    step_flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        for name in folders:
            step = os.open(_check_name(name), step_flags, dir_fd=current)
            os.close(current)
            current = step
        descriptor = os.open(
            _check_name(last), flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current
        )
    except NotADirectoryError as error:
        raise OSError(errno.ELOOP, "a component is a link or a file") from error
    finally:
        os.close(current)
    # O_PATH with O_NOFOLLOW does not fail for a link but opens the link itself.
    if flags & os.O_PATH and stat.S_ISLNK(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ELOOP, "it is a link")
    return descriptor


def find_real_path(path: str) -> str:
    """Resolve links like `os.path.realpath`, which fails if a link changes while it looks.

    Here it is retried, and a path that keeps changing is returned with its links. Open the result
    with `open_real_path`, which follows none.
    """
    for _ in range(_MAX_TRIES):
        try:
            return os.path.realpath(path)
        except OSError:
            continue
    return os.path.abspath(path)


def open_real_path(path: str, beneath: str, flags: int) -> int:
    """Open a path below a folder, both given without links.

    A link in it means that something changed since the path was resolved, and raises OSError.
    """
    folder = os.open(beneath, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return open_step_by_step(folder, os.path.relpath(path, beneath), flags)
    finally:
        os.close(folder)


def remove_empty_folder(top: int, path: str) -> None:
    """Remove a folder beneath an open one, unless something is in it. Follows no link."""
    above, name = os.path.split(path)
    flags = os.O_RDONLY | os.O_DIRECTORY
    with suppress(OSError):
        folder = open_step_by_step(top, above or ".", flags)
        try:
            os.rmdir(name, dir_fd=folder)
        finally:
            os.close(folder)


def open_new_file(folder: int, path: str, mode: int) -> int:
    """Create a file and its missing folders below an open folder, following no link.

    Raises FileExistsError, and other OSErrors for a path through a link.
    """
    *names, last = path.split("/")
    parent = open_new_folders(folder, names)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(_check_name(last), flags, mode, dir_fd=parent)
    finally:
        os.close(parent)


def open_new_folders(folder: int, names: Iterable[str]) -> int:
    """Open a folder below an open one, creating missing folders and following no link."""
    current = os.dup(folder)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    for name in names:
        try:
            with suppress(FileExistsError):
                os.mkdir(_check_name(name), dir_fd=current)
            step = os.open(name, flags, dir_fd=current)
        finally:
            os.close(current)
        current = step
    return current


# struct open_how: flags, mode, resolve.
_OPEN_HOW = struct.Struct("QQQ")


def _check_name(name: str) -> str:
    if name == "..":
        raise OSError(errno.EXDEV, "it leads to the parent folder")
    return name


@functools.cache
def _syscall() -> Callable[..., int]:
    import ctypes

    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    syscall.argtypes = (
        ctypes.c_long,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_size_t,
    )
    return syscall


def _openat2(folder: int, path: bytes, flags: int) -> int:
    import ctypes

    how = _OPEN_HOW.pack(flags, 0, _BENEATH | _NO_MAGICLINKS)
    descriptor = _syscall()(_OPENAT2, folder, path, how, _OPEN_HOW.size)
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(descriptor)


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
