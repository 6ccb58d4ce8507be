"""Turns file system errors into WorkspaceErrors with a remedy."""

from __future__ import annotations

import errno
import stat

from ..._platform.protected_names import find_protected_component
from ...errors import WorkspaceError

_REASONS = {
    errno.ENOENT: ("{path} does not exist", "Check the spelling, or find it with glob."),
    errno.EXDEV: ("{path} is outside the workspace {root}", "Use a path inside."),
    errno.ELOOP: (
        "{path} is a link, or goes through one, that cannot be followed",
        "Use a path inside without links.",
    ),
    errno.ENOTDIR: ("{path} goes through something that is not a folder", "Check the path."),
    errno.EACCES: (
        "{path} may not be opened: permission denied",
        "Use another file, or change its mode.",
    ),
    errno.ENXIO: ("{path} is not a regular file", "Only files and folders can be opened."),
    errno.ENAMETOOLONG: ("{path} is too long for a path", "Use a shorter one."),
    errno.ENOSPC: ("{path} cannot be written: the disk is full", "Free some space."),
    errno.EDQUOT: ("{path} cannot be written: your quota on the disk is full", "Free some space."),
    errno.EFBIG: (
        "{path} cannot be written: it is larger than the system allows",
        "Raise the limit (ulimit -f), or write less.",
    ),
    errno.EROFS: (
        "{path} cannot be written: its file system is read-only",
        "Mount it with the right to write.",
    ),
    errno.EPERM: (
        "{path} cannot be changed: the system does not permit it",
        "It may have an attribute (see lsattr, chattr), or belong to another user.",
    ),
}
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a link",
}


def explain(error: OSError, path: str, root: str) -> WorkspaceError:
    unknown = ("{path} cannot be opened: " + (error.strerror or str(error)), "")
    reason, remedy = _REASONS.get(error.errno or 0, unknown)
    return WorkspaceError(reason.format(path=path, root=root), remedy=remedy)


def make_outside_error(path: str, root: str) -> WorkspaceError:
    return explain(OSError(errno.EXDEV, ""), path, root)


def make_not_a_file_error(path: str, mode: int) -> WorkspaceError:
    kind = _KINDS.get(stat.S_IFMT(mode), "a device")
    return WorkspaceError(f"{path} is {kind}, not a regular file", remedy="Name a file.")


def check_unprotected(located: str, path: str) -> None:
    """Refuse to write a file that determines which programs the user's own tools run."""
    component = find_protected_component(located)
    if component:
        raise WorkspaceError(
            f"{path} is protected: {component} holds settings that git, shells, editors or agents "
            "act on",
            remedy="It may be read, not written; ask the user to change it.",
        )
