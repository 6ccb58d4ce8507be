"""Runs the program git without settings of repositories, users or the system.

git opens whatever it finds, and a pipe named `.gitignore` would block it forever, so its progress
is watched. Trees travel to other stores as packs: files with their objects.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import BinaryIO, NewType

from msgspec import Struct

from ...._platform.child_programs import StoppedError, find_program, run_program
from ...._platform.paths import path_to_text
from ...._platform.processes import list_processes
from ....errors import WorkspaceError
from .repository import OBJECT_ID

MIN_VERSION = (2, 38)  # the first version with `git merge-tree --write-tree`

INSTALL_GIT = f"Install git {'.'.join(map(str, MIN_VERSION))} or later"
"""The start of a remedy, without a full stop."""

VIEW_MARK = "pack"  # an entry of every folder of objects
_LOCK_SECONDS = 3.0  # after which a lock that no process of this session holds counts as stale

_POLL_SECONDS = 0.02

_MAX_WRITERS = 8  # processes that write files at once; a disk gains nothing from more

_SETTINGS = {
    "advice.detachedHead": "false",
    "checkout.workers": str(min(os.cpu_count() or 1, _MAX_WRITERS)),
    "core.attributesFile": os.devnull,
    "core.excludesFile": os.devnull,
    "core.fsmonitor": "false",
    "core.fsync": "objects,reference",
    "core.fsyncMethod": "batch",
    "core.hooksPath": os.devnull,
    "core.quotePath": "false",
    "core.untrackedCache": "false",
    "gc.auto": "0",
    "merge.conflictStyle": "diff3",
    "protocol.allow": "never",
    "safe.directory": "*",
    "user.email": "mudroom@localhost",
    "user.name": "mudroom",
}

_COMMIT_DATE = "2000-01-01T00:00:00Z"  # for all commits, so equal trees and parents give equal ids

_ENVIRONMENT = {
    "GIT_AUTHOR_DATE": _COMMIT_DATE,
    "GIT_COMMITTER_DATE": _COMMIT_DATE,
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CEILING_DIRECTORIES": "/",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "",
    "GIT_TERMINAL_PROMPT": "0",
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "PATH": os.defpath,
    "GIT_CONFIG_COUNT": str(len(_SETTINGS)),
    **{f"GIT_CONFIG_KEY_{place}": key for place, key in enumerate(_SETTINGS)},
    **{f"GIT_CONFIG_VALUE_{place}": value for place, value in enumerate(_SETTINGS.values())},
}
"""The whole environment of every git; none of the caller's variables reach it."""

OwnGitFolder = NewType("OwnGitFolder", str)
"""Path of a git folder made by mudroom.

git obeys the configuration of its git folder, where dozens of settings can name programs. So a
user's repository never becomes one: what is needed from it is copied, or read as data.
"""


class Git(Struct, frozen=True):
    """Runs git commands on one of mudroom's own repositories. The methods block.

    Arguments:
        index: path of the index file; "" for the repository's.
        files: folder with the working files; "" if a command needs none.
        prefix: folder below `files` where the command starts: "" or with a final "/".
        source: the user's folder. A program git in it is not used: a command may have put it there.
        objects: folder for objects; "" for the repository's.
        views: folder holding the folders of objects that the repository borrows; "" for none.
    """

    directory: OwnGitFolder
    index: str = ""
    files: str = ""
    prefix: str = ""
    source: str = ""
    objects: str = ""
    views: str = ""

    def run(
        self,
        *arguments: str,
        data: bytes = b"",
        codes: Sequence[int] = (0,),
        read_from: BinaryIO | None = None,
        write_to: BinaryIO | None = None,
    ) -> bytes:
        """Run a command and return its output.

        Arguments:
            codes: exit codes that are not errors.
            read_from: file for the standard input, in place of `data`.
            write_to: file for the output; the result is then b"".

        Raises WorkspaceError if git is missing or fails, and KilledGitError if it hangs.
        """
        program = _find_git(self.source)
        if not program:
            raise WorkspaceError("git is not installed", remedy="Install git.")
        views = self._list_views()
        places = [self.files] if self.files else []
        places += [os.path.dirname(os.path.realpath(f"{view}/{VIEW_MARK}")) for view in views]
        check = ProgressCheck(arguments[0], self.files or self.directory, places)
        try:
            result = run_program(
                [program, *arguments],
                folder=os.path.join(self.files or self.directory, self.prefix),
                environ=self._make_environment(views),
                data=data,
                read_from=read_from,
                write_to=write_to,
                look=check.look,
            )
        except OSError as error:
            raise WorkspaceError(
                f"git cannot be started: {error.strerror}",
                where=error.filename,
                remedy="Install git.",
            ) from error
        except StoppedError as error:
            raise KilledGitError(f"git {arguments[0]} was stopped") from error
        if result.returncode not in codes:
            reason = result.stderr.decode("utf-8", "replace").strip()
            raise WorkspaceError(
                f"git {arguments[0]} failed: {reason or f'exit code {result.returncode}'}",
                where=self.files or self.directory,
            )
        return result.stdout or b""

    def _list_views(self) -> list[str]:
        try:
            return sorted(entry.path for entry in os.scandir(self.views) if self.views)
        except FileNotFoundError:
            return []

    def _make_environment(self, views: Sequence[str]) -> dict[str, str]:
        environment = {**_ENVIRONMENT, "GIT_DIR": self.directory}
        optional = {
            "GIT_INDEX_FILE": self.index,
            "GIT_WORK_TREE": self.files,
            "GIT_OBJECT_DIRECTORY": self.objects,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(map(_quote, views)),
        }
        environment.update({name: value for name, value in optional.items() if value})
        return environment

    def read_line(self, *arguments: str, data: bytes = b"") -> str:
        """Run a command and return its output without the line end."""
        return os.fsdecode(self.run(*arguments, data=data)).rstrip("\n")


def _quote(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


def make_git_folder(directory: str, algorithm: str) -> OwnGitFolder:
    """Make a git folder without objects. `algorithm`: "sha1" or "sha256"."""
    for name in ("objects/info", "refs", "info"):
        os.makedirs(os.path.join(directory, name), exist_ok=True)
    version = "0" if algorithm == "sha1" else "1"
    config = f"[core]\n\trepositoryformatversion = {version}\n\tfilemode = true\n\tbare = false\n"
    if version == "1":
        config += f"[extensions]\n\tobjectFormat = {algorithm}\n"
    for name, text in (("config", config), ("HEAD", "ref: refs/heads/main\n")):
        with open(os.path.join(directory, name), "w") as file:
            file.write(text)
    return OwnGitFolder(directory)


def remove_stale_lock(index: str) -> None:
    """Remove an index lock left by a killed git; wait for a git that may still be working."""
    lock = f"{index}.lock"
    deadline = time.monotonic() + _LOCK_SECONDS  # the file's time may be in the future
    with suppress(FileNotFoundError):
        while time.time() - os.stat(lock).st_mtime < _LOCK_SECONDS and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        os.unlink(lock)


def split_at_nul(output: bytes) -> list[str]:
    return [os.fsdecode(part) for part in output.split(b"\0") if part]


def explain_unusable_git(source: str = "") -> str | None:
    """Explain why the installed git cannot be used; None if it can."""
    version = _read_version(source)
    if not version:
        return "git is not installed"
    if version < MIN_VERSION:
        return f"git {_join(version)} is older than {_join(MIN_VERSION)}"
    return None


def require_git(source: str) -> None:
    if reason := explain_unusable_git(source):
        raise WorkspaceError(
            f"isolated workspaces need git: {reason}",
            remedy=f"{INSTALL_GIT}, or let the run share the folder.",
        )


def _join(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _find_git(source: str) -> str:
    """Find git outside the user's folder; "" if there is none."""
    return find_program("git", os.environ.get("PATH", os.defpath), source)


def _read_version(source: str) -> tuple[int, ...]:
    program = _find_git(source)
    return _read_version_of(program, os.stat(program).st_mtime_ns) if program else ()


@lru_cache(maxsize=8)
def _read_version_of(program: str, changed: int) -> tuple[int, ...]:
    check = ProgressCheck("version", program, [])
    try:
        result = run_program(
            [program, "version"], folder="/", environ=_ENVIRONMENT, look=check.look
        )
    except OSError:
        return ()
    numbers = re.findall(rb"\d+", result.stdout)
    return tuple(int(number) for number in numbers[:3])


LOOK_AFTER = 1.5  # seconds without progress before looking for pipes at names git always opens

_LOOK_EVERYWHERE_AFTER = 10.0  # for any pipe: one may have replaced a file as git opened it
MAX_QUIET = 60.0  # seconds without progress before git is killed

TIMEOUT = 600.0  # seconds before git is killed where progress cannot be seen, as on macOS

_SEARCH_SECONDS = 10.0

_OPENED = frozenset((".git", ".gitignore", ".gitattributes", ".gitmodules", ".mailmap"))
"""Names that git opens in any folder."""

_NULL = os.makedev(1, 3)

_REMEDY = "Remove it, or let the run share the folder."


class KilledGitError(WorkspaceError):
    """git was killed: it made no progress, or nothing waits for it. It is not run again."""


class ProgressCheck:
    """Watches one git while it runs.

    `places` are the folders whose files it may open: working files first, then objects.
    """

    def __init__(self, name: str, folder: str, places: Sequence[str]) -> None:
        self._name = name
        self._folder = folder
        self._places = places
        self._start = self._changed = time.monotonic()
        self._last: tuple[int, ...] | None = None
        self._next_look = LOOK_AFTER

    def look(self, pid: int) -> None:
        now = time.monotonic()
        progress = _read_progress(pid)
        if progress != self._last:
            self._last = progress
            self._changed = now
            self._next_look = LOOK_AFTER
            return
        quiet = now - self._changed
        if quiet > (MAX_QUIET if progress else TIMEOUT):
            raise KilledGitError(
                f"git {self._name} made no progress for {quiet:.0f} s",
                where=self._folder,
                remedy="Look whether its disk answers, or let the run share the folder.",
            )
        if quiet >= self._next_look:
            everywhere = quiet >= _LOOK_EVERYWHERE_AFTER
            self._next_look = _LOOK_EVERYWHERE_AFTER if not everywhere else quiet + MAX_QUIET / 3
            for place in self._places:
                if path := find_blocking_file(place, everywhere=everywhere):
                    raise KilledGitError(
                        f"git {self._name} waits for {path_to_text(path)}, which is a pipe or a "
                        "device",
                        where=self._folder,
                        remedy=_REMEDY,
                    )


def _read_progress(pid: int) -> tuple[int, ...] | None:
    """Read counters that grow while a process and its children work; None without procfs."""
    try:
        figures = _read_figures(pid)
    except OSError:
        return None
    for process in list_processes():
        if process.parent == pid:
            try:
                figures += _read_figures(process.pid)
            except OSError:
                continue  # it has ended
    return figures


def _read_figures(pid: int) -> tuple[int, ...]:
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    with open(f"/proc/{pid}/io", "rb") as file:
        transferred = file.read().split()[1:4:2]
    return tuple(int(field) for field in (fields[7], fields[9], *fields[11:13], *transferred))


def find_blocking_file(top: str, *, everywhere: bool = False) -> str:
    """Find a pipe or device that git would open below a folder; "" if there is none.

    `everywhere` includes every pipe, not only those at names git always opens.
    """
    deadline = time.monotonic() + _SEARCH_SECONDS
    is_control = any(part in _OPENED for part in top.split("/"))
    folders = [(top, is_control)]
    while folders and time.monotonic() < deadline:
        folder, is_control = folders.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            is_opened = is_control or entry.name in _OPENED
            if entry.is_dir(follow_symlinks=False):
                folders.append((entry.path, is_opened))
            elif (is_opened or everywhere) and _blocks(entry, follow=is_opened):
                return entry.path
    return ""


def _blocks(entry: os.DirEntry[str], *, follow: bool) -> bool:
    try:
        facts = entry.stat(follow_symlinks=follow)
    except OSError:
        return False
    is_device = stat.S_ISCHR(facts.st_mode) and facts.st_rdev != _NULL
    return stat.S_ISFIFO(facts.st_mode) or is_device


def write_pack(git: Git, trees: Sequence[str], known: Sequence[str], path: str) -> None:
    """Write a pack of what trees have and known ones lack; known trees not here are ignored."""
    check_ids(*trees, *known)
    revisions = [*trees, *(f"^{each}" for each in select_present(git, known))]
    with open(path, "wb") as file:
        git.run(
            "pack-objects",
            "--revs",
            "--stdout",
            "--quiet",
            # Deltas and strong compression take longer than they save.
            "--window=0",
            "--compression=1",
            data="".join(f"{each}\n" for each in revisions).encode(),
            write_to=file,
        )


def check_ids(*ids: str) -> None:
    """Raise WorkspaceError if text from another process is not an object id."""
    for each in ids:
        if not OBJECT_ID.fullmatch(each):
            raise WorkspaceError(f"{each!r} is no id of a tree")


def select_present(git: Git, ids: Sequence[str]) -> list[str]:
    if not ids:
        return []
    data = "".join(f"{each}\n" for each in ids).encode()
    lines = git.run("cat-file", "--batch-check", data=data).decode().splitlines()
    return [each for each, line in zip(ids, lines, strict=True) if not line.endswith(" missing")]
