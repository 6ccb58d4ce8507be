"""Files of a merge: written together, if they are as planned and nobody is saving them."""

from __future__ import annotations

import stat
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from hashlib import sha256
from typing import NamedTuple

from ..._core.ports import (
    Clock,
    FileChangedError,
    FileInfo,
    FileTrees,
    MergedFile,
    MergePlan,
    Workspace,
)
from ...errors import WorkspaceError
from ..file_writes import hash_link, is_executable


class MergedWrite(NamedTuple):
    """A merge's write or removal of a file; see `FileWriteIntended`."""

    path: str
    after: str
    executable: bool | None


RecordWrites = Callable[[Sequence[MergedWrite]], None]
"""Records writes before the first one happens."""


class ChangedMeanwhileError(Exception):
    def __init__(self, file: MergedFile) -> None:
        super().__init__(file.path)
        self.file = file


def write_merged_files(
    plan: MergePlan,
    trees: FileTrees,
    open_record: Callable[[], AbstractContextManager[RecordWrites]] | None = None,
) -> None:
    """Write a plan's files: all of them, or none if one cannot be written.

    Without `open_record`, the writes are not recorded. Raises ChangedMeanwhileError,
    WorkspaceError.
    """
    if not plan.files:
        return
    try:
        if open_record is None:
            trees.land(plan.files, lambda: None)
            return
        with open_record() as record:
            trees.land(plan.files, lambda: record(_list_writes(plan, trees)))
    except FileChangedError as change:
        changed = next((file for file in plan.files if file.path == str(change)), plan.files[0])
        raise ChangedMeanwhileError(changed) from None


def _list_writes(plan: MergePlan, trees: FileTrees) -> list[MergedWrite]:
    return [
        MergedWrite(file.path, _hash_new(file, trees), _is_executable(file)) for file in plan.files
    ]


def _is_executable(file: MergedFile) -> bool | None:
    is_file = file.after and not stat.S_ISLNK(file.mode)
    return is_executable(file.mode) if is_file else None


def _hash_new(file: MergedFile, trees: FileTrees) -> str:
    """Hash the new content; "" for a removal."""
    if not file.after:
        return ""
    data = trees.read(file.after)
    return hash_link(data) if stat.S_ISLNK(file.mode) else sha256(data).hexdigest()


QUIET_SECONDS = 1.0  # without a save until a merge tries again
MAX_WAIT_SECONDS = 10.0  # until it tries again although the user keeps saving

_POLL_SECONDS = 0.1


async def wait_until_quiet(clock: Clock, workspace: Workspace, path: str) -> None:
    """Wait until a file has been unchanged for QUIET_SECONDS, for MAX_WAIT_SECONDS at most.

    While an editor or formatter keeps saving, planning again at once never leaves enough time
    between a merge's plan and its renames.
    """
    now = clock.monotonic()
    deadline = now + MAX_WAIT_SECONDS
    quiet_since = now
    seen = _look(workspace, path)
    while now < deadline and now - quiet_since < QUIET_SECONDS:
        await clock.sleep(_POLL_SECONDS)
        now = clock.monotonic()
        present = _look(workspace, path)
        if present != seen:
            seen = present
            quiet_since = now


def _look(workspace: Workspace, path: str) -> FileInfo | None:
    try:
        return workspace.stat(path)
    except WorkspaceError:
        return None
