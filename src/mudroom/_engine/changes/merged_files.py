"""Files of a merge: written only while they are as the plan of the merge expects them."""

from __future__ import annotations

from ..._core.ports import FileChangedError, Isolation, MergedFile, MergePlan, Workspace
from ...errors import MudroomError

_UNREADABLE = "unreadable"
"""In place of the id of a content that cannot be read; equal to no id."""


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
        return file.before == ("" if data is None else isolation.find_id(data))

    try:
        if file.after:
            target.write(file.path, isolation.read(file.after), mode=file.mode, check=is_expected)
        else:
            target.remove(file.path, check=is_expected)
    except FileChangedError:
        raise ChangedMeanwhileError(file) from None


def _require_unchanged(workspace: Workspace, isolation: Isolation, file: MergedFile) -> None:
    if _find_present_id(workspace, isolation, file.path) != file.before:
        raise ChangedMeanwhileError(file)


def _find_present_id(workspace: Workspace, isolation: Isolation, path: str) -> str:
    """Return the id of the present content of a file, "" if there is none."""
    try:
        size = workspace.stat(path).size
    except MudroomError:
        return ""
    try:
        return isolation.find_id(workspace.read(path, 0, size + 1))
    except MudroomError:
        return _UNREADABLE
