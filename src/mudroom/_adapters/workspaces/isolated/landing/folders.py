"""Folders that take the place of a file or a link, or leave it to one.

Such a folder lands as one entry: it is staged with all that is in it, and its name is exchanged
with that of the file. What git does not see counts, too: a folder with an ignored file of the
user's in it is not the folder that the merge was planned with.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager

from ....._core.ports import LinkTarget
from ....._platform.open_beneath import open_new_folders, open_step_by_step
from ....._platform.paths import path_from_text
from ..._atomic_write import write_entry
from ..._checked_rename import read_entry
from ..._listing import FOLDER_FLAGS, MAX_DEPTH
from ..trees import is_link, list_parents
from .landing_record import InnerFile
from .required_rights import check_file, check_folder

_FLAGS = FOLDER_FLAGS | os.O_NOFOLLOW | os.O_CLOEXEC
_UNKNOWN = b"?"
"""Listing of a folder with anything that no plan names."""


class FolderListing(bytes):
    """What is in a folder: kind, id and path of each file. Empty folders in it do not count."""


class _UnknownEntry(Exception):
    """Something in a folder that the plan does not name."""


def list_planned(files: Iterable[InnerFile]) -> FolderListing:
    """Return the listing of a folder that has just these files."""
    lines = (_make_line(path_from_text(each.path), each.id, is_link(each.mode)) for each in files)
    return FolderListing(b"".join(sorted(lines)))


def list_present(
    parent: int, name: str, planned: Iterable[InnerFile], find_id: Callable[[bytes], str]
) -> FolderListing:
    """Return the listing of a folder. Raises OSError.

    Arguments:
        parent: descriptor of the folder above.
        planned: the files that are read; with any other the listing is that of no plan.
    """
    known = {path_from_text(each.path) for each in planned}
    lines: list[bytes] = []
    try:
        with _open(parent, name) as folder:
            for path, data in _read_files(folder, "", known):
                lines.append(_make_line(path, find_id(data), isinstance(data, LinkTarget)))
    except _UnknownEntry:
        return FolderListing(_UNKNOWN)
    return FolderListing(b"".join(sorted(lines)))


def _make_line(path: str, content: str, is_a_link: bool) -> bytes:
    return b"%s %s %s\0" % (os.fsencode(path), content.encode(), b"link" if is_a_link else b"file")


def _read_files(folder: int, prefix: str, known: Collection[str]) -> Iterator[tuple[str, bytes]]:
    for entry in _scan(folder):
        path = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            if prefix.count("/") >= MAX_DEPTH:
                raise _UnknownEntry
            with _open(folder, entry.name) as inner:
                yield from _read_files(inner, f"{path}/", known)
            continue
        data = read_entry(folder, entry.name) if path in known else None
        if data is None:
            raise _UnknownEntry
        yield path, data


def write_folder(
    parent: int, name: str, files: Sequence[InnerFile], read: Callable[[str], bytes]
) -> None:
    """Write a new folder with its files, and make all of it durable.

    After an error a part of it stays, which `remove_folder` removes.
    """
    os.mkdir(name, dir_fd=parent)
    with _open(parent, name) as folder:
        for file in files:
            above, last = os.path.split(path_from_text(file.path))
            inner = open_new_folders(folder, filter(None, above.split("/")))
            try:
                write_new(inner, last, read(file.id), file.mode)
            finally:
                os.close(inner)
        for inner, _ in _open_each(folder, files):
            os.fsync(inner)


def write_new(folder: int, name: str, data: bytes, mode: int) -> None:
    """Write a file or a link that replaces none. The umask counts, as for any new file.

    Arguments:
        mode: of the merge: git's, which opens a file to all, or the permissions of a private file.
    """
    permissions = {0o644: 0o666, 0o755: 0o777}.get(stat.S_IMODE(mode), stat.S_IMODE(mode))
    type_only = mode if is_link(mode) else None
    write_entry(folder, name, data, None, type_only, old_name=name, permissions=permissions)


def remove_folder(parent: int, name: str, files: Iterable[InnerFile]) -> None:
    """Remove a folder with the files of a plan, and the empty folders in it.

    Anything else stays where it is. Then this raises OSError.
    """
    known = {path_from_text(each.path) for each in files}
    with _open(parent, name) as folder:
        _remove_known(folder, "", known)
    os.rmdir(name, dir_fd=parent)


def _remove_known(folder: int, prefix: str, known: Collection[str]) -> None:
    for entry in _scan(folder):
        path = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            with _open(folder, entry.name) as inner:
                _remove_known(inner, f"{path}/", known)
            os.rmdir(entry.name, dir_fd=folder)
        elif path in known:
            os.unlink(entry.name, dir_fd=folder)


def check_removable(parent: int, path: str, files: Sequence[InnerFile]) -> None:
    """Raise WorkspaceError if a folder and its files cannot be removed.

    Arguments:
        path: of the folder, for errors.
    """
    with _open(parent, os.path.basename(path)) as top:
        for folder, above in _open_each(top, files):
            place = os.path.join(path, above) if above else path
            check_folder(folder, place)
            for file in files:
                inner, name = os.path.split(path_from_text(file.path))
                if inner == above:
                    check_file(folder, name, os.path.join(place, name), is_written=False)


def _open_each(top: int, files: Iterable[InnerFile]) -> Iterator[tuple[int, str]]:
    """Open each folder that files are in, the open one, too: descriptor and path below it."""
    for path in sorted({"", *list_parents(path_from_text(each.path) for each in files)}):
        folder = open_step_by_step(top, path or ".", FOLDER_FLAGS)
        try:
            yield folder, path
        finally:
            os.close(folder)


@contextmanager
def _open(parent: int, name: str) -> Generator[int]:
    descriptor = os.open(name, _FLAGS, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _scan(folder: int) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)
