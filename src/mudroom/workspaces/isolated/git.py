"""The program git, run without settings of repositories, users or the system."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import BinaryIO

from msgspec import Struct

from ...errors import WorkspaceError

MIN_VERSION = (2, 31)
"""The first version that takes settings from the environment."""

_MERGE_VERSION = (2, 38)
"""The first version with `git merge-tree --write-tree`."""

TIMEOUT = 600.0
"""Seconds that one command of git may take."""

_LOCK_SECONDS = 3.0
"""Seconds for which a lock that no process of this session holds may be in use."""

_POLL_SECONDS = 0.02

_MAX_WRITERS = 8
"""Most processes that write files at the same time; a disk gains nothing from more."""

_SETTINGS = {
    "advice.detachedHead": "false",
    "checkout.workers": str(min(os.cpu_count() or 1, _MAX_WRITERS)),
    "core.fsmonitor": "false",
    "core.fsync": "objects,reference",
    "core.fsyncMethod": "batch",
    "core.hooksPath": os.devnull,
    "core.quotePath": "false",
    "core.untrackedCache": "false",
    "gc.auto": "0",
    "merge.conflictStyle": "diff3",
    "safe.directory": "*",
    "user.email": "mudroom@localhost",
    "user.name": "mudroom",
}

_COMMIT_DATE = "2000-01-01T00:00:00Z"
"""Date of all commits: equal trees and parents give equal ids."""

_ENVIRONMENT = {
    "GIT_AUTHOR_DATE": _COMMIT_DATE,
    "GIT_COMMITTER_DATE": _COMMIT_DATE,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_COUNT": str(len(_SETTINGS)),
    **{f"GIT_CONFIG_KEY_{place}": key for place, key in enumerate(_SETTINGS)},
    **{f"GIT_CONFIG_VALUE_{place}": value for place, value in enumerate(_SETTINGS.values())},
}


class Git(Struct, frozen=True):
    """Commands of git on one repository. The methods block.

    Arguments:
        directory: git folder of the repository.
        index: path of the index file; "" for that of the repository.
        files: folder with the working files; "" if a command needs none.
        prefix: the folder below it in which the command starts, "" or with "/" at the end.
    """

    directory: str
    index: str = ""
    files: str = ""
    prefix: str = ""

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

        Raises WorkspaceError if git is missing, fails, or takes longer than TIMEOUT.
        """
        environment = {**_ENVIRONMENT, "PATH": os.environ.get("PATH", os.defpath)}
        environment["GIT_DIR"] = self.directory
        if self.index:
            environment["GIT_INDEX_FILE"] = self.index
        if self.files:
            environment["GIT_WORK_TREE"] = self.files
        try:
            result = subprocess.run(
                ["git", *arguments],
                input=None if read_from else data,
                stdin=read_from,
                stdout=write_to or subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=os.path.join(self.files or self.directory, self.prefix),
                env=environment,
                timeout=TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise WorkspaceError(
                f"git {arguments[0]} took longer than {TIMEOUT:.0f} s", where=self.directory
            ) from error
        except OSError as error:
            raise WorkspaceError(
                f"git cannot be started: {error.strerror}", remedy="Install git."
            ) from error
        if result.returncode not in codes:
            reason = result.stderr.decode("utf-8", "replace").strip()
            raise WorkspaceError(
                f"git {arguments[0]} failed: {reason or f'exit code {result.returncode}'}",
                where=self.files or self.directory,
            )
        return result.stdout or b""

    def read_line(self, *arguments: str, data: bytes = b"") -> str:
        """Run a command and return its output without the line end."""
        return os.fsdecode(self.run(*arguments, data=data)).rstrip("\n")


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


def explain_unusable_git() -> str:
    """Return why the installed git cannot be used, "" if it can."""
    version = _read_version()
    if not version:
        return "git is not installed"
    return (
        "" if version >= MIN_VERSION else f"git {_join(version)} is older than {_join(MIN_VERSION)}"
    )


def can_merge_trees() -> bool:
    """Return whether the installed git has `git merge-tree --write-tree`."""
    return _read_version() >= _MERGE_VERSION


def _join(version: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in version)


def _read_version() -> tuple[int, ...]:
    """Return the version of the installed git, () without it."""
    program = shutil.which("git")
    return _read_version_of(program, os.stat(program).st_mtime_ns) if program else ()


@lru_cache(maxsize=8)
def _read_version_of(program: str, changed: int) -> tuple[int, ...]:
    """Return the version of a program git. `changed`: time of the file, for the cache."""
    output = subprocess.run([program, "version"], capture_output=True, text=True, check=False)
    numbers = re.findall(r"\d+", output.stdout)
    return tuple(int(number) for number in numbers[:3])
