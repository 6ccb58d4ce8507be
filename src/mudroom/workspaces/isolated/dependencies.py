"""Ignored files that an isolated workspace gets from the user's folder.

Folders with dependencies are shown read-only. Files that `.worktreeinclude` names are copied.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress

from .repository import copy_inside, read_inside
from .store import MAX_FILE_BYTES, TreeStore
from .trees import WorkingFiles

INCLUDE_FILE = ".worktreeinclude"
"""File with patterns of ignored files to copy, one on each line, as in `.gitignore`."""

_FOLDER_NAMES = frozenset(
    ("node_modules", ".venv", "venv", "vendor", "bower_components", ".bundle", "Pods", ".yarn")
)
_ENVIRONMENT_FILE = "pyvenv.cfg"


def find_dependencies(store: TreeStore) -> list[str]:
    """Return the ignored folders with dependencies: paths relative to the source."""
    folder = store.source_files.folder
    return [path for path in store.list_ignored_folders() if _has_dependencies(folder, path)]


def _has_dependencies(folder: str, path: str) -> bool:
    if os.path.basename(path) in _FOLDER_NAMES:
        return True
    return os.path.isfile(os.path.join(folder, path, _ENVIRONMENT_FILE))


def copy_included(store: TreeStore, target: WorkingFiles) -> None:
    """Copy the ignored files that `.worktreeinclude` of the source names."""
    folder = store.source_files.folder
    patterns = read_inside(folder, INCLUDE_FILE)
    if patterns is None:
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(patterns)
        file.flush()
        paths = store.list_included(file.name)
    for path in paths:
        copy = os.path.join(target.folder, path)
        if not os.path.lexists(copy):
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            with suppress(OSError):  # a link, a pipe, or too large
                copy_inside(folder, path, copy, max_bytes=MAX_FILE_BYTES)
