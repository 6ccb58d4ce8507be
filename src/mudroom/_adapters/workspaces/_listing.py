"""Lists of the files below an open folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ..._core.ports import FileInfo, SkippedPaths
from ..._platform.open_beneath import open_step_by_step
from ..._platform.path_text import path_to_text
from ..._platform.protected_names import UNFINISHED_PREFIX
from ._ignore import IgnoreRules

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY
"""Flags that open a folder."""

_MAX_PATTERN_BYTES = 1 << 20
MAX_DEPTH = 200
"""Levels of folders that are listed; each one holds a descriptor meanwhile."""
_GIT_STATE = frozenset(
    ("HEAD", "config", "hooks", "index", "info", "packed-refs", "refs", "reftable")
)
"""Entries of `.git` that tell its state; a commit changes a ref, HEAD or the index."""

_SYSTEM_FOLDERS = ("dev", "proc", "sys")  # of the root folder "/": not files of a disk


class Listing:
    """A walk through the folders of a workspace.

    Arguments:
        root: folder of the workspace.
        skipped: gets the paths that cannot be listed, without files removed meanwhile.
        all_entries: True yields links, folders and so on, and the state of git; see `walk_entries`.
    """

    def __init__(self, root: str, skipped: list[str], *, all_entries: bool = False) -> None:
        self._left_out = _SYSTEM_FOLDERS if root == "/" else ()
        self._skipped = skipped
        self._all_entries = all_entries

    def walk(
        self, folder: int, path: str, rules: IgnoreRules | None, depth: int = 0
    ) -> Iterator[FileInfo]:
        """Yield the files below an open folder and close its descriptor at the end.

        Arguments:
            path: of the folder, "" for the root. rules: None includes ignored files.
        """
        try:
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=_get_entry_name)
            if rules is not None and any(entry.name == ".gitignore" for entry in entries):
                rules = rules.extend(path, read_patterns(folder, ".gitignore"))
            prefix = f"{path}/" if path else ""
            if os.path.basename(path) == ".git":
                entries = [entry for entry in entries if entry.name in _GIT_STATE]
            for entry in entries:
                if self._is_listed(entry.name):
                    yield from self._walk_entry(folder, entry, prefix + entry.name, rules, depth)
        except OSError as error:
            self._skip(path, error)
        finally:
            os.close(folder)

    def _is_listed(self, name: str) -> bool:
        if name == ".git":
            return self._all_entries
        return not name.startswith(UNFINISHED_PREFIX)

    def _walk_entry(
        self,
        folder: int,
        entry: os.DirEntry[str],
        path: str,
        rules: IgnoreRules | None,
        depth: int,
    ) -> Iterator[FileInfo]:
        try:
            is_folder = entry.is_dir(follow_symlinks=False)
            if not is_folder and not self._all_entries and not entry.is_file(follow_symlinks=False):
                return
            if entry.name == ".git":
                rules = None
            is_ignored = rules is not None and rules(path + "/" if is_folder else path)
            if is_ignored and not self._all_entries:
                return
            if self._all_entries or not is_folder:
                yield describe_file(path, entry.stat(follow_symlinks=False), ignored=is_ignored)
            if is_ignored or not is_folder:
                return
            if depth == MAX_DEPTH:
                self._skip_deep(path_to_text(path))
                return
            if path in self._left_out:
                self._skipped.append(path_to_text(path))
                return
            subfolder = os.open(
                entry.name, FOLDER_FLAGS | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder
            )
        except OSError as error:
            self._skip(path, error)
            return
        yield from self.walk(subfolder, path, rules, depth + 1)

    def _skip_deep(self, path: str) -> None:
        skipped = self._skipped
        (skipped.too_deep if isinstance(skipped, SkippedPaths) else skipped).append(path)

    def _skip(self, path: str, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            self._skipped.append(path_to_text(path) or ".")


def describe_file(path: str, facts: os.stat_result, *, ignored: bool = False) -> FileInfo:
    """Return the facts about a file."""
    text = path_to_text(path)
    return FileInfo(text, facts.st_size, facts.st_mtime, facts.st_mode, facts.st_ctime, ignored)


def read_patterns(folder: int, path: str) -> bytes:
    """Read an ignore file, b"" when there is none. git does not follow a link there either."""
    try:
        descriptor = open_step_by_step(folder, path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        return file.read(_MAX_PATTERN_BYTES)


def read_rules_above(root: str) -> IgnoreRules:
    """Return the ignore rules that folders above the root have, up to the top of its repository.

    There are none if the root is the top, in no repository, or ignored itself.
    """
    path = Path(root)
    tops = (top for top in (path, *path.parents) if os.path.lexists(top / ".git"))
    top = next(tops, path)
    names = path.relative_to(top).parts
    rules = IgnoreRules("".join(f"{name}/" for name in names))
    try:
        folder = os.open(top, FOLDER_FLAGS | os.O_CLOEXEC)
    except OSError:
        return IgnoreRules()
    try:
        if names:
            rules = rules.extend_above("", read_patterns(folder, ".git/info/exclude"))
        for depth in range(len(names)):
            above = "".join(f"{name}/" for name in names[:depth])
            rules = rules.extend_above(above, read_patterns(folder, f"{above}.gitignore"))
    finally:
        os.close(folder)
    return IgnoreRules() if names and rules("") else rules


def _get_entry_name(entry: os.DirEntry[str]) -> str:
    return entry.name
