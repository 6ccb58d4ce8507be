"""The shared workspace: one folder for all runs; every open is relative to a descriptor.

No path, link or race leads out of the folder: see `open_beneath`.
"""

from __future__ import annotations

import errno
import functools
import os
import stat
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress

from ..._core.ports import ContentCheck, FileInfo, LinkTarget
from ..._platform.open_beneath import (
    Opener,
    choose_opener,
    find_real_path,
    is_beneath,
    open_with_openat2,
)
from ..._platform.paths import path_from_text, path_to_text
from ...errors import WorkspaceError
from ._atomic_write import (
    read_link,
    remove_file,
    remove_temporary_files,
    stat_entry,
    write_atomically,
)
from ._errors import check_unprotected, explain, make_not_a_file_error, make_outside_error
from ._listing import (
    FOLDER_FLAGS,
    IgnoreRules,
    Listing,
    describe_file,
    hold_open,
    read_patterns,
    read_rules_above,
)


class SharedWorkspace:
    """The files beneath one folder on this machine. Implements Workspace and LocalFiles.

    Paths are valid text (see `path_to_text`). Inside this class, a *located* path is a file system
    path.

    Arguments:
        root: an existing folder.
        readable: other absolute folders (such as skills) that may be read but not written.
        spill_folder: absolute folder whose files can be read by exact path only. It is never
            listed, and its subfolders cannot be reached, because runs share it.
        copied_from: the folder the files were copied from. Absolute paths in it are accepted and
            mean the files here.
        kernel: True requires openat2, False the step-by-step walk that follows no links;
            None uses openat2 if the kernel has it.

    Raises WorkspaceError when the folder cannot be opened.
    """

    def __init__(
        self,
        root: str,
        readable: Sequence[str] = (),
        *,
        spill_folder: str = "",
        copied_from: str = "",
        kernel: bool | None = None,
    ) -> None:
        self.root = find_real_path(root)
        self._spellings = (self.root, os.path.abspath(root))
        if copied_from:
            self._spellings += (copied_from,)
        self._readable = tuple(find_real_path(folder) for folder in readable)
        self._spill_folder = find_real_path(spill_folder) if spill_folder else ""
        self._kernel = kernel
        try:
            self._descriptor = os.open(self.root, FOLDER_FLAGS | os.O_CLOEXEC)
        except OSError as error:
            raise WorkspaceError(
                f"the folder {root} cannot be opened: {error.strerror}",
                remedy="Name a folder that exists.",
            ) from error
        weakref.finalize(self, os.close, self._descriptor)

    @functools.cached_property
    def _opener(self) -> Opener:
        """Chosen at the first file, because trying openat2 imports ctypes."""
        return choose_opener(kernel=self._kernel)

    @property
    def local(self) -> SharedWorkspace:
        return self

    def locate(self, path: str) -> str:
        """Return the path relative to the root; a path in a readable folder stays absolute."""
        return path_to_text(self._locate(path))

    def _locate(self, path: str) -> str:
        return _locate_in(self.root, self._spellings, self._readable, self._spill_folder, path)

    def stat(self, path: str) -> FileInfo:
        located = self._locate(path)
        with hold_open(self._open_located(located, os.O_PATH)) as descriptor:
            facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) and not stat.S_ISDIR(facts.st_mode):
            raise make_not_a_file_error(path, facts.st_mode)
        return describe_file(located, facts)

    def open(self, path: str) -> int:
        """Open a regular file for reading, without waiting, and return its descriptor."""
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
        descriptor = self._open_located(self._locate(path), flags)
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            os.close(descriptor)
            raise make_not_a_file_error(path, mode)
        return descriptor

    def read(self, path: str, offset: int, size: int) -> bytes:
        data = b""
        with hold_open(self.open(path)) as descriptor:
            try:
                # A system call may return less than requested.
                while piece := os.pread(descriptor, size - len(data), offset + len(data)):
                    data += piece
            except OSError as error:
                raise explain(error, path, self.root) from error
        return data

    def write(
        self,
        path: str,
        data: bytes,
        *,
        mode: int | None = None,
        check: ContentCheck | None = None,
    ) -> bool:
        located = self._locate_writable(path)
        parent, name = os.path.split(located)
        folder = self._open_folder(parent or ".")
        try:
            self._check_opened_folder(folder, path)
            old = stat_entry(folder, name)
            is_link = old is not None and stat.S_ISLNK(old.st_mode)
            if is_link and not stat.S_IFMT(mode or 0):
                target = self._read_link_target(located)
                return self.write(target, data, mode=mode, check=check)
            if old is not None and not is_link:
                _check_writable(path, folder, name, old.st_mode)
            write_atomically(folder, name, data, None if is_link else old, mode, check)
        except OSError as error:
            raise explain(error, path, self.root) from error
        finally:
            os.close(folder)
        return old is None

    def read_link(self, path: str) -> LinkTarget | None:
        located = self._locate(path)
        parent, name = os.path.split(located)
        try:
            folder = self._open_located(parent or ".", FOLDER_FLAGS)
        except WorkspaceError:
            return None  # the folder does not exist
        try:
            return read_link(folder, name or ".")
        except OSError as error:
            raise explain(error, path, self.root) from error
        finally:
            os.close(folder)

    def remove(self, path: str, *, check: ContentCheck | None = None) -> None:
        located = self._locate_writable(path)
        parent, name = os.path.split(located)
        folder = self._open_located(parent or ".", FOLDER_FLAGS)
        try:
            self._check_opened_folder(folder, path)
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
                raise make_not_a_file_error(path, mode)
            remove_file(folder, name, check)
        except OSError as error:
            raise explain(error, path, self.root) from error
        finally:
            os.close(folder)

    def remove_unfinished(self, path: str) -> None:
        """Remove temporary files left by an interrupted `write` of this path."""
        parent = os.path.dirname(self._locate(path)) or "."
        try:
            folder = self._open_located(parent, FOLDER_FLAGS)
        except WorkspaceError:
            return  # the folder does not exist
        with hold_open(folder):
            remove_temporary_files(folder)

    def walk(
        self, path: str = ".", *, ignored: bool = False, skipped: list[str] | None = None
    ) -> Iterator[FileInfo]:
        start = self.stat(path)
        if stat.S_ISREG(start.mode):
            yield start
            return
        listing = Listing(self.root, [] if skipped is None else skipped)
        yield from self._walk(listing, path, ignored=ignored)

    def walk_entries(
        self, path: str = ".", *, ignored: bool = False, skipped: list[str] | None = None
    ) -> Iterator[FileInfo]:
        listing = Listing(self.root, [] if skipped is None else skipped, all_entries=True)
        yield from self._walk(listing, path, ignored=ignored)

    def _walk(self, listing: Listing, path: str, *, ignored: bool) -> Iterator[FileInfo]:
        located = self._locate(path)
        if self._is_spill(located):
            raise make_outside_error(path, self.root)
        rules = None if ignored else self._list_rules_above(located)
        folder = self._open_located(located, FOLDER_FLAGS)
        yield from listing.walk(folder, "" if located == "." else located, rules)

    def _list_rules_above(self, located: str) -> IgnoreRules:
        """Read the rules of the folders from the repository down to a folder's parent."""
        rules = read_rules_above(self.root)
        rules = rules.extend("", read_patterns(self._descriptor, ".git/info/exclude"))
        if os.path.isabs(located) or located == ".":
            return rules
        parent = ""
        for name in located.split("/"):
            file = f"{parent}/.gitignore" if parent else ".gitignore"
            rules = rules.extend(parent, read_patterns(self._descriptor, file))
            parent = f"{parent}/{name}" if parent else name
        return rules

    def _open_located(self, located: str, flags: int) -> int:
        """Open a path from `locate` beneath its folder."""
        try:
            if not located.startswith("/"):
                return self._opener(self._descriptor, located, flags)
            readable = self._find_readable(located)
            with hold_open(os.open(readable, FOLDER_FLAGS | os.O_CLOEXEC)) as base:
                return self._opener(base, os.path.relpath(located, readable), flags)
        except OSError as error:
            raise explain(error, path_to_text(located), self.root) from error

    def _is_spill(self, located: str) -> bool:
        return bool(self._spill_folder) and os.path.dirname(located) == self._spill_folder

    def _find_readable(self, located: str) -> str:
        """Find the folder outside the root that a path from `locate` belongs to."""
        if self._is_spill(located):
            return self._spill_folder
        return next(folder for folder in self._readable if is_beneath(located, folder))

    def _open_folder(self, located: str) -> int:
        """Open a folder beneath the root, creating it and its parents if missing."""
        missing: list[str] = []
        present = located
        try:
            while True:
                try:
                    folder = self._opener(self._descriptor, present, FOLDER_FLAGS)
                    break
                except FileNotFoundError:
                    present, name = os.path.split(present)
                    present = present or "."
                    missing.append(name)
            while missing:
                folder = self._make_folder(folder, missing.pop(), path_to_text(located))
        except OSError as error:
            raise explain(error, path_to_text(located), self.root) from error
        return folder

    def _make_folder(self, folder: int, name: str, path: str) -> int:
        """Make and open a folder in an open one, which is then closed. `path`: for errors."""
        with hold_open(folder):
            self._check_opened_folder(folder, path)
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder)
            return self._opener(folder, name, FOLDER_FLAGS)

    def _locate_writable(self, path: str) -> str:
        located = self._locate(path)
        if os.path.isabs(located):
            raise WorkspaceError(
                f"{path} may be read, not written", remedy=f"Write beneath {self.root}."
            )
        if located == ".":
            raise make_not_a_file_error(path, stat.S_IFDIR)
        check_unprotected(located, path)
        return located

    def _check_opened_folder(self, folder: int, path: str) -> None:
        """Check an open folder's real path: the kernel may have followed a link."""
        if self._opener is open_with_openat2:
            real = os.readlink(f"/proc/self/fd/{folder}")
            check_unprotected(os.path.relpath(real, self.root), path)

    def _read_link_target(self, located: str) -> str:
        """Resolve a link to a path without links."""
        if self._opener is not open_with_openat2:
            raise explain(OSError(errno.ELOOP, ""), path_to_text(located), self.root)
        with hold_open(self._open_located(located, os.O_PATH)) as descriptor:
            return self.locate(path_to_text(os.readlink(f"/proc/self/fd/{descriptor}")))


@functools.lru_cache(maxsize=256)
def _locate_in(
    root: str,
    spellings: tuple[str, ...],
    readable: tuple[str, ...],
    spill_folder: str,
    path: str,
) -> str:
    """Locate a path; cached, because each tool call needs it several times."""
    _check_characters(path)
    absolute = os.path.normpath(os.path.join(root, path_from_text(path)))
    for folder in spellings:
        if is_beneath(absolute, folder):
            return absolute[len(folder) :].lstrip("/") or "."
    is_spill = bool(spill_folder) and os.path.dirname(absolute) == spill_folder
    if is_spill or any(is_beneath(absolute, folder) for folder in readable):
        return absolute
    raise make_outside_error(path, root)


def _check_characters(path: str) -> None:
    """Refuse a path that no file system accepts; a system call would cut it at NUL."""
    if not path:
        raise WorkspaceError("the path is empty", remedy="Name a file.")
    try:
        is_invalid = b"\0" in os.fsencode(path)
    except UnicodeEncodeError:
        is_invalid = True
    if is_invalid:
        raise WorkspaceError(
            f"{path!r} contains a character that no path can have", remedy="Leave it out."
        )


def _check_writable(path: str, folder: int, name: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise make_not_a_file_error(path, mode)
    if not os.access(name, os.W_OK, dir_fd=folder):
        raise WorkspaceError(
            f"{path} is read-only (mode {stat.S_IMODE(mode):04o})",
            remedy="If it should change, change its mode first.",
        )
