"""Copies of a workspace: a plain copy of the folder for one run, removed when the run ends.

A copy holds the regular files that git does not ignore, with their permission bits and times. It
leaves out `.git`, ignored files (dependencies, build output), links, and files larger than
MAX_FILE_BYTES. A folder with more than MAX_FILES files or MAX_TOTAL_BYTES bytes is not copied.
"""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Generator
from contextlib import contextmanager

from .._core.ports import FileInfo, Workspace
from .._platform.path_text import path_from_text
from .._platform.scratch_dirs import ScratchDir
from ..errors import WorkspaceError

MAX_FILE_BYTES = 64 << 20
MAX_TOTAL_BYTES = 2 << 30
MAX_FILES = 100_000

_BLOCK = 1 << 20


@contextmanager
def copied_folder(source: Workspace, stop: threading.Event) -> Generator[str]:
    """Copy a workspace into a new folder of the same name; remove the folder at the end.

    Yields the absolute path of the copy.

    Arguments:
        stop: set from another thread to give up copying.

    Raises WorkspaceError if the folder is too large, or the copy cannot be written.
    """
    try:
        with ScratchDir() as scratch:
            # The base of all paths in the copy must be free of links, as a workspace's root is.
            folder = os.path.join(
                os.path.realpath(scratch), os.path.basename(source.root) or "copy"
            )
            os.mkdir(folder)
            _copy_files(source, folder, stop)
            yield folder
    except OSError as error:
        raise WorkspaceError(
            f"{source.root} cannot be copied: {error.strerror or error}",
            remedy="Free some space in the folder for temporary files.",
        ) from error


def _copy_files(source: Workspace, folder: str, stop: threading.Event) -> None:
    files = 0
    total = 0
    for info in source.walk():
        if stop.is_set():
            raise WorkspaceError(f"copying {source.root} was stopped")
        if info.size > MAX_FILE_BYTES:
            continue
        files += 1
        total += info.size
        if files > MAX_FILES or total > MAX_TOTAL_BYTES:
            raise WorkspaceError(
                f"{source.root} is too large for a copy: more than {MAX_FILES:,} files or "
                f"{MAX_TOTAL_BYTES >> 30} GiB",
                remedy="Use the shared workspace, or let git ignore what a copy does not need.",
            )
        _copy_file(source, info, os.path.join(folder, path_from_text(info.path)))


def _copy_file(source: Workspace, info: FileInfo, target: str) -> None:
    """Copy one file; a file that was removed meanwhile, or is not readable, is left out."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        with open(target, "xb") as output:
            if source.local is None:
                _copy_blocks(source, info.path, output.fileno())
            else:
                with os.fdopen(source.local.open(info.path), "rb") as file:
                    shutil.copyfileobj(file, output, _BLOCK)
    except WorkspaceError:
        os.unlink(target)
        return
    os.chmod(target, stat.S_IMODE(info.mode) & 0o777 | stat.S_IWUSR)
    os.utime(target, (info.mtime, info.mtime))


def _copy_blocks(source: Workspace, path: str, descriptor: int) -> None:
    offset = 0
    while block := source.read(path, offset, _BLOCK):
        os.write(descriptor, block)
        offset += len(block)
