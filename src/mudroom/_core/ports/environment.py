"""Environment port: a run's files, sandbox and permission policy, and its files as trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from ...errors import WorkspaceError
from ..agents import FileConflict, WorkspaceSpec
from ..runs import Overlap, Work
from .approval import Policy
from .workspace import Workspace

if TYPE_CHECKING:
    import asyncio  # slow to import, and a list of sessions needs none of it


class Environment(Struct, frozen=True, kw_only=True):
    """The surroundings of a run.

    Arguments:
        spec: the workspace spec for runs that share this environment, such as children.
        missing: files missing from a copy of the folder, with reasons; "" if complete.
        folder: path of the files as commands see it; "" if it is the workspace root.
        trees: the files as trees; None if children cannot have isolated workspaces.
    """

    spec: WorkspaceSpec
    workspace: Workspace
    sandbox: Sandbox
    policy: Policy
    missing: str = ""
    folder: str = ""
    trees: FileTrees | None = None


class Environments(Protocol):
    """Opens an environment for each run and closes it when the run ends."""

    @property
    def shared(self) -> Environment:
        """The environment of the session, which stays open."""
        ...

    @property
    def sees_folder(self) -> bool:
        """True if this process sees the folder of the session."""
        ...

    def open(self, spec: WorkspaceSpec) -> AbstractAsyncContextManager[Environment]:
        """Open the environment of a run. Raises MudroomError on entry if it cannot be opened."""
        ...


SEATBELT_MODE = "experimental-seatbelt"

SANDBOX_MODES = ("auto", "full", "file", "off", SEATBELT_MODE)
"""Sandboxes a user may choose; "auto" picks the strongest one that works."""


class CommandResult(Struct, frozen=True):
    """End of a command.

    Arguments:
        code: exit code; a negative value is minus the number of the signal that ended it.
        timed_out: true if the timeout ended the command.
        left: number of processes the command had left in the background, which were killed. 0
            after a timeout and where the sandbox cannot tell (bubblewrap, or no procfs).
    """

    code: int
    timed_out: bool = False
    left: int = 0


class Sandbox(Protocol):
    """A place to run commands."""

    @property
    def tier(self) -> str:
        """Protection level: "full", "file", "ask", "refuse" or "off"."""
        ...

    async def run(
        self, command: str, *, timeout: float, sink: Callable[[bytes], None]
    ) -> CommandResult:
        """Run a bash command in the workspace.

        Returns when the command's process ends or the timeout passes, after killing all its
        descendants. A cancel kills them as well.

        Arguments:
            timeout: seconds.
            sink: receives the bytes of stdout and stderr as they arrive.
        """
        ...

    def close(self) -> None:
        """Stop helper processes. Commands still running are not killed."""
        ...


# Stands where a tool's name would in permission requests and decisions.
MERGE = "merge"


class MergedFile(Struct, frozen=True):
    """A file a merge writes or removes.

    Arguments:
        before: id of the current content; "" for no file.
        after: id of the merged content; "" to remove the file.
        mode: git's mode (type and permission bits) of the merged file, or of the removed one. The
            bits are those of `Work.private` for a file in it.
        was_link: true if the current file is a link.
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
        text: id of what the merged tree has at the path: one side, or both with conflict marks;
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
        """Whose version the merged tree has, in the terms of `FileConflict`."""
        if self.text in ("", self.ours):
            return "parent" if self.text else ""
        return "child" if self.text == self.theirs else "both"

    @property
    def file(self) -> FileConflict:
        paths = self.paths or (self.path,)
        return FileConflict(self.path, self.kind, paths, self.base, self.version)


class MergeChoice(Struct, frozen=True):
    """A decision about conflicts: whose version is taken, "parent" or "child"; "" decides nothing.

    Without paths, it is about all files with conflicts.
    """

    side: str = ""
    paths: tuple[str, ...] = ()

    def covers(self, path: str) -> bool:
        return bool(self.side) and (not self.paths or path in self.paths)


NO_CHOICE = MergeChoice()


class MergePlan(Struct, frozen=True):
    """The files a merge changes: additions first, then changes, then removals.

    With conflicts there are no files: a run's work is merged whole or not at all.

    Arguments:
        base: id of the tree with the current files.
        tree: id of the tree with both sides; files in conflict have conflict marks.
        landed: paths of the child's changes that are in the folder after the merge; excludes files
            in conflict that a choice left unchanged.
        own: id of the tree with the child's version of the files in conflict; "" if there are none.
        private: see `Work`; includes that of earlier merges.
    """

    files: tuple[MergedFile, ...] = ()
    conflicts: tuple[MergeConflict, ...] = ()
    base: str = ""
    tree: str = ""
    landed: tuple[str, ...] = ()
    own: str = ""
    private: dict[str, int] = {}


class SourceFacts(Struct, frozen=True):
    """What another machine must know about a folder to store its files as this one does.

    Arguments:
        algorithm: hash of the ids, "sha1" or "sha256".
        name: name of the outermost folder with ignore rules.
        prefix: path of the files below it, "" or ending with "/".
        excludes: ignore patterns from git's configuration, in the format of `.gitignore`.
        ignore_files: contents of the ignore files above the files, by path below that folder.
    """

    algorithm: str
    name: str
    prefix: str
    excludes: bytes
    ignore_files: dict[str, bytes] = {}


class FilesLostError(WorkspaceError):
    """A run's files are on another machine and cannot be brought to where they are needed.

    The run ends with the reason LOST.
    """


def explain_lost_files(spec: WorkspaceSpec) -> str:
    return (
        f"run {spec.owner} changed files on another machine, and they are not here; it began on "
        f"{spec.machine} with the tree {spec.tree}"
    )


class FileTrees(Protocol):
    """The files of one environment as trees. The methods block, so call them in a thread."""

    @property
    def lock(self) -> asyncio.Lock:
        """Held while work is merged with these files."""
        ...

    def store_work(self, written: Sequence[str] = ()) -> Work:
        """Store an isolated environment's work. Raises WorkspaceError.

        Files in `written`, which file tools wrote, count as work even if git ignores them.
        """
        ...

    def store_files(self) -> str:
        """Store the current files and return the id of their tree. Raises WorkspaceError."""
        ...

    def leave_out(self, tree: str, is_hidden: Callable[[str], bool]) -> str:
        """Return a tree without the files whose path `is_hidden` accepts."""
        ...

    def describe_source(self) -> SourceFacts:
        """Return facts about the session's folder. Raises WorkspaceError."""
        ...

    def pack_trees(self, trees: Sequence[str], known: Sequence[str], path: str) -> None:
        """Pack trees, without those that the other machine has, into a new file at `path`."""
        ...

    def add_work(self, run_id: str, work: Work, path: str) -> None:
        """Store work that another machine sent in a file of `pack_trees`, under the id of its run.

        Raises WorkspaceError if the file is damaged or incomplete.
        """
        ...

    def find_work(self, run_id: str) -> Work | None:
        """Return the stored work of a run, None if there is none."""
        ...

    def resolve(self, run_id: str, work: Work, sides: Mapping[str, str]) -> Work:
        """Resolve conflicts in work, and store the result under the id of its run.

        Arguments:
            sides: by the path of the conflict: "mine" (the child's version), "theirs" (the
                parent's), or "new" (what the child's folder has now).
        """
        ...

    def plan_merge(
        self, work: Work, after: MergePlan | None = None, choice: MergeChoice = NO_CHOICE
    ) -> MergePlan:
        """Merge a child's work with the current files of this environment, writing nothing.

        `after`: an earlier plan, whose work the new one includes. Raises WorkspaceError.
        """
        ...

    def open_tree(self, tree: str) -> AbstractAsyncContextManager[Sandbox]:
        """Open a sandbox with the files of a tree. Raises WorkspaceError on entry."""
        ...

    def land(self, files: Sequence[MergedFile], on_staged: Callable[[], object]) -> None:
        """Write the files of a plan into this environment: all of them or none.

        This holds even if the process is killed in between: the next use of the files finishes or
        undoes the landing.

        Arguments:
            on_staged: called when everything is written beside its target and nothing is changed
                yet. If it raises, nothing is changed.

        Raises FileChangedError if a file is not as the plan expects it, and WorkspaceError if a
        file cannot be written or another merge into these files does not end.
        """
        ...

    def mark_merged(self, run_id: str) -> None:
        """Record that a run's work is merged, so a clean-up may remove it."""
        ...

    def read(self, content: str) -> bytes:
        """Return a file's content by its id; b"" for the id ""."""
        ...

    def list_overlaps(
        self, works: Mapping[str, Work], conflicts: Mapping[str, str]
    ) -> Sequence[Overlap]:
        """List the files that at least two runs changed, sorted by path."""
        ...
