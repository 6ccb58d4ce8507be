"""Files that somebody else wrote: read whole or not at all, bounded, text only, and never outside the folder they belong to."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from .diagnostics import FileDiagnostics

MAX_BYTES = 1 << 20
"""Bytes of a file that is read."""
MAX_FILES = 1_000
"""Files looked at below one folder."""
MAX_DEPTH = 6
"""Folders below one another that are looked into."""


def read_text(path: str, within: str, notes: FileDiagnostics) -> str | None:
    """The text of a file without its byte order mark, line ends as \\n; None, and the reason in `notes`, when it cannot be had.

    Arguments:
        within: real path of the folder that the file, links followed, must lie beneath; "" for anywhere.
    """
    real = os.path.realpath(path)
    if within and not is_beneath(real, within):
        notes.add_error(1, f"a link that leads out of {within}")
        return None
    try:
        with open(os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                notes.add_error(1, "not a regular file")
                return None
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        notes.add_error(1, f"cannot be read: {getattr(error, 'strerror', None) or error}")
        return None
    return _decoded(data, notes)


def _decoded(data: bytes, notes: FileDiagnostics) -> str | None:
    if len(data) > MAX_BYTES:
        notes.add_error(1, f"larger than {MAX_BYTES:,} bytes")
    elif (at := data.find(b"\0")) >= 0:
        notes.add_error(data.count(b"\n", 0, at) + 1, "binary, not text")
    else:
        try:
            return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        except UnicodeDecodeError as error:
            notes.add_error(data.count(b"\n", 0, error.start) + 1, "not UTF-8")
    return None


def is_beneath(path: str, folder: str) -> bool:
    """Whether a path is `folder` or in it; both absolute and free of links."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def find_files(folder: str, suffix: str, *, recursive: bool = True) -> Iterator[str]:
    """Paths of files whose names end with `suffix` in a folder and, if `deep`, the folders in it, sorted.

    Links to folders are not followed, so there are no circles; at most FILES files, DEPTH folders deep.
    """
    left, folders = MAX_FILES, [(folder, 1)]
    while folders and left:
        at, depth = folders.pop()
        try:
            with os.scandir(at) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in listed:
            if entry.is_dir(follow_symlinks=False):
                continue
            if entry.name.endswith(suffix) and left:
                left -= 1
                yield entry.path
        if recursive and depth < MAX_DEPTH:
            folders.extend(
                (entry.path, depth + 1)
                for entry in reversed(listed)
                if entry.is_dir(follow_symlinks=False)
            )
