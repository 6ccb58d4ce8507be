"""Files of a merge: written only while they are as the plan of the merge expects them."""

from __future__ import annotations

from ..._core.ports import (
    FileChangedError,
    Isolation,
    LinkTarget,
    MergedFile,
    MergePlan,
    Workspace,
)
from ...errors import MudroomError


class ChangedMeanwhileError(Exception):
    """A file that differs from what the merge was planned with."""

    def __init__(self, file: MergedFile) -> None:
        super().__init__(file.path)
        self.file = file


def write_merged_files(
    plan: MergePlan, isolation: Isolation, present: Workspace, target: Workspace
) -> None:
    """Write the files of a plan. Writes none if one differs from what the plan expects.

    A merge that ends in the middle is continued by the next one: files that are written already do
    not differ any more.

    Arguments:
        isolation: has the contents of the plan.
        present: the workspace in which the files are compared.
        target: the same files; records the writes, if they are recorded.

    Raises ChangedMeanwhileError, WorkspaceError.
    """
    if not plan.files:
        return
    with isolation.lock_files():
        for file in plan.files:
            _require_unchanged(present, isolation, file)
        for file in plan.files:
            _require_unchanged(present, isolation, file)
            _write(file, isolation, target)


def _write(file: MergedFile, isolation: Isolation, target: Workspace) -> None:
    """Write a file, or remove it, if it is as the plan expects, also while the user writes it."""

    def is_expected(data: bytes | None) -> bool:
        return _is_planned(file, isolation, data)

    try:
        if file.after:
            target.write(file.path, isolation.read(file.after), mode=file.mode, check=is_expected)
        else:
            target.remove(file.path, check=is_expected)
    except FileChangedError:
        raise ChangedMeanwhileError(file) from None


def _require_unchanged(workspace: Workspace, isolation: Isolation, file: MergedFile) -> None:
    link = workspace.local.read_link(file.path) if workspace.local else None
    try:
        data = link or _read(workspace, file.path)
    except MudroomError:
        raise ChangedMeanwhileError(file) from None
    if not _is_planned(file, isolation, data):
        raise ChangedMeanwhileError(file)


def _is_planned(file: MergedFile, isolation: Isolation, data: bytes | None) -> bool:
    """Return whether the present content of a file is that of the plan; None for no file."""
    if data is None:
        return not file.before
    is_same_type = isinstance(data, LinkTarget) == file.was_link
    return is_same_type and isolation.find_id(data) == file.before


def _read(workspace: Workspace, path: str) -> bytes | None:
    """Return the present content of a file, None if there is none."""
    try:
        size = workspace.stat(path).size
    except MudroomError:
        return None
    return workspace.read(path, 0, size + 1)
