"""The git repository that a folder belongs to. Its files are only read."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

_MAX_ALTERNATES = 16
"""Object folders that are followed, in all."""


class Repository(Struct, frozen=True):
    """A git repository of the user.

    Arguments:
        top: folder with its working files.
        directory: its git folder. common: the git folder that linked worktrees share.
        objects: its object folders: its own, then those that it borrows from.
    """

    top: str
    directory: str
    common: str
    objects: tuple[str, ...]

    def read_excludes(self) -> bytes:
        """Return the ignore patterns of `info/exclude`."""
        try:
            return Path(self.common, "info/exclude").read_bytes()
        except OSError:
            return b""


def find_repository(folder: str) -> Repository | None:
    """Return the repository that a folder, or a folder above it, is the top of; None without one.

    A file `.git` is followed only if the git folder that it names points back at it.
    """
    top = os.path.realpath(folder)
    while True:
        path = os.path.join(top, ".git")
        directory = path if os.path.isdir(path) else _follow_pointer(path)
        if directory and os.path.isfile(os.path.join(directory, "HEAD")):
            common = _find_common(directory)
            return Repository(top, directory, common, _find_objects(common))
        parent = os.path.dirname(top)
        if directory or os.path.lexists(path) or parent == top:
            return None
        top = parent


def _follow_pointer(path: str) -> str:
    """Return the git folder that a file `.git` names, "" if it does not point back."""
    pointer = _read_line(path)
    if not pointer.startswith("gitdir:"):
        return ""
    top = os.path.dirname(path)
    directory = os.path.realpath(os.path.join(top, pointer.removeprefix("gitdir:").strip()))
    back_pointer = _read_line(os.path.join(directory, "gitdir"))
    if back_pointer:  # a linked worktree
        return directory if os.path.realpath(back_pointer) == path else ""
    return directory if _read_worktree(directory) == top else ""  # a submodule


def _read_worktree(directory: str) -> str:
    """Return the folder that `core.worktree` of a submodule's git folder names, "" if none."""
    try:
        lines = Path(directory, "config").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        key, _, value = line.partition("=")
        if key.strip().lower() == "worktree":
            return os.path.realpath(os.path.join(directory, value.strip().strip('"')))
    return ""


def _find_common(directory: str) -> str:
    name = _read_line(os.path.join(directory, "commondir"))
    return os.path.realpath(os.path.join(directory, name)) if name else directory


def _find_objects(common: str) -> tuple[str, ...]:
    """Return the object folder of a repository and those that it borrows from."""
    folders = [os.path.realpath(os.path.join(common, "objects"))]
    for folder in folders:
        try:
            lines = Path(folder, "info/alternates").read_text(errors="surrogateescape").splitlines()
        except OSError:
            continue
        for line in lines:
            borrowed = os.path.realpath(os.path.join(folder, line))
            is_new = not line.startswith("#") and borrowed not in folders
            if is_new and os.path.isdir(borrowed) and len(folders) < _MAX_ALTERNATES:
                folders.append(borrowed)
    return tuple(folders)


def _read_line(path: str) -> str:
    """Return the first line of a small file, "" if it cannot be read."""
    try:
        with open(path, errors="surrogateescape") as file:
            return file.readline(4096).strip()
    except OSError:
        return ""
