"""The environments of runs: their files, sandbox and permission policy."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager as AsyncContext
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from .._adapters.tools import make_builtin_tools
from .._core.agents import WorkspaceKind, WorkspaceSpec
from .._core.notices import Notice
from .._core.ports import (
    NO_CHOICE,
    Environment,
    FilesLostError,
    MergeChoice,
    MergedFile,
    MergePlan,
    Sandbox,
    SourceFacts,
    Workspace,
    explain_lost_files,
)
from .._core.runs import Overlap, Work
from .._platform.child_programs import stop_programs
from .._platform.event_loop import finish_in_thread
from ..errors import UsageError
from ..permissions.policy import RulePolicy
from ..permissions.rules import Permissions

if TYPE_CHECKING:
    from .._adapters.workspaces.isolated.node_workspaces import NodeWorkspaces
    from .._adapters.workspaces.isolated.workspaces import IsolatedFolder, IsolatedWorkspaces

# Returns a session's isolated workspaces, always the same object.
OpenIsolated = Callable[[], "IsolatedWorkspaces"]
# Opens a sandbox with a tree's files.
OpenTree = Callable[[str], AsyncContext[Sandbox]]


def open_workspace(
    folder: str, *readable: str, spill_folder: str = "", copied_from: str = ""
) -> Workspace:
    from .._adapters.workspaces.shared import SharedWorkspace

    return SharedWorkspace(
        folder, readable=readable, spill_folder=spill_folder, copied_from=copied_from
    )


class FolderView(Struct, frozen=True):
    """A folder used in place of another one.

    Arguments:
        original: the other folder; paths in it mean the files here, and its rules apply here.
        shown_at: path where commands see the folder; "" for its own.
        read_only: more folders for commands, see SandboxRequest.
    """

    original: str
    shown_at: str = ""
    read_only: Mapping[str, str] = {}


class EnvironmentFactory(Struct, frozen=True, kw_only=True):
    permissions: Permissions
    home: str
    user_home: str
    sandbox: str | Sandbox
    allow_net: bool
    can_ask: bool
    readable: tuple[str, ...]
    spill_folder: str

    def open(
        self,
        folder: str,
        notices: list[Notice],
        *,
        spec: WorkspaceSpec = WorkspaceSpec(),  # noqa: B008  (immutable)
        workspace: Workspace | None = None,
        view: FolderView | None = None,
    ) -> Environment:
        sandbox = self.sandbox
        if isinstance(sandbox, str):
            sandbox = self._open_sandbox(sandbox, folder, notices, view)
        original = view.original if view else ""
        workspace = workspace or open_workspace(
            folder, *self.readable, spill_folder=self.spill_folder, copied_from=original
        )
        policy = RulePolicy(
            self.permissions,
            workspace=original if spec.owner or spec.tree else workspace.root,
            user_home=self.user_home,
            tools=make_builtin_tools(),
            tier=lambda: sandbox.tier,
            # The user confirms an isolated workspace's changes when they are merged.
            asks_before_edits=not spec.owner,
        )
        return Environment(spec=spec, workspace=workspace, sandbox=sandbox, policy=policy)

    def _open_sandbox(
        self, mode: str, folder: str, notices: list[Notice], view: FolderView | None
    ) -> Sandbox:
        from .._adapters.sandboxes.choose import SandboxRequest, choose_sandbox

        request = SandboxRequest(
            workspace=folder,
            mode=mode,
            home=self.home,
            environ=os.environ,
            network=self.allow_net,
            can_ask=self.can_ask,
            shown_at=view.shown_at if view else "",
            read_only=view.read_only if view else {},
        )
        sandbox, notice = choose_sandbox(request)
        if notice:
            notices.append(Notice("sandbox", notice))
        return sandbox

    def open_copy(self, folder: str, original: str) -> Environment:
        spec = WorkspaceSpec(WorkspaceKind.FOLDER, folder)
        return self.open(folder, [], spec=spec, view=FolderView(original))


class Opening(Struct, frozen=True):
    """The opening of a run's environment.

    Arguments:
        stack: closes everything that was opened, when the run ends.
        stop: set once nobody is waiting for the files any more.
    """

    spec: WorkspaceSpec
    factory: EnvironmentFactory
    stack: ExitStack
    stop: threading.Event


class SessionEnvironments:
    """The port Environments for a session. The owner of `shared` closes it.

    Without a factory, only the shared environment exists; without `open_isolated`, no isolated one.
    """

    sees_folder = True

    def __init__(
        self,
        shared: Environment,
        factory: EnvironmentFactory | None = None,
        open_isolated: OpenIsolated | None = None,
    ) -> None:
        self._factory = factory
        self._open_workspaces = open_isolated
        self.shared = self._add_trees(shared)

    def _add_trees(self, environment: Environment) -> Environment:
        if self._open_workspaces is None:
            return environment
        owner = environment.spec.owner
        files = IsolatedFiles(self._open_workspaces, owner, self._open_tree)
        return replace(environment, trees=files)

    @asynccontextmanager
    async def open(self, spec: WorkspaceSpec) -> AsyncGenerator[Environment]:
        """Open a run's environment.

        A run's copy is removed when the run ends, and the files of an isolated workspace once they
        are stored. Raises WorkspaceError if files cannot be created.
        """
        if spec.kind is WorkspaceKind.SHARED or (spec.is_snapshot and self.sees_folder):
            yield self.shared
            return
        if self._factory is None:
            raise UsageError(
                "this session cannot copy its folder",
                remedy="Use an agent that works in the shared folder.",
            )
        opening = Opening(spec, self._factory, ExitStack(), threading.Event())
        try:
            # Copying a large folder takes a while; the event loop must not wait for it.
            prepare = asyncio.to_thread(self._prepare_until_stop, opening)
            yield await finish_in_thread(prepare, opening.stop)
        finally:
            await asyncio.to_thread(opening.stack.close)

    def _prepare_until_stop(self, opening: Opening) -> Environment:
        with stop_programs(opening.stop):
            return self._prepare(opening)

    def _prepare(self, opening: Opening) -> Environment:
        is_isolated = bool(opening.spec.owner)
        environment = self._open_isolated(opening) if is_isolated else self._open_copy(opening)
        opening.stack.callback(environment.sandbox.close)
        return environment

    def _open_copy(self, opening: Opening) -> Environment:
        spec = opening.spec
        folder = spec.root
        missing = ""
        shared = self.shared.workspace
        if spec.kind is WorkspaceKind.COPY:
            from .._adapters.workspaces.copy import make_temporary_copy

            source = open_workspace(spec.root) if spec.root else shared
            copy = make_temporary_copy(source, opening.stop)
            folder, missing = opening.stack.enter_context(copy)
        return replace(opening.factory.open_copy(folder, self.original), missing=missing)

    def _open_isolated(self, opening: Opening) -> Environment:
        spec = opening.spec
        if self._open_workspaces is None:
            raise UsageError(
                "this session cannot isolate a run",
                remedy="Use an agent that works in the shared folder.",
            )
        workspaces = self._open_workspaces()
        # If the run has files in the session's own store, they are from an earlier attempt.
        if spec.has_changes and (self.sees_folder or not workspaces.has_files(spec.owner)):
            raise FilesLostError(explain_lost_files(spec))
        start = spec if spec.tree else None
        folder = workspaces.open(
            spec.owner, spec.parent, start=start, same_path=self._has_same_path
        )
        if spec.kind is WorkspaceKind.ISOLATED:
            opening.stack.callback(workspaces.remove_if_stored, spec.owner)
        return self._add_trees(self._open_folder(folder, opening.factory))

    @property
    def original(self) -> str:
        """The absolute path of the session's folder, which its runs' folders replace."""
        return self.shared.workspace.root

    @property
    def _has_same_path(self) -> bool:
        """True if commands see isolated workspaces at the session folder's path."""
        # Only the full sandbox can mount a folder at another's path.
        return self.shared.sandbox.tier == "full"

    def _open_folder(self, folder: IsolatedFolder, factory: EnvironmentFactory) -> Environment:
        spec = WorkspaceSpec(WorkspaceKind.FOLDER, folder.files.folder, folder.run_id)
        return self._open_as(spec, folder, factory)

    def _open_as(
        self, spec: WorkspaceSpec, folder: IsolatedFolder, factory: EnvironmentFactory
    ) -> Environment:
        """Open a folder that replaces the session's for the runs of `spec`."""
        shown_at = self.original if self._has_same_path else ""
        view = FolderView(self.original, shown_at, folder.read_only)
        environment = factory.open(folder.files.folder, [], spec=spec, view=view)
        return replace(environment, missing=", ".join(folder.missing), folder=shown_at)

    @asynccontextmanager
    async def _open_tree(self, tree: str) -> AsyncGenerator[Sandbox]:
        stack = ExitStack()
        try:
            stop = threading.Event()
            prepare = asyncio.to_thread(self._prepare_tree, tree, stack, stop)
            yield await finish_in_thread(prepare, stop)
        finally:
            await asyncio.to_thread(stack.close)

    def _prepare_tree(self, tree: str, stack: ExitStack, stop: threading.Event) -> Sandbox:
        assert self._open_workspaces
        assert self._factory
        with stop_programs(stop):
            workspaces = self._open_workspaces()
            folder = workspaces.check_out(tree, same_path=self._has_same_path)
        stack.callback(workspaces.remove, folder.run_id)
        sandbox = self._open_folder(folder, self._factory).sandbox
        stack.callback(sandbox.close)
        return sandbox


class NodeEnvironments(SessionEnvironments):
    """The port Environments on a machine without access to the session's folder.

    Its shared environment has no files: a run begins with a tree's files.
    """

    sees_folder = False

    def __init__(
        self, factory: EnvironmentFactory, folder: str, workspaces: NodeWorkspaces
    ) -> None:
        self._folder = folder
        self._workspaces = workspaces
        empty = Path(workspaces.directory, "empty")
        empty.mkdir(mode=0o700, parents=True, exist_ok=True)
        shared = factory.open(str(empty), [], view=FolderView(folder))
        super().__init__(shared, factory, lambda: workspaces)

    @property
    def original(self) -> str:
        return self._folder

    def _prepare(self, opening: Opening) -> Environment:
        spec = opening.spec
        if spec.is_snapshot:
            environment = self._open_snapshot(opening)
        elif spec.kind is WorkspaceKind.COPY and spec.tree:
            environment = self._open_fetched_copy(opening)
        else:
            if spec.tree and not spec.has_changes:
                for tree in {spec.base, spec.tree}:
                    self._workspaces.fetch(tree, opening.stop)
            return super()._prepare(opening)
        opening.stack.callback(environment.sandbox.close)
        return environment

    def _open_snapshot(self, opening: Opening) -> Environment:
        spec = opening.spec
        folder = opening.stack.enter_context(
            self._workspaces.open_snapshot(spec.tree, opening.stop, same_path=self._has_same_path)
        )
        return self._add_trees(self._open_as(spec, folder, opening.factory))

    def _open_fetched_copy(self, opening: Opening) -> Environment:
        tree = opening.spec.tree
        self._workspaces.fetch(tree, opening.stop)
        folder = self._workspaces.check_out(tree, same_path=self._has_same_path)
        opening.stack.callback(self._workspaces.remove, folder.run_id)
        environment = opening.factory.open_copy(folder.files.folder, self.original)
        return replace(environment, missing=", ".join(folder.missing))


class IsolatedFiles:
    """The port Isolation for an environment's files; `owner` is "" for the user's."""

    def __init__(
        self, open_workspaces: OpenIsolated, owner: str, open_tree: OpenTree | None = None
    ) -> None:
        self.lock = asyncio.Lock()
        self._open_tree = open_tree
        self._open_workspaces = open_workspaces
        self._owner = owner

    def store_work(self, written: Sequence[str] = ()) -> Work:
        return self._open_workspaces().store_work(self._owner, written)

    def store_files(self) -> str:
        return self._open_workspaces().store_present(self._owner).tree

    def leave_out(self, tree: str, is_hidden: Callable[[str], bool]) -> str:
        return self._open_workspaces().leave_out(tree, is_hidden)

    def describe_source(self) -> SourceFacts:
        from .._adapters.workspaces.isolated.node_workspaces import describe_source

        return describe_source(self._open_workspaces().store)

    def pack_trees(self, trees: Sequence[str], known: Sequence[str], path: str) -> None:
        self._open_workspaces().store.pack_trees(trees, known, path)

    def add_work(self, run_id: str, work: Work, path: str) -> None:
        self._open_workspaces().add_work(run_id, work, path)

    def find_work(self, run_id: str) -> Work | None:
        return self._open_workspaces().find_stored(run_id)

    def resolve(self, run_id: str, work: Work, sides: Mapping[str, str]) -> Work:
        return self._open_workspaces().resolve(run_id, work, sides)

    def plan_merge(
        self, work: Work, after: MergePlan | None = None, choice: MergeChoice = NO_CHOICE
    ) -> MergePlan:
        return self._open_workspaces().plan_merge(self._owner, work, after, choice)

    def open_tree(self, tree: str) -> AsyncContext[Sandbox]:
        if self._open_tree is None:
            raise UsageError(
                "no command can run with the files of a tree here",
                remedy="Use the environment of a session.",
            )
        return self._open_tree(tree)

    def land(self, files: Sequence[MergedFile], on_staged: Callable[[], object]) -> None:
        self._open_workspaces().land(self._owner, files, on_staged)

    def mark_merged(self, run_id: str) -> None:
        self._open_workspaces().mark_merged(run_id)

    def read(self, content: str) -> bytes:
        return self._open_workspaces().store.read(content)

    def list_overlaps(
        self, works: Mapping[str, Work], conflicts: Mapping[str, str]
    ) -> Sequence[Overlap]:
        from .._adapters.workspaces.isolated.kept_work import find_overlaps

        return find_overlaps(self._open_workspaces().store, works, conflicts)
