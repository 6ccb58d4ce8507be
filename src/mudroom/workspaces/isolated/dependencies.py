"""Ignored files that an isolated workspace gets from the user's folder.

Folders with dependencies are shown read-only. Files that `.worktreeinclude` names are copied.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from contextlib import ExitStack, suppress

from ..._platform.open_beneath import open_new_file, open_step_by_step
from .repository import read_inside
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
    with ExitStack() as stack:
        source, copies = (_open_folder(stack, path) for path in (folder, target.folder))
        for path in paths:
            # What was listed may be a link by now, and the tree may have one in its place.
            with suppress(OSError):
                _copy_file(source, copies, path)


def _open_folder(stack: ExitStack, path: str) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    stack.callback(os.close, descriptor)
    return descriptor


def _copy_file(source: int, target: int, path: str) -> None:
    """Copy a file between two open folders, unless there is one, or it is too large.

    Raises OSError, also for a path that goes through a link in one of them.
    """
    with open(open_step_by_step(source, path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_FILE_BYTES:
            return
        mode = stat.S_IMODE(facts.st_mode) & 0o777
        with open(open_new_file(target, path, 0o600), "wb") as copy:
            shutil.copyfileobj(file, copy)
            copy.flush()
            os.fchmod(copy.fileno(), mode)
            os.utime(copy.fileno(), ns=(facts.st_atime_ns, facts.st_mtime_ns))
