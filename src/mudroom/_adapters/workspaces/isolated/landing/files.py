"""The files of a landing: each is staged beside its target, renamed, and put back on error.

Anything that would forbid a rename, such as a read-only folder, is checked before the first one.

Every folder is opened relative to its parent, and no link is followed: it was a folder when the
merge was planned. A folder that replaces a file lands as one entry: it is staged with its contents,
and its name is exchanged with the file's. Files that git does not see count as well: with an
ignored file of the user's in it, a folder is not the one the merge was planned with.
"""

from __future__ import annotations

import array
import errno
import os
import stat
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Protocol

from msgspec.structs import replace

from ....._core.ports import ContentCheck, FileChangedError, LinkTarget
from ....._platform.open_beneath import (
    open_new_folders,
    open_step_by_step,
    remove_empty_folder,
)
from ....._platform.paths import path_from_text, path_to_text
from .....errors import WorkspaceError
from ..._atomic_write import (
    EntryReader,
    entry_exists,
    finish_exchange,
    put_back,
    read_entry,
    replace_checked,
    set_aside_checked,
    stat_entry,
    write_entry,
)
from ..._listing import FOLDER_FLAGS, MAX_DEPTH, hold_open
from ..store import FOLDER, LINK, REGULAR, is_link, list_parents
from .landing_record import InnerFile, LandingFile

_SOMETHING_ELSE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.EINVAL)
"""Errors for a path where the plan expects a file, but something else is there by now."""

_EXECUTE = 0o111
_READ = 0o444


class Contents(Protocol):
    """The store with the merge's contents."""

    def read(self, object_id: str) -> bytes: ...

    def find_id(self, data: bytes) -> str: ...


class LandingFolder:
    """The folder where files land. The methods raise OSError and FileChangedError."""

    def __init__(self, root: str, contents: Contents) -> None:
        self.root = root
        self._contents = contents
        self._top = os.open(root, FOLDER_FLAGS | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._top)

    def find_missing_folders(self, paths: Iterable[str]) -> list[str]:
        """List missing folders that the files need, parents first."""
        missing: dict[str, None] = {}
        for path in paths:
            above: list[str] = []
            while (path := os.path.dirname(path)) and path not in missing:
                if os.path.lexists(os.path.join(self.root, path_from_text(path))):
                    break
                above.append(path)
            missing.update(dict.fromkeys(reversed(above)))
        return list(missing)

    def require_unchanged(self, file: LandingFile) -> None:
        try:
            with self._open_folder(file) as (folder, name):
                present = self._read(file, folder, name)
        except OSError as error:
            if error.errno not in _SOMETHING_ELSE:
                raise
            if error.errno != errno.ENOENT:
                raise FileChangedError(file.path) from None
            present = None
        if not self._make_check(file.before, file.old_type)(present):
            raise FileChangedError(file.path)

    def is_folder(self, path: str) -> bool:
        with suppress(OSError):
            folder = open_step_by_step(self._top, path_from_text(path), FOLDER_FLAGS)
            os.close(folder)
            return True
        return False

    def stage(self, file: LandingFile) -> LandingFile:
        """Write the new content beside the target, if the rename is permitted."""
        with self._open_folder(file, makes_folders=bool(file.after)) as (folder, name):
            path = path_from_text(file.path)
            check_folder(folder, os.path.dirname(path) or ".")
            is_written = bool(file.after) and file.new_files is None
            check_file(folder, name, path, is_written=is_written)
            if file.old_files is not None:
                check_removable(folder, path, file.old_files)
            if not file.after:
                return file
            if file.new_files is not None:
                write_folder(folder, file.temporary, file.new_files, self._contents.read)
            else:
                self._write_file(folder, name, file, file.after, file.mode)
            inode = os.stat(file.temporary, dir_fd=folder, follow_symlinks=False).st_ino
            return replace(file, inode=inode)

    def _write_file(
        self, folder: int, name: str, file: LandingFile, content: str, mode: int
    ) -> None:
        """Write content under the temporary name, with whatever it keeps of the old file."""
        old = stat_entry(folder, name)
        if old and not stat.S_ISREG(old.st_mode):
            old = None
        data = self._contents.read(content)
        if old is None:
            write_new(folder, file.temporary, data, mode)
        else:
            chosen = _choose_mode(mode, old)
            write_entry(folder, file.temporary, data, old, chosen, old_name=name)

    def is_renamed(self, file: LandingFile) -> bool:
        """Return whether a file of a killed landing already has its name, or is removed."""
        try:
            with self._open_folder(file) as (folder, name):
                finish_exchange(folder, file.temporary, name)
                temporary = stat_entry(folder, file.temporary)
                if not file.after:
                    return temporary is not None or not entry_exists(folder, name)
                present = stat_entry(folder, name)
                if present and present.st_ino == file.inode:
                    return True
                if temporary and temporary.st_ino == file.inode:
                    return False
                # Something such as `git clean` removed one of the two; the other one tells.
                if temporary:
                    return not self._is_new(file, folder, file.temporary, temporary)
                return present is not None and self._is_new(file, folder, name, present)
        except OSError as error:
            if error.errno in _SOMETHING_ELSE:
                return False
            raise

    def _is_new(self, file: LandingFile, folder: int, name: str, facts: os.stat_result) -> bool:
        """Return whether an entry has the content and mode that the merge gives it."""
        is_executable = bool(facts.st_mode & stat.S_IXUSR)
        if file.before == file.after and is_executable != bool(file.mode & _EXECUTE):
            return False
        check = self._make_check(file.after, file.new_type)
        return check(self._read(file, folder, name))

    def stage_again(self, file: LandingFile) -> None:
        """Stage a file of a killed landing again, if the staged file was removed."""
        if file.after:
            with self._open_folder(file, makes_folders=True) as (folder, _):
                present = stat_entry(folder, file.temporary)
                is_staged = present is not None
                if file.new_files is not None and present:  # part of it may be gone
                    is_staged = self._is_new(file, folder, file.temporary, present)
            if not is_staged:
                self.remove_temporary(file)
                self.stage(file)

    def rename(self, file: LandingFile) -> None:
        """Give the new file its name, and the old one, if any, the temporary name."""
        check = self._make_check(file.before, file.old_type)
        with self._name_errors(file), self._open_folder(file) as (folder, name):
            if file.after:
                replace_checked(folder, file.temporary, name, check, self._make_reader(file))
            else:
                set_aside_checked(folder, name, file.temporary, check)

    def undo(self, file: LandingFile) -> None:
        """Undo `rename`: the old file gets its name back, with its mode and owner."""
        check = self._make_check(file.after, file.new_type)
        with self._name_errors(file), self._open_folder(file) as (folder, name):
            if file.before and not entry_exists(folder, file.temporary):
                self._write_old(folder, name, file)
            if not file.after:
                try:
                    put_back(folder, file.temporary, name)
                except FileExistsError:  # the user made another
                    raise FileChangedError(file.path) from None
            elif file.before:
                replace_checked(folder, file.temporary, name, check, self._make_reader(file))
            else:
                set_aside_checked(folder, name, file.temporary, check)

    def _write_old(self, folder: int, name: str, file: LandingFile) -> None:
        """Restore the old file from the store after a program such as `git clean` removed it."""
        if file.old_files is not None:
            write_folder(folder, file.temporary, file.old_files, self._contents.read)
        else:
            mode = LINK if file.was_link else file.mode
            self._write_file(folder, name, file, file.before, mode)

    def remove_temporary(self, file: LandingFile) -> None:
        with suppress(FileNotFoundError), self._open_folder(file) as (folder, name):
            finish_exchange(folder, file.temporary, name)
            facts = stat_entry(folder, file.temporary)
            if facts and stat.S_ISDIR(facts.st_mode):
                remove_folder(folder, file.temporary, file.inner_files)
            elif facts:
                os.unlink(file.temporary, dir_fd=folder)

    def remove_empty(self, path: str) -> None:
        remove_empty_folder(self._top, path_from_text(path))

    def sync(self, files: Iterable[LandingFile]) -> None:
        """Make the files' names durable, where their folders still exist."""
        for parent in {os.path.dirname(path_from_text(file.path)) for file in files}:
            with suppress(OSError):
                folder = open_step_by_step(self._top, parent or ".", FOLDER_FLAGS)
                with hold_open(folder):
                    os.fsync(folder)

    @contextmanager
    def _open_folder(
        self, file: LandingFile, *, makes_folders: bool = False
    ) -> Generator[tuple[int, str]]:
        parent, name = os.path.split(path_from_text(file.path))
        if makes_folders:
            folder = open_new_folders(self._top, filter(None, parent.split("/")))
        else:
            folder = open_step_by_step(self._top, parent or ".", FOLDER_FLAGS)
        with hold_open(folder):
            yield folder, name

    @contextmanager
    def _name_errors(self, file: LandingFile) -> Generator[None]:
        """Make FileChangedError name the whole path."""
        try:
            yield
        except FileChangedError:
            raise FileChangedError(file.path) from None
        except OSError as error:
            if error.errno not in _SOMETHING_ELSE:
                raise
            raise FileChangedError(file.path) from None

    def _read(self, file: LandingFile, folder: int, name: str) -> bytes | None:
        """Read an entry as `read_entry` does, or as a listing where it may be a folder."""
        facts = stat_entry(folder, name) if FOLDER in (file.old_type, file.new_type) else None
        if facts and stat.S_ISDIR(facts.st_mode):
            return list_present(folder, name, file.inner_files, self._contents.find_id)
        return read_entry(folder, name)

    def _make_reader(self, file: LandingFile) -> EntryReader:
        return lambda folder, name: self._read(file, folder, name)

    def _make_check(self, content: str, expected: int) -> ContentCheck:
        def check(data: bytes | None) -> bool:
            if data is None:
                return not content
            return _find_type(data) == expected and self._contents.find_id(data) == content

        return check


def _find_type(data: bytes) -> int:
    if isinstance(data, FolderListing):
        return FOLDER
    return LINK if isinstance(data, LinkTarget) else REGULAR


def _choose_mode(mode: int, old: os.stat_result) -> int:
    """Combine git's mode with the old file's other permissions, which git does not know."""
    if is_link(mode):
        return mode
    kept = stat.S_IMODE(old.st_mode) & ~_EXECUTE
    if mode & _EXECUTE:
        executable = stat.S_IMODE(old.st_mode) & _EXECUTE
        kept |= executable or (kept & _READ) >> 2
    return stat.S_IFREG | kept


_FLAGS = FOLDER_FLAGS | os.O_NOFOLLOW | os.O_CLOEXEC
_UNKNOWN = b"?"  # listing of a folder that contains anything no plan names


class FolderListing(bytes):
    """Contents of a folder: kind, id and path of each file. Empty folders do not count."""


class _UnknownEntry(Exception):
    """A folder contains something the plan does not name."""


def list_planned(files: Iterable[InnerFile]) -> FolderListing:
    lines = (_make_line(path_from_text(each.path), each.id, is_link(each.mode)) for each in files)
    return FolderListing(b"".join(sorted(lines)))


def list_present(
    parent: int, name: str, planned: Iterable[InnerFile], find_id: Callable[[bytes], str]
) -> FolderListing:
    """List a folder's contents. If a file is not planned, the listing matches no plan."""
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
    """Write a new folder durably. After an error, `remove_folder` removes what was written."""
    os.mkdir(name, dir_fd=parent)
    with _open(parent, name) as folder:
        for file in files:
            above, last = os.path.split(path_from_text(file.path))
            with hold_open(open_new_folders(folder, filter(None, above.split("/")))) as inner:
                write_new(inner, last, read(file.id), file.mode)
        for inner, _ in _open_each(folder, files):
            os.fsync(inner)


def write_new(folder: int, name: str, data: bytes, mode: int) -> None:
    """Write a file or link that replaces nothing. The umask applies, as for any new file.

    `mode` is git's, which lets everybody read a file, or the permissions of a private file.
    """
    permissions = {0o644: 0o666, 0o755: 0o777}.get(stat.S_IMODE(mode), stat.S_IMODE(mode))
    type_only = mode if is_link(mode) else None
    write_entry(folder, name, data, None, type_only, old_name=name, permissions=permissions)


def remove_folder(parent: int, name: str, files: Iterable[InnerFile]) -> None:
    """Remove a folder with a plan's files. Anything else stays, and raises OSError."""
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
    with _open(parent, os.path.basename(path)) as top:
        for folder, above in _open_each(top, files):
            place = os.path.join(path, above) if above else path
            check_folder(folder, place)
            for file in files:
                inner, name = os.path.split(path_from_text(file.path))
                if inner == above:
                    check_file(folder, name, os.path.join(place, name), is_written=False)


def _open_each(top: int, files: Iterable[InnerFile]) -> Iterator[tuple[int, str]]:
    """Open each folder that contains files, and the top; yield its descriptor and path."""
    for path in sorted({"", *list_parents(path_from_text(each.path) for each in files)}):
        with hold_open(open_step_by_step(top, path or ".", FOLDER_FLAGS)) as folder:
            yield folder, path


def _open(parent: int, name: str) -> AbstractContextManager[int]:
    return hold_open(os.open(name, _FLAGS, dir_fd=parent))


def _scan(folder: int) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)


_READ_FLAGS = 0x8000_6601 | (array.array("l").itemsize << 16)
"""FS_IOC_GETFLAGS: the ioctl request for the attributes that `chattr` sets."""

_IMMUTABLE = 0x10
_APPEND_ONLY = 0x20


def check_folder(folder: int, path: str) -> None:
    """Raise WorkspaceError if names in an open folder cannot be changed."""
    _check_attributes(folder, path)
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=folder, effective_ids=_HAS_EFFECTIVE_IDS):
        mode = stat.S_IMODE(os.fstat(folder).st_mode)
        raise WorkspaceError(
            f"the folder {path_to_text(path)} is read-only (mode {mode:04o})",
            remedy="If its files should change, change its mode first.",
        )


def check_file(folder: int, name: str, path: str, *, is_written: bool) -> None:
    """Raise WorkspaceError if a file of an open folder cannot be replaced or removed.

    `is_written` means its content changes: a removal needs no right to write the file.
    """
    facts = stat_entry(folder, name)
    if facts is None:
        return
    if stat.S_ISREG(facts.st_mode):
        _check_file_attributes(folder, name, path)
        if is_written and not os.access(
            name, os.W_OK, dir_fd=folder, effective_ids=_HAS_EFFECTIVE_IDS
        ):
            raise _explain_read_only(facts, path)
    above = os.fstat(folder)
    user = os.geteuid()
    if above.st_mode & stat.S_ISVTX and user not in (0, above.st_uid, facts.st_uid):
        raise WorkspaceError(
            f"{path_to_text(path)} belongs to another user (number {facts.st_uid}), and only the "
            "owner may replace files in this folder (it has the sticky bit)",
            remedy="Let its owner change it.",
        )


def _explain_read_only(facts: os.stat_result, path: str) -> WorkspaceError:
    mode = stat.S_IMODE(facts.st_mode)
    message = f"{path_to_text(path)} is read-only (mode {mode:04o})"
    if facts.st_uid == os.geteuid():
        return WorkspaceError(message, remedy="If it should change, change its mode first.")
    return WorkspaceError(
        f"{message} and belongs to another user (number {facts.st_uid})",
        remedy="If it should change, let its owner change its mode first.",
    )


def _check_file_attributes(folder: int, name: str, path: str) -> None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError:
        return  # the rename will tell
    with hold_open(descriptor):
        _check_attributes(descriptor, path)


def _check_attributes(descriptor: int, path: str) -> None:
    """Raise WorkspaceError if an open file or folder has an attribute that forbids renames."""
    attributes = _read_attributes(descriptor)
    for bit, letter, adjective in (
        (_IMMUTABLE, "i", "immutable"),
        (_APPEND_ONLY, "a", "append-only"),
    ):
        if attributes & bit:
            raise WorkspaceError(
                f"{path_to_text(path)} is {adjective} (chattr +{letter})",
                remedy=f"If it should change, remove the attribute with `chattr -{letter}` first.",
            )


def _read_attributes(descriptor: int) -> int:
    """Return the attributes of an open file, 0 if the file system has none."""
    if sys.platform != "linux":
        return 0
    import fcntl

    buffer = array.array("i", [0, 0])  # the kernel fills an int, though the request names a long
    try:
        fcntl.ioctl(descriptor, _READ_FLAGS, buffer)
    except OSError:
        return 0
    return buffer[0]


_HAS_EFFECTIVE_IDS = os.access in os.supports_effective_ids
