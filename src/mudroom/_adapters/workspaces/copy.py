"""Copies of a workspace: a plain copy of the folder for one run, removed at its end.

A copy holds the regular files that git does not ignore, with their permission bits and times. It
omits `.git`, ignored files (dependencies, build output), links, and files larger than
MAX_FILE_BYTES. A folder with more than MAX_FILES files or MAX_TOTAL_BYTES bytes is not copied.
"""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Generator
from contextlib import contextmanager

from ..._core.ports import FileInfo, Workspace
from ..._platform.paths import path_from_text
from ..._platform.scratch_dirs import ScratchDir, choose_default_base
from ...errors import WorkspaceError

MAX_FILE_BYTES = 64 << 20
MAX_TOTAL_BYTES = 2 << 30
MAX_FILES = 100_000

_BLOCK = 1 << 20
_MAX_NAMED = 5  # missing files to name; the rest is counted


@contextmanager
def make_temporary_copy(source: Workspace, stop: threading.Event) -> Generator[tuple[str, str]]:
    """Copy a workspace into a new folder of the same name; remove the folder at the end.

    Yields the absolute path of the copy, and the missing files with reasons ("" if none). Another
    thread sets `stop` to abandon the copy. Raises WorkspaceError if the folder is too large or the
    copy cannot be written.
    """
    try:
        scratch = ScratchDir()
    except OSError as error:
        raise _make_copy_error(source, choose_default_base(), error) from error
    with scratch as base:
        # The base of all paths in the copy must be free of links, as a workspace's root is.
        folder = os.path.join(os.path.realpath(base), os.path.basename(source.root) or "copy")
        try:
            os.mkdir(folder)
            missing = _copy_files(source, folder, stop)
        except OSError as error:
            raise _make_copy_error(source, os.path.dirname(base), error) from error
        yield folder, _describe_missing(missing)


def _make_copy_error(source: Workspace, base: str, error: OSError) -> WorkspaceError:
    return WorkspaceError(
        f"{source.root} cannot be copied to {base}: {error.strerror or error}",
        remedy="Free some space there, or set TMPDIR to another folder.",
    )


def _describe_missing(missing: list[str]) -> str:
    if not missing:
        return ""
    named = ", ".join(missing[:_MAX_NAMED])
    more = len(missing) - _MAX_NAMED
    return named + (f" and {more:,} more" if more > 0 else "")


def _copy_files(source: Workspace, folder: str, stop: threading.Event) -> list[str]:
    """Copy the files; return those left out, with reasons."""
    files = 0
    total = 0
    missing: list[str] = []
    skipped: list[str] = []
    for info in source.walk(skipped=skipped):
        if stop.is_set():
            raise WorkspaceError(f"copying {source.root} was stopped")
        if info.size > MAX_FILE_BYTES:
            missing.append(f"{info.path} (larger than {MAX_FILE_BYTES >> 20} MiB)")
            continue
        files += 1
        total += info.size
        if files > MAX_FILES or total > MAX_TOTAL_BYTES:
            raise WorkspaceError(
                f"{source.root} is too large for a copy: more than {MAX_FILES:,} files or "
                f"{MAX_TOTAL_BYTES >> 30} GiB",
                remedy="Use the shared workspace, or let git ignore what a copy does not need.",
            )
        if not _copy_file(source, info, os.path.join(folder, path_from_text(info.path))):
            missing.append(f"{info.path} (cannot be read)")
    return missing + [f"{path} (cannot be listed)" for path in skipped]


def _copy_file(source: Workspace, info: FileInfo, target: str) -> bool:
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
        return False
    os.chmod(target, stat.S_IMODE(info.mode) & 0o777 | stat.S_IWUSR)
    os.utime(target, (info.mtime, info.mtime))
    return True


def _copy_blocks(source: Workspace, path: str, descriptor: int) -> None:
    offset = 0
    while block := source.read(path, offset, _BLOCK):
        os.write(descriptor, block)
        offset += len(block)
