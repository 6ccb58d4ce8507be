"""Isolation port: the files of a run as trees, to store the work of a child and to merge it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from ...errors import WorkspaceError
from ..agents import WorkspaceSpec
from ..file_conflicts import FileConflict
from ..merge_events import Overlap
from ..runs import Work
from .sandbox import Sandbox

if TYPE_CHECKING:
    import asyncio  # slow to import, and a list of sessions needs none of it

MERGE = "merge"
"""Name of a merge in permission requests and decisions."""


class MergedFile(Struct, frozen=True):
    """A file that a merge writes or removes.

    Arguments:
        path: relative to the workspace.
        before: id of the present content; "" for no file.
        after: id of the merged content; "" to remove the file.
        mode: git's mode of the merged file, of a removed one before: type and permission bits. The
            bits are those of `Work.private` for a file in it.
        was_link: true if the present file is a link.
    """

    path: str
    before: str
    after: str
    mode: int
    was_link: bool = False


class MergeConflict(Struct, frozen=True):
    """A file that cannot be merged.

    Arguments:
        path: relative to the workspace.
        kind: "both-modified", "both-added", "binary", "modified-deleted", "renamed", "file-folder",
            "type", "link" (it may lead out of the folder), "protected", "marked" (it has conflict
            marks) or "changed-meanwhile".
        base, ours, theirs: ids of the three contents; "" for no file.
        text: id of what the merged tree has at the path: one side, or both between conflict marks;
            "" for no file.
        paths: all paths of the conflict, see `FileConflict`.
    """

    path: str
    kind: str
    base: str = ""
    ours: str = ""
    theirs: str = ""
    text: str = ""
    paths: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """Which version the merged tree has; see `FileConflict`."""
        if self.text in ("", self.ours):
            return "parent" if self.text else ""
        return "child" if self.text == self.theirs else "both"

    @property
    def file(self) -> FileConflict:
        """The conflict as the record has it."""
        paths = self.paths or (self.path,)
        return FileConflict(self.path, self.kind, paths, self.base, self.version)


class MergeChoice(Struct, frozen=True):
    """A decision about conflicts.

    Arguments:
        side: "parent" or "child": whose version of a file counts; "" decides nothing.
        paths: the files; empty for all files with conflicts.
    """

    side: str = ""
    paths: tuple[str, ...] = ()

    def covers(self, path: str) -> bool:
        """Return whether the decision is about a file."""
        return bool(self.side) and (not self.paths or path in self.paths)


NO_CHOICE = MergeChoice()


class MergePlan(Struct, frozen=True):
    """The files that a merge changes: additions, then changes, then removals.

    With conflicts there are no files: the work of a run is merged whole or not at all.

    Arguments:
        base: id of the tree with the present files.
        tree: id of the tree with both sides; files with conflicts have conflict marks.
        landed: paths of the child's changes that the folder has after the merge: not those of files
            in conflict that stay as they are by a choice.
        own: id of the tree with the child's own version of the files in conflict; "" without them.
        private: see `Work`; of the works that were merged before, too.
    """

    files: tuple[MergedFile, ...] = ()
    conflicts: tuple[MergeConflict, ...] = ()
    base: str = ""
    tree: str = ""
    landed: tuple[str, ...] = ()
    own: str = ""
    private: dict[str, int] = {}


class SourceFacts(Struct, frozen=True):
    """What another machine must know of a folder to store files as this one does.

    Arguments:
        algorithm: hash of the ids, "sha1" or "sha256".
        name: of the folder with the first ignore rules.
        prefix: path of the files below it, "" or with "/" at the end.
        excludes: ignore patterns that no file of the folder has, as in `.gitignore`.
        ignore_files: contents of the ignore files above the files, by path below that folder.
    """

    algorithm: str
    name: str
    prefix: str
    excludes: bytes
    ignore_files: dict[str, bytes] = {}


class FilesLostError(WorkspaceError):
    """The files of a run are on another machine, and cannot be brought to where they are needed.

    A run that this happens to ends with the reason LOST.
    """


def explain_lost_files(spec: WorkspaceSpec) -> str:
    """Return the error of a run that changed files on a machine where it cannot continue."""
    return (
        f"run {spec.owner} changed files on another machine, and they are not here; it began on "
        f"{spec.machine} with the tree {spec.tree}"
    )


class Isolation(Protocol):
    """The files of one environment as trees. The methods block: call them in a thread."""

    @property
    def lock(self) -> asyncio.Lock:
        """Held while work is merged with these files."""
        ...

    def store_work(self, written: Sequence[str] = ()) -> Work:
        """Store the files of an isolated environment. Raises WorkspaceError.

        Arguments:
            written: paths that tools for files wrote; they are work although git ignores them.
        """
        ...

    def store_files(self) -> str:
        """Store the present files; return the id of their tree. Raises WorkspaceError."""
        ...

    def leave_out(self, tree: str, is_hidden: Callable[[str], bool]) -> str:
        """Return a tree without some files. `is_hidden`: tells them by their path."""
        ...

    def describe_source(self) -> SourceFacts:
        """Return the facts about the folder of the session. Raises WorkspaceError."""
        ...

    def pack_trees(self, trees: Sequence[str], known: Sequence[str], path: str) -> None:
        """Write a file with which trees travel to another machine. Raises WorkspaceError.

        Arguments:
            known: trees that the other machine has. path: of the new file.
        """
        ...

    def add_work(self, run_id: str, work: Work, path: str) -> None:
        """Store work that another machine sent, and keep it under the id of its run.

        Arguments:
            path: file of `pack_trees`.

        Raises WorkspaceError if the file is damaged or lacks something.
        """
        ...

    def find_work(self, run_id: str) -> Work | None:
        """Return the stored work of a run, None if there is none."""
        ...

    def resolve(self, run_id: str, work: Work, sides: Mapping[str, str]) -> Work:
        """Return work in which conflicts are resolved, and keep it under the id of its run.

        Arguments:
            sides: by the path of a conflict: "mine" (the version of the child), "theirs" (that of
                the parent), or "new" (the present content of the child's folder).
        """
        ...

    def plan_merge(
        self, work: Work, after: MergePlan | None = None, choice: MergeChoice = NO_CHOICE
    ) -> MergePlan:
        """Merge the work of a child with the present files of this environment; write no file.

        Arguments:
            choice: decides conflicts.
            after: plan of work that is merged before, if the new plan is for both.

        Raises WorkspaceError if git fails.
        """
        ...

    def open_tree(self, tree: str) -> AbstractAsyncContextManager[Sandbox]:
        """Open a sandbox with the files of a tree, for as long as it is needed.

        Raises WorkspaceError on entry.
        """
        ...

    def land(self, files: Sequence[MergedFile], on_staged: Callable[[], object]) -> None:
        """Write the files of a plan in this environment: all of them, or none.

        A kill in between changes nothing about that: the next use of the files finishes the
        landing, or undoes it.

        Arguments:
            on_staged: called when all is written beside its target and nothing is changed yet. If
                it raises, nothing is changed.

        Raises FileChangedError if a file is not as the plan expects it, and WorkspaceError if one
        cannot be written, or if another merge into these files does not end.
        """
        ...

    def mark_merged(self, run_id: str) -> None:
        """Record that the work of a run is merged: a clean-up may remove it."""
        ...

    def read(self, content: str) -> bytes:
        """Return a content by its id; b"" for the id ""."""
        ...

    def list_overlaps(
        self, works: Mapping[str, Work], conflicts: Mapping[str, str]
    ) -> Sequence[Overlap]:
        """Return the files that at least two runs changed, by path.

        Arguments:
            works: by run id.
            conflicts: kinds of the files that could not be merged, by path.
        """
        ...
