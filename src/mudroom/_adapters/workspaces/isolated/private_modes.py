"""Modes of new files that others may not read. A tree of git knows only who may execute a file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from .trees import FileChange, is_link

_GROUP, _OTHERS = 0o070, 0o007
"""All permissions of the group of a file, and of the users outside it."""


def find_private(folder: str, changes: Iterable[FileChange], usual: int) -> dict[str, int]:
    """Return the permissions of new files that group or others may not read as usual, by path.

    A file counts as private, too, if one of its folders keeps them out.

    Arguments:
        folder: absolute path of the folder that the changes are in.
        usual: permissions of a folder that nobody has changed: they show the umask.
    """
    private: dict[str, int] = {}
    open_to: dict[str, int] = {"": 0o777}
    for change in changes:
        if not change.after or is_link(change.mode) or (change.before and not change.was_link):
            continue
        path = os.path.join(folder, change.path)
        try:
            facts = os.lstat(path)
            allowed = _find_open(folder, os.path.dirname(change.path), open_to)
        except OSError:
            continue  # it was removed just now
        mode = stat.S_IMODE(facts.st_mode) & allowed
        expected = usual & (0o055 if mode & stat.S_IXUSR else 0o044)
        if mode & expected != expected:
            private[change.path] = (mode | stat.S_IRUSR | stat.S_IWUSR) & 0o777
    return private


def _find_open(folder: str, path: str, known: dict[str, int]) -> int:
    """Return the permissions that the folders above a file leave to it."""
    if path not in known:
        mode = os.lstat(os.path.join(folder, path)).st_mode
        closed = (0 if mode & stat.S_IXGRP else _GROUP) | (0 if mode & stat.S_IXOTH else _OTHERS)
        known[path] = _find_open(folder, os.path.dirname(path), known) & ~closed
    return known[path]
