"""Notices that a git waits for something that never comes, such as the writer of a pipe.

git opens what it finds: a pipe with the name `.gitignore` would stop it for ever.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence

from ....._platform.paths import path_to_text
from ....._platform.processes import list_processes
from .....errors import WorkspaceError

LOOK_AFTER = 1.5
"""Seconds without progress after which pipes are looked for where git opens every file."""

_LOOK_EVERYWHERE_AFTER = 10.0
"""The same for any pipe: one that replaced a file a moment before git opened it."""

MAX_QUIET = 60.0
"""Seconds without progress after which a git is killed."""

TIMEOUT = 600.0
"""Seconds after which it is killed in any case where progress cannot be seen, as on macOS."""

_SEARCH_SECONDS = 10.0

_OPENED = frozenset((".git", ".gitignore", ".gitattributes", ".gitmodules", ".mailmap"))
"""Names that git opens wherever they are."""

_NULL = os.makedev(1, 3)

_REMEDY = "Remove it, or let the run share the folder."


class KilledGitError(WorkspaceError):
    """A git that was killed: it made no progress, or nobody waits for it. It is not run again."""


class ProgressCheck:
    """Looks at one git while it runs; see `look`.

    Arguments:
        name: of the command. folder: where it works, for messages.
        places: folders with files that it may open: working files first, then its objects.
    """

    def __init__(self, name: str, folder: str, places: Sequence[str]) -> None:
        self._name = name
        self._folder = folder
        self._places = places
        self._start = self._changed = time.monotonic()
        self._last: tuple[int, ...] | None = None
        self._next_look = LOOK_AFTER

    def look(self, pid: int) -> None:
        """Raise KilledGitError if the process waits for a pipe or a device, or for too long."""
        now = time.monotonic()
        progress = _read_progress(pid)
        if progress != self._last:
            self._last = progress
            self._changed = now
            self._next_look = LOOK_AFTER
            return
        quiet = now - self._changed
        if quiet > (MAX_QUIET if progress else TIMEOUT):
            raise KilledGitError(
                f"git {self._name} made no progress for {quiet:.0f} s",
                where=self._folder,
                remedy="Look whether its disk answers, or let the run share the folder.",
            )
        if quiet >= self._next_look:
            everywhere = quiet >= _LOOK_EVERYWHERE_AFTER
            self._next_look = _LOOK_EVERYWHERE_AFTER if not everywhere else quiet + MAX_QUIET / 3
            for place in self._places:
                if path := find_blocking_file(place, everywhere=everywhere):
                    raise KilledGitError(
                        f"git {self._name} waits for {path_to_text(path)}, which is a pipe or a "
                        "device",
                        where=self._folder,
                        remedy=_REMEDY,
                    )


def _read_progress(pid: int) -> tuple[int, ...] | None:
    """Return figures that grow while a process and its children work; None without procfs."""
    try:
        figures = _read_figures(pid)
    except OSError:
        return None
    for process in list_processes():
        if process.parent == pid:
            try:
                figures += _read_figures(process.pid)
            except OSError:
                continue  # it has ended
    return figures


def _read_figures(pid: int) -> tuple[int, ...]:
    """Return page faults, processor times, and bytes read and written."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    with open(f"/proc/{pid}/io", "rb") as file:
        transferred = file.read().split()[1:4:2]
    return tuple(int(field) for field in (fields[7], fields[9], *fields[11:13], *transferred))


def find_blocking_file(top: str, *, everywhere: bool = False) -> str:
    """Return the path of a pipe or a device that git would open below a folder, "" without one.

    Arguments:
        top: a folder with working files, or a git folder, or one of objects.
        everywhere: true to count every pipe, not only those at names that git always opens.
    """
    deadline = time.monotonic() + _SEARCH_SECONDS
    is_control = any(part in _OPENED for part in top.split("/"))
    folders = [(top, is_control)]
    while folders and time.monotonic() < deadline:
        folder, is_control = folders.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            is_opened = is_control or entry.name in _OPENED
            if entry.is_dir(follow_symlinks=False):
                folders.append((entry.path, is_opened))
            elif (is_opened or everywhere) and _blocks(entry, follow=is_opened):
                return entry.path
    return ""


def _blocks(entry: os.DirEntry[str], *, follow: bool) -> bool:
    try:
        facts = entry.stat(follow_symlinks=follow)
    except OSError:
        return False
    is_device = stat.S_ISCHR(facts.st_mode) and facts.st_rdev != _NULL
    return stat.S_ISFIFO(facts.st_mode) or is_device
