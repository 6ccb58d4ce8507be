"""Atomic writes in an open folder: readers see the old file or the new one, never a part."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress

from .._core.ports import ContentCheck
from .._platform.protected_names import UNFINISHED_PREFIX
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
    temporary = _make_name()
    write_entry(folder, temporary, data, old, mode)
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
    folder: int, name: str, data: bytes, old: os.stat_result | None, mode: int | None
) -> None:
    """Write a new file or link and make it durable. It is removed again after an error.

    Arguments:
        old: facts about the file whose owner and mode the new one gets; None if there is none.
        mode: see `Workspace.write`.
    """
    if mode is not None and stat.S_ISLNK(mode):
        os.symlink(data, os.fsencode(name), dir_fd=folder)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o666, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if old is not None:
                _keep_owner(descriptor, old)
            if mode is None and old is not None:
                mode = stat.S_IMODE(old.st_mode)
            if mode is not None:
                os.fchmod(descriptor, mode & 0o777)
            os.fsync(descriptor)
    except BaseException:
        os.unlink(name, dir_fd=folder)
        raise


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


def _keep_owner(descriptor: int, old: os.stat_result) -> None:
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) == (old.st_uid, old.st_gid):
        return
    try:
        os.fchown(descriptor, old.st_uid, old.st_gid)
    except PermissionError:
        pass  # only the Unix user root may change a file's owner
