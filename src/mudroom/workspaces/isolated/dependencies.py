"""Ignored files that an isolated workspace gets from the user's folder.

Folders with dependencies are shown read-only. Files that `.worktreeinclude` names are copied.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator

from .git import Git, split_at_nul
from .store import MAX_FILE_BYTES, TreeStore, WorkingFiles

INCLUDE_FILE = ".worktreeinclude"
"""File with patterns of ignored files to copy, one on each line, as in `.gitignore`."""

_FOLDER_NAMES = frozenset(
    ("node_modules", ".venv", "venv", "vendor", "bower_components", ".bundle", "Pods", ".yarn")
)
_ENVIRONMENT_FILE = "pyvenv.cfg"


def find_dependencies(store: TreeStore) -> list[str]:
    """Return the ignored folders with dependencies: paths relative to the source."""
    files = store.source_files
    git = Git(store.directory, store.find_index("source"), files.top, files.prefix)
    options = ("--others", "--ignored", "--directory", "--exclude-standard")
    output = git.run("ls-files", "-z", *options, "--", ".")
    return [
        path.rstrip("/")
        for path in split_at_nul(output)
        if path.endswith("/") and _has_dependencies(files.folder, path.rstrip("/"))
    ]


def _has_dependencies(folder: str, path: str) -> bool:
    if os.path.basename(path) in _FOLDER_NAMES:
        return True
    return os.path.isfile(os.path.join(folder, path, _ENVIRONMENT_FILE))


def copy_included(store: TreeStore, target: WorkingFiles) -> None:
    """Copy the ignored files that `.worktreeinclude` of the source names."""
    files = store.source_files
    if not os.path.isfile(os.path.join(files.folder, INCLUDE_FILE)):
        return
    for path in _list_included(store, files):
        source = os.path.join(files.folder, path)
        facts = os.lstat(source)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_FILE_BYTES:
            continue
        copy = os.path.join(target.folder, path)
        if not os.path.lexists(copy):
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            shutil.copy2(source, copy)


def _list_included(store: TreeStore, files: WorkingFiles) -> Iterator[str]:
    """Yield the files that the patterns name and git ignores."""
    git = Git(store.directory, store.find_index("source"), files.top, files.prefix)
    patterns = os.path.join(files.folder, INCLUDE_FILE)
    options = ("-z", "--others", "--ignored")
    named = git.run("ls-files", *options, f"--exclude-from={patterns}", "--", ".")
    ignored = set(split_at_nul(git.run("ls-files", *options, "--exclude-standard", "--", ".")))
    yield from (path for path in split_at_nul(named) if path in ignored)
