"""One folder that all runs share: every open is relative to its descriptor, so no path, link or race leads out of it."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import weakref
from collections.abc import Iterator, Sequence

from .._core.ports import FileInfo
from .._platform.protected_names import UNFINISHED_PREFIX, find_protected_component
from ..errors import WorkspaceError
from ._ignore import IgnoreRules
from ._open_beneath import choose_opener, open_step_by_step, open_with_openat2

_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_PATTERNS = 1 << 20
_REASONS = {
    errno.ENOENT: ("{path} does not exist", "Check the spelling, or find it with glob."),
    errno.EXDEV: ("{path} is outside the workspace {root}", "Use a path inside."),
    errno.ELOOP: (
        "{path} is a link, or goes through one, that cannot be followed",
        "Use a path inside without links.",
    ),
    errno.ENOTDIR: ("{path} goes through something that is not a folder", "Check the path."),
    errno.EACCES: (
        "{path} may not be opened: permission denied",
        "Use another file, or change its mode.",
    ),
    errno.ENXIO: ("{path} is not a regular file", "Only files and folders can be opened."),
    errno.ENAMETOOLONG: ("{path} is too long for a path", "Use a shorter one."),
    errno.ENOSPC: ("{path} cannot be written: the disk is full", "Free some space."),
}

_UNFINISHED = f"{UNFINISHED_PREFIX}-"


class SharedWorkspace:
    """The files beneath one folder.

    Arguments:
        root: the folder; it must exist.
        readable: further absolute folders (spill files) that may be read, never written.
        kernel: insists on openat2 (True) or on the step-by-step walk that follows no links (False); None chooses.

    Raises WorkspaceError when the folder cannot be opened.
    """

    def __init__(
        self, root: str, readable: Sequence[str] = (), *, kernel: bool | None = None
    ) -> None:
        self._spelled = os.path.abspath(root)
        self._root = os.path.realpath(root)
        self._readable = tuple(os.path.realpath(folder) for folder in readable)
        self._open = choose_opener(kernel=kernel)
        try:
            self._descriptor = os.open(self._root, _FOLDER | os.O_CLOEXEC)
        except OSError as error:
            raise WorkspaceError(
                f"the folder {root} cannot be opened: {error.strerror}",
                remedy="Name a folder that exists.",
            ) from error
        weakref.finalize(self, os.close, self._descriptor)

    @property
    def root(self) -> str:
        """Absolute path of the folder, links resolved."""
        return self._root

    def locate(self, path: str) -> str:
        """The path relative to the root; a path in a readable folder stays absolute. Raises WorkspaceError for all others."""
        _check(path)
        whole = os.path.normpath(os.path.join(self._root, path))
        for folder in (self._root, self._spelled):
            if _inside(whole, folder):
                return whole[len(folder) :].lstrip("/") or "."
        for folder in self._readable:
            if _inside(whole, folder):
                return whole
        raise _error(OSError(errno.EXDEV, ""), path, self._root)

    def stat(self, path: str) -> FileInfo:
        """What is there, with the whole st_mode. Raises WorkspaceError for anything but a regular file or a folder."""
        located = self.locate(path)
        found = self._descend(located, os.O_PATH)
        try:
            seen = os.fstat(found)
        finally:
            os.close(found)
        if not stat.S_ISREG(seen.st_mode) and not stat.S_ISDIR(seen.st_mode):
            raise _special(path, seen.st_mode)
        return FileInfo(located, seen.st_size, seen.st_mtime, seen.st_mode)

    def open(self, path: str) -> int:
        """A descriptor of a regular file, for reading; it never waits. Raises WorkspaceError."""
        found = self._descend(self.locate(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        mode = os.fstat(found).st_mode
        if not stat.S_ISREG(mode):
            os.close(found)
            raise _special(path, mode)
        return found

    def replace(self, path: str, data: bytes, *, mode: int | None = None) -> bool:
        """Write a whole file at once: readers see the old or the new. True if it is new.

        Missing folders are made; an existing file keeps its mode and, where that is allowed, its owner.
        Raises WorkspaceError, and then nothing has changed.
        """
        located = self.locate(path)
        if os.path.isabs(located):
            raise WorkspaceError(
                f"{path} may be read, not written", remedy=f"Write beneath {self._root}."
            )
        if located == ".":
            raise _special(path, stat.S_IFDIR)
        _check_unprotected(located, path)
        parent, name = os.path.split(located)
        folder = self._folder(parent or ".")
        try:
            self._check_place(folder, path)
            old = _seen(folder, name)
            if old is not None and stat.S_ISLNK(old.st_mode):
                return self.replace(self._target(located), data, mode=mode)
            if old is not None:
                _check_writable(path, folder, name, old.st_mode)
            _swap_in(folder, name, data, old, mode)
        except OSError as error:
            raise _error(error, path, self._root) from error
        finally:
            os.close(folder)
        return old is None

    def sweep(self, path: str) -> None:
        """Remove what a `replace` of this path left when its process died."""
        try:
            folder = self._folder(os.path.dirname(self.locate(path)) or ".")
        except (WorkspaceError, OSError):
            return  # there is no such folder, and so nothing in it
        try:
            for name in os.listdir(folder):
                if name.startswith(_UNFINISHED) and not _in_work(name):
                    os.unlink(name, dir_fd=folder)
        finally:
            os.close(folder)

    def walk(self, path: str = ".", *, ignored: bool = False) -> Iterator[FileInfo]:
        """Regular files below a folder (or the file itself), sorted; links are not followed, .git is left out.

        Arguments:
            ignored: whether to list what git ignores, too.
        """
        start = self.stat(path)
        if stat.S_ISREG(start.mode):
            yield start
            return
        patterns = IgnoreRules() if ignored else self._patterns_above(start.path)
        yield from self._below(
            self._descend(start.path, _FOLDER),
            "" if start.path == "." else start.path,
            patterns,
            ignored,
        )

    def _below(
        self, folder: int, at: str, patterns: IgnoreRules, ignored: bool
    ) -> Iterator[FileInfo]:
        """What is in the folder, whose descriptor is closed at the end."""
        try:
            with os.scandir(folder) as entries:
                listed = sorted(entries, key=_name)
            if not ignored and any(entry.name == ".gitignore" for entry in listed):
                patterns = patterns.extend(at, _small(folder, ".gitignore"))
            prefix = f"{at}/" if at else ""
            for entry in listed:
                path = prefix + entry.name
                if entry.is_dir(follow_symlinks=False):
                    if entry.name == ".git" or (not ignored and patterns(path + "/")):
                        continue
                    deeper = _step(folder, entry.name)
                    if deeper is not None:
                        yield from self._below(deeper, path, patterns, ignored)
                elif (
                    entry.is_file(follow_symlinks=False)
                    and entry.name != ".git"
                    and (ignored or not patterns(path))
                ):
                    seen = _entry(entry)
                    if seen is not None:
                        yield FileInfo(path, seen.st_size, seen.st_mtime, seen.st_mode)
        finally:
            os.close(folder)

    def _patterns_above(self, located: str) -> IgnoreRules:
        """The patterns of the folders from the root down to, and without, the one located."""
        patterns = IgnoreRules().extend("", _small(self._descriptor, ".git/info/exclude"))
        if os.path.isabs(located) or located == ".":
            return patterns
        at = ""
        for name in located.split("/"):
            patterns = patterns.extend(
                at, _small(self._descriptor, f"{at}/.gitignore" if at else ".gitignore")
            )
            at = f"{at}/{name}" if at else name
        return patterns

    def _descend(self, located: str, flags: int) -> int:
        """Open what `locate` has found, beneath the folder it belongs to."""
        try:
            if not os.path.isabs(located):
                return self._open(self._descriptor, located, flags)
            home = next(folder for folder in self._readable if _inside(located, folder))
            base = os.open(home, _FOLDER | os.O_CLOEXEC)
            try:
                return self._open(base, os.path.relpath(located, home), flags)
            finally:
                os.close(base)
        except OSError as error:
            raise _error(error, located, self._root) from error

    def _folder(self, located: str) -> int:
        """A descriptor of a folder beneath the root, made where it is missing."""
        try:
            return self._open(self._descriptor, located, _FOLDER)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _error(error, located, self._root) from error
        parent, name = os.path.split(located)
        above = self._folder(parent or ".")
        try:
            self._check_place(above, located)
            os.mkdir(name, dir_fd=above)
        except FileExistsError:
            pass
        except OSError as error:
            raise _error(error, located, self._root) from error
        finally:
            os.close(above)
        return self._descend(located, _FOLDER)

    def _check_place(self, folder: int, path: str) -> None:
        """An opened folder may be another than its name says, where the kernel followed a link."""
        if self._open is open_with_openat2:
            _check_unprotected(
                os.path.relpath(os.readlink(f"/proc/self/fd/{folder}"), self._root), path
            )

    def _target(self, located: str) -> str:
        """Where a link beneath the root leads to: a path that has no link in it. Raises WorkspaceError when it leads out."""
        if self._open is not open_with_openat2:
            raise _error(OSError(errno.ELOOP, ""), located, self._root)
        found = self._descend(located, os.O_PATH)
        try:
            return self.locate(os.readlink(f"/proc/self/fd/{found}"))
        finally:
            os.close(found)


def _swap_in(
    folder: int, name: str, data: bytes, old: os.stat_result | None, mode: int | None
) -> None:
    """Write beside it, make that durable, rename it over the old."""
    beside = f"{_UNFINISHED}{os.getpid()}-{secrets.token_hex(8)}"
    made = os.open(
        beside,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
        0o666,
        dir_fd=folder,
    )
    try:
        with os.fdopen(made, "wb") as file:
            file.write(data)
            file.flush()
            if old is not None:
                _keep_owner(made, old)
            if mode is not None or old is not None:
                os.fchmod(
                    made,
                    stat.S_IMODE(
                        mode if mode is not None else old.st_mode if old is not None else 0
                    )
                    & 0o777,
                )
            os.fsync(made)
        os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    except BaseException:
        os.unlink(beside, dir_fd=folder)
        raise


def _in_work(unfinished: str) -> bool:
    """Whether the process that writes such a file lives: this one, for a sibling, or another in the same folder."""
    pid = unfinished.removeprefix(_UNFINISHED).partition("-")[0]
    return (
        os.path.exists(f"/proc/{pid}") if os.path.exists("/proc/self") else pid == str(os.getpid())
    )


def _keep_owner(made: int, old: os.stat_result) -> None:
    now = os.fstat(made)
    if (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(made, old.st_uid, old.st_gid)
        except PermissionError:
            pass  # only root can give a file away


def _check(path: str) -> None:
    """A path that no file system takes is refused before it reaches a system call, where NUL would cut it short."""
    if not path:
        raise WorkspaceError("the path is empty", remedy="Name a file.")
    try:
        bad = b"\0" in os.fsencode(path)
    except UnicodeEncodeError:
        bad = True
    if bad:
        raise WorkspaceError(
            f"{path!r} holds a character that no path can hold", remedy="Leave it out."
        )


def _check_unprotected(located: str, path: str) -> None:
    """What decides which programs the user's own tools run is the user's to write."""
    if part := find_protected_component(located):
        raise WorkspaceError(
            f"{path} is protected: {part} holds settings that git, shells, editors or agents act on",
            remedy="It may be read, not written; ask the user to change it.",
        )


def _check_writable(path: str, folder: int, name: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise _special(path, mode)
    if not os.access(name, os.W_OK, dir_fd=folder):
        raise WorkspaceError(
            f"{path} is read-only (mode {stat.S_IMODE(mode):04o})",
            remedy="If it should change, change its mode first.",
        )


def _inside(path: str, folder: str) -> bool:
    """Whether a normalised path is the folder or beneath it; by whole names, so that proj-secret is not in proj."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _seen(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _entry(entry: os.DirEntry[str]) -> os.stat_result | None:
    """None when it has gone since it was listed."""
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None


def _step(folder: int, name: str) -> int | None:
    """A descriptor of a folder in a folder; None when it may not be read, has gone, or is a link by now."""
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name


def _small(folder: int, path: str) -> bytes:
    """A pattern file's bytes, b"" where there is none. A link is not followed: git does not follow one either."""
    try:
        found = open_step_by_step(folder, path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return b""
    with os.fdopen(found, "rb") as file:
        return file.read(_PATTERNS) if stat.S_ISREG(os.fstat(found).st_mode) else b""


def _special(path: str, mode: int) -> WorkspaceError:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFLNK: "a link",
    }
    kind = kinds.get(stat.S_IFMT(mode), "a device")
    return WorkspaceError(f"{path} is {kind}, not a regular file", remedy="Name a file.")


def _error(error: OSError, path: str, root: str) -> WorkspaceError:
    """The system's error in words that say what to do."""
    reason, remedy = _REASONS.get(
        error.errno or 0, ("{path} cannot be opened: " + (error.strerror or str(error)), "")
    )
    return WorkspaceError(reason.format(path=path, root=root), remedy=remedy)
