"""Snapshot: the state of a workspace."""

from __future__ import annotations

import stat
import time
from collections.abc import Iterable
from pathlib import PurePath

from msgspec import Struct

from ..._core.ports import FileInfo, Workspace
from ...errors import WorkspaceError

MAX_FILES = 20_000
"""Maximum files of a workspace that is compared before and after calls."""

SCAN_SECONDS = 1.0
"""Maximum seconds to list a workspace without the content of folders that git ignores."""

IGNORED_SECONDS = 0.3
"""Seconds from the start of a list in which the content of ignored folders is added."""

_MAX_NAMED_FOLDERS = 3
"""Maximum names in the list of folders that are not compared."""

_CLOCK_INTERVAL = 256
"""Entries between two reads of the clock. A shorter list never ends early."""

Entries = dict[str, tuple[int, float, float]]
"""Size, mtime and ctime of each file or link by path; zeros for "folder/"."""

_FOLDER = (0, 0.0, 0.0)


class Snapshot(Struct):
    """The state of a workspace.

    Attributes:
        last_paths: paths that come last in a list of changes: files that git ignores, and files of
            `.git`.
        skipped: folders whose content is not in `entries`.
    """

    entries: Entries = {}
    last_paths: set[str] = set()
    skipped: list[str] = []

    def explain_skipped(self) -> str:
        """Return which folders are not compared, "" if all are."""
        if not self.skipped:
            return ""
        named = ", ".join(f"{path}/" for path in sorted(self.skipped)[:_MAX_NAMED_FOLDERS])
        more = len(self.skipped) - _MAX_NAMED_FOLDERS
        return f"not compared: {named}" + (f" and {more:,} more" if more > 0 else "")


def take_snapshot(workspace: Workspace, large_folders: set[str]) -> Snapshot | str:
    """Return the state of a workspace, or why it is not known.

    Arguments:
        large_folders: ignored folders that are too large; the function adds those that it meets.
    """
    start = time.monotonic()
    snapshot = Snapshot()
    entries = snapshot.entries
    ignored_folders: list[str] = []
    try:
        for info in workspace.walk_entries(skipped=snapshot.skipped):
            path = _add_entry(entries, info)
            if info.ignored or ".git/" in path:
                snapshot.last_paths.add(path)
            if info.ignored and stat.S_ISDIR(info.mode):
                ignored_folders.append(info.path)
            if len(entries) > MAX_FILES:
                return f"the folder has more than {MAX_FILES:,} files"
            if _is_late(entries, start + SCAN_SECONDS):
                return f"listing the folder takes more than {SCAN_SECONDS:g} s"
    except (OSError, WorkspaceError) as error:
        return f"the folder cannot be listed: {error}"
    if "." in snapshot.skipped:
        return "the folder cannot be listed"
    for folder in ignored_folders:
        if folder not in large_folders:
            _add_ignored(snapshot, workspace, folder, start + IGNORED_SECONDS, large_folders)
    snapshot.skipped += large_folders.intersection(ignored_folders)
    return snapshot


def _add_ignored(
    snapshot: Snapshot,
    workspace: Workspace,
    folder: str,
    deadline: float,
    large_folders: set[str],
) -> None:
    """Add the content of a folder that git ignores, or the folder to those that are too large."""
    files_left = MAX_FILES - len(snapshot.entries)
    content: Entries = {}
    try:
        for info in workspace.walk_entries(folder, ignored=True, skipped=snapshot.skipped):
            _add_entry(content, info)
            if len(content) > files_left or _is_late(content, deadline):
                large_folders.add(folder)
                return
    except (OSError, WorkspaceError):
        snapshot.skipped.append(folder)  # it was removed meanwhile, or may not be opened
    snapshot.entries.update(content)
    snapshot.last_paths.update(content)


def _is_late(entries: Entries, deadline: float) -> bool:
    return len(entries) % _CLOCK_INTERVAL == 0 and time.monotonic() > deadline


def _add_entry(entries: Entries, info: FileInfo) -> str:
    """Add a file or a folder, but no folder of git: git makes and removes empty ones."""
    if not stat.S_ISDIR(info.mode):
        entries[info.path] = (info.size, info.mtime, info.ctime)
        return info.path
    path = f"{info.path}/"
    if ".git/" not in path:
        entries[path] = _FOLDER
    return path


def compare_snapshots(before: Snapshot, after: Snapshot) -> list[str]:
    """Return the paths that differ, `last_paths` last."""
    skipped = tuple(f"{path}/" for path in {*before.skipped, *after.skipped})
    paths = sorted(
        path
        for path in before.entries.keys() | after.entries.keys()
        if before.entries.get(path) != after.entries.get(path)
        and (path in skipped or not path.startswith(skipped))
    )
    # A folder that is new or removed is listed only if nothing below it is.
    next_paths = [*paths[1:], ""]
    listed = [
        path
        for path, next_path in zip(paths, next_paths, strict=False)
        if path[-1] != "/" or not next_path.startswith(path)
    ]
    listed.sort(key=lambda path: path in before.last_paths or path in after.last_paths)
    return listed


def list_folders_above(paths: Iterable[str]) -> set[str]:
    """Return all folders above the paths, each with a slash at its end."""
    return {f"{folder}/" for path in paths for folder in PurePath(path).parents}
