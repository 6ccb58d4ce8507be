"""Rights that a landing needs, looked at before the first rename."""

from __future__ import annotations

import array
import os
import stat
import sys

from ....._platform.paths import path_to_text
from .....errors import WorkspaceError
from ..._checked_rename import stat_entry

_READ_FLAGS = 0x8000_6601 | (array.array("l").itemsize << 16)
"""FS_IOC_GETFLAGS: the request of ioctl for the attributes that `chattr` sets."""

_IMMUTABLE = 0x10
_APPEND_ONLY = 0x20


def check_folder(folder: int, path: str) -> None:
    """Raise WorkspaceError if names in an open folder cannot be changed. `path`: of the folder."""
    _check_attributes(folder, path)
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=folder, effective_ids=_HAS_EFFECTIVE_IDS):
        mode = stat.S_IMODE(os.fstat(folder).st_mode)
        raise WorkspaceError(
            f"the folder {path_to_text(path)} is read-only (mode {mode:04o})",
            remedy="If its files should change, change its mode first.",
        )


def check_file(folder: int, name: str, path: str, *, is_written: bool) -> None:
    """Raise WorkspaceError if a file of an open folder cannot be replaced or removed.

    Arguments:
        path: of the file, for errors.
        is_written: true if it gets another content. A removal needs no right to write the file.
    """
    facts = stat_entry(folder, name)
    if facts is None:
        return
    if stat.S_ISREG(facts.st_mode):
        _check_file_attributes(folder, name, path)
        if is_written and not os.access(
            name, os.W_OK, dir_fd=folder, effective_ids=_HAS_EFFECTIVE_IDS
        ):
            raise _explain_read_only(facts, path)
    above = os.fstat(folder)
    user = os.geteuid()
    if above.st_mode & stat.S_ISVTX and user not in (0, above.st_uid, facts.st_uid):
        raise WorkspaceError(
            f"{path_to_text(path)} belongs to another user (number {facts.st_uid}), and only the "
            "owner may replace files in this folder (it has the sticky bit)",
            remedy="Let its owner change it.",
        )


def _explain_read_only(facts: os.stat_result, path: str) -> WorkspaceError:
    mode = stat.S_IMODE(facts.st_mode)
    message = f"{path_to_text(path)} is read-only (mode {mode:04o})"
    if facts.st_uid == os.geteuid():
        return WorkspaceError(message, remedy="If it should change, change its mode first.")
    return WorkspaceError(
        f"{message} and belongs to another user (number {facts.st_uid})",
        remedy="If it should change, let its owner change its mode first.",
    )


def _check_file_attributes(folder: int, name: str, path: str) -> None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError:
        return  # the rename tells
    try:
        _check_attributes(descriptor, path)
    finally:
        os.close(descriptor)


def _check_attributes(descriptor: int, path: str) -> None:
    """Raise WorkspaceError if an open file or folder has an attribute that forbids renames."""
    attributes = _read_attributes(descriptor)
    for bit, letter, adjective in (
        (_IMMUTABLE, "i", "immutable"),
        (_APPEND_ONLY, "a", "append-only"),
    ):
        if attributes & bit:
            raise WorkspaceError(
                f"{path_to_text(path)} is {adjective} (chattr +{letter})",
                remedy=f"If it should change, remove the attribute with `chattr -{letter}` first.",
            )


def _read_attributes(descriptor: int) -> int:
    """Return the attributes of an open file, 0 if the file system has none."""
    if sys.platform != "linux":
        return 0
    import fcntl

    buffer = array.array("i", [0, 0])  # the kernel fills an int, though the request names a long
    try:
        fcntl.ioctl(descriptor, _READ_FLAGS, buffer)
    except OSError:
        return 0
    return buffer[0]


_HAS_EFFECTIVE_IDS = os.access in os.supports_effective_ids
