"""Modes of files that others may not read. A tree of git knows only who may execute a file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from ...._platform.open_beneath import open_step_by_step
from .trees import FileChange, is_link

_GROUP, _OTHERS = 0o070, 0o007
"""All permissions of the group of a file, and of the users outside it."""


def list_new_files(changes: Iterable[FileChange]) -> Iterator[str]:
    """Yield the paths of the files that are new, or that take the place of a link."""
    for change in changes:
        if change.after and not is_link(change.mode) and (change.was_link or not change.before):
            yield change.path


def find_private(folder: str, paths: Iterable[str], usual: int) -> dict[str, int]:
    """Return the permissions of the files that group or others may not read as usual, by path.

    A file counts as private, too, if one of its folders keeps them out.

    Arguments:
        folder: absolute path of the folder that the paths are in.
        usual: permissions of a folder that nobody has changed: they show the umask.
    """
    private: dict[str, int] = {}
    left_open: dict[str, int] = {"": 0o777}
    for path in paths:
        try:
            facts = os.lstat(os.path.join(folder, path))
            allowed = _find_allowed(folder, os.path.dirname(path), left_open)
        except OSError:
            continue  # it was removed just now
        mode = stat.S_IMODE(facts.st_mode) & allowed
        expected = usual & (0o055 if mode & stat.S_IXUSR else 0o044)
        if mode & expected != expected and stat.S_ISREG(facts.st_mode):
            private[path] = (mode | stat.S_IRUSR | stat.S_IWUSR) & 0o777
    return private


def _find_allowed(folder: str, path: str, known: dict[str, int]) -> int:
    """Return the permissions that the folders above a file leave to it."""
    if path not in known:
        mode = os.lstat(os.path.join(folder, path)).st_mode
        closed = (0 if mode & stat.S_IXGRP else _GROUP) | (0 if mode & stat.S_IXOTH else _OTHERS)
        known[path] = _find_allowed(folder, os.path.dirname(path), known) & ~closed
    return known[path]


def make_private(folder: str, private: Mapping[str, int]) -> None:
    """Give files of a folder that has just been made the permissions of `find_private`."""
    top = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for path, permissions in private.items():
            with suppress(OSError):  # the tree has a link or a folder there, or nothing
                file = open_step_by_step(top, path, os.O_RDONLY | os.O_NONBLOCK)
                try:
                    if stat.S_ISREG(os.fstat(file).st_mode):
                        os.fchmod(file, permissions)
                finally:
                    os.close(file)
    finally:
        os.close(top)
