"""Contents of working files on their way into the store.

git opens each file by its path. A command that exchanges a folder for a link at that moment would
have it store files from outside the folder. So contents are read here, beneath a descriptor of the
folder and without following links; git gets them as a stream and opens no file.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Sequence
from typing import BinaryIO

from ...._platform.open_beneath import open_step_by_step
from ...._platform.regular_files import check_regular
from ....errors import WorkspaceError
from .git import Git

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EINVAL, errno.EXDEV)
"""Errors for a path with no file or link: it was removed, or something else is in its place."""


def store_contents(
    git: Git, folder: str, paths: Sequence[str], find_id: Callable[[bytes], str]
) -> None:
    """Store files and links, and enter them into the index; remove what is there no longer.

    Arguments:
        git: with the index, and the prefix of the folder in it.
        find_id: returns the id of a content.

    Raises WorkspaceError for a file that cannot be read, and if there is no room to store it.
    """
    if not paths:
        return
    try:
        entries = _import_contents(git, folder, paths, find_id)
    except OSError as error:
        raise WorkspaceError(
            f"a file cannot be stored: {error.strerror}",
            where=folder,
            remedy="Look at the rights of its files, and at the room on the disk.",
        ) from error
    git.run("update-index", "-z", "--index-info", data=b"".join(entries))
    # Facts about the files, so that the next look need not read them; it compares, and stores none.
    git.run("update-index", "-q", "--refresh", codes=(0, 1))


def _import_contents(
    git: Git, folder: str, paths: Sequence[str], find_id: Callable[[bytes], str]
) -> list[bytes]:
    """Store the contents of files and links; return the lines of the index for them."""
    entries: list[bytes] = []
    none = "0" * len(find_id(b""))
    top = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with tempfile.TemporaryFile(dir=git.directory) as stream:
            for path in paths:
                mode, object_id = _add_content(stream, top, path, find_id) or (0, none)
                name = os.fsencode(f"{git.prefix}{path}")
                entries.append(b"%o %s\t%s\0" % (mode, object_id.encode(), name))
            stream.seek(0)
            git.run("fast-import", "--quiet", read_from=stream)
        return entries
    finally:
        os.close(top)


def _add_content(
    stream: BinaryIO, top: int, path: str, find_id: Callable[[bytes], str]
) -> tuple[int, str] | None:
    """Write a content to the stream; return its mode and id, None if there is none."""
    try:
        mode, data = read_content(top, path)
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise
    stream.write(b"blob\ndata %d\n" % len(data))
    stream.write(data)
    stream.write(b"\n")
    return mode, find_id(data)


def read_content(top: int, path: str) -> tuple[int, bytes]:
    """Return git's mode and the content of a file or link below an open folder. Raises OSError."""
    folder, _, name = path.rpartition("/")
    parent = open_step_by_step(top, folder or ".", os.O_PATH | os.O_DIRECTORY)
    try:
        if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            return 0o120000, os.fsencode(os.readlink(name, dir_fd=parent))
        with open(open_step_by_step(parent, name, _FLAGS), "rb") as file:
            facts = os.fstat(file.fileno())
            check_regular(facts, path)
            return 0o100755 if facts.st_mode & stat.S_IXUSR else 0o100644, file.read()
    finally:
        os.close(parent)
