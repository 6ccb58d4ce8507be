"""Atomic writes in an open folder: readers see the old file or the new one, never a part.

Files that a rename would take from their owner, or from their other names, are the exception.
"""

from __future__ import annotations

import os
import secrets
import stat
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
    from ._file_identity import has_other_names, rewrite_in_place  # after the first request

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
                from ._file_identity import keep_attributes, keep_owner

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
