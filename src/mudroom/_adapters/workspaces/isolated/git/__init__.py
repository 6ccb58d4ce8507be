"""The program git, run without settings of repositories, users or the system."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import BinaryIO, NewType

from msgspec import Struct

from ....._platform.child_programs import StoppedError, find_program, run_program
from .....errors import WorkspaceError
from .progress import KilledGitError, ProgressCheck

MIN_VERSION = (2, 38)
"""The first version with `git merge-tree --write-tree`."""

INSTALL_GIT = f"Install git {'.'.join(map(str, MIN_VERSION))} or later"
"""How a remedy begins, without a full stop."""

VIEW_MARK = "pack"
"""Name that every folder of objects has."""

_LOCK_SECONDS = 3.0
"""Seconds for which a lock that no process of this session holds may be in use."""

_POLL_SECONDS = 0.02

_MAX_WRITERS = 8
"""Most processes that write files at the same time; a disk gains nothing from more."""

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

_COMMIT_DATE = "2000-01-01T00:00:00Z"
"""Date of all commits: equal trees and parents give equal ids."""

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
"""All variables of every git: none of the caller's reaches it."""

OwnGitFolder = NewType("OwnGitFolder", str)
"""Path of a git folder that mudroom made.

git obeys the configuration of its git folder, which can name programs in dozens of settings. So a
repository of the user never becomes one: what is needed of it is copied, or read as data.
"""


class Git(Struct, frozen=True):
    """Commands of git on one repository of mudroom's own. The methods block.

    Arguments:
        directory: git folder of the repository.
        index: path of the index file; "" for that of the repository.
        files: folder with the working files; "" if a command needs none.
        prefix: the folder below it in which the command starts, "" or with "/" at the end.
        source: the user's folder. A program git in it is not used: a command may have put it there.
        objects: folder for objects; "" for that of the repository.
        views: folder with folders of objects that the repository borrows; "" for none.
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
            data: standard input. codes: exit codes that are no error.
            read_from: file for the standard input, in place of `data`.
            write_to: file for the output; then b"" is returned.

        Raises WorkspaceError if git is missing or fails, and KilledGitError if it waits for
        something that does not come.
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
        """Return the folders of objects that the repository borrows."""
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
    """Quote a path for a list of paths, as git reads it."""
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


def make_git_folder(directory: str, algorithm: str) -> OwnGitFolder:
    """Make a git folder without objects in a folder. `algorithm`: "sha1" or "sha256"."""
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
    """Remove the lock of an index that a killed git left; wait for one that may still work."""
    lock = f"{index}.lock"
    deadline = time.monotonic() + _LOCK_SECONDS  # the time of the file may be in the future
    with suppress(FileNotFoundError):
        while time.time() - os.stat(lock).st_mtime < _LOCK_SECONDS and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        os.unlink(lock)


def split_at_nul(output: bytes) -> list[str]:
    """Return the paths in an output of git with `-z`."""
    return [os.fsdecode(part) for part in output.split(b"\0") if part]


def explain_unusable_git(source: str = "") -> str | None:
    """Return why the installed git cannot be used, None if it can. `source`: see Git."""
    version = _read_version(source)
    if not version:
        return "git is not installed"
    if version < MIN_VERSION:
        return f"git {_join(version)} is older than {_join(MIN_VERSION)}"
    return None


def require_git(source: str) -> None:
    """Raise WorkspaceError unless the installed git can be used. `source`: see Git."""
    if reason := explain_unusable_git(source):
        raise WorkspaceError(
            f"isolated workspaces need git: {reason}",
            remedy=f"{INSTALL_GIT}, or let the run share the folder.",
        )


def _join(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _find_git(source: str) -> str:
    """Return the path of git, "" if there is none outside the user's folder."""
    return find_program("git", os.environ.get("PATH", os.defpath), source)


def _read_version(source: str) -> tuple[int, ...]:
    """Return the version of the installed git, () without it."""
    program = _find_git(source)
    return _read_version_of(program, os.stat(program).st_mtime_ns) if program else ()


@lru_cache(maxsize=8)
def _read_version_of(program: str, changed: int) -> tuple[int, ...]:
    """Return the version of a program git. `changed`: time of the file, for the cache."""
    check = ProgressCheck("version", program, [])
    try:
        result = run_program(
            [program, "version"], folder="/", environ=_ENVIRONMENT, look=check.look
        )
    except OSError:
        return ()
    numbers = re.findall(rb"\d+", result.stdout)
    return tuple(int(number) for number in numbers[:3])
