"""Runs on machines that do not see the session's folder: which can go there, and their files."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from ...._core.agents import Mode, WorkspaceKind, WorkspaceSpec
from ...._core.events import StoredEvent
from ...._core.ports import explain_lost_files
from ...._core.runs import Brief, Reason
from ...._core.tools import Effect, ToolCategory
from ...._engine.recorded_conversations import find_workspace, has_effects
from ...._engine.session_context import SessionServices
from ....errors import MudroomError
from .tree_transfer import TreeTransfers

NEEDS_FOLDER = (
    "no worker process sees the folder of the session, and this run needs it: {reason}. Give it an "
    "isolated workspace, let it only read (permission mode plan, or no tool that writes or runs "
    "commands), or mount the folder and the state folder on all nodes"
)

UNSEEN_FOLDER = (
    "the machine %s does not see the folder of the session: children that only read, and isolated "
    "ones, get files of their own there; others cannot work there"
)

log = logging.getLogger("mudroom")

_KEPT_TREES = 8
"""Trees of which the session remembers what may be sent."""


class FilesNotReadyError(Exception):
    """A run cannot have its files. It says why.

    Arguments:
        reason: the one with which the run ends.
    """

    def __init__(self, error: str, reason: Reason = Reason.ERROR) -> None:
        super().__init__(error)
        self.reason = reason


class TravellingFiles:
    """Files of the session's folder for runs on machines that do not see it.

    Arguments:
        server_agents: agents with MCP servers of their own, which work in the folder.
        transfers: carries the trees.
        is_hidden: tells which files are not sent, by absolute path; None: all are.
        can_send: false if no files can be sent to other machines.
    """

    def __init__(
        self,
        services: SessionServices,
        server_agents: Collection[str],
        transfers: TreeTransfers,
        is_hidden: Callable[[str], bool] | None = None,
        *,
        can_send: bool = True,
    ) -> None:
        self.can_send = can_send
        self._services = services
        self._server_agents = server_agents
        self.transfers = transfers
        self._is_hidden = is_hidden
        self._lock = asyncio.Lock()
        self._next: asyncio.Task[str] | None = None
        self._visible: dict[str, str] = {}  # a tree, and what of it may be sent
        self._announced: set[str] = set()

    def announce(self, host: str) -> None:
        """Tell the user once that a machine does not see the folder."""
        if host not in self._announced:
            self._announced.add(host)
            log.warning(UNSEEN_FOLDER, host)

    def explain_need(self, brief: Brief, past: Sequence[StoredEvent]) -> str:
        """Return why a run needs the folder of the session itself, "" if it does not.

        Arguments:
            past: events of the run.
        """
        if brief.board_task or self._has_category(brief, ToolCategory.BOARD):
            return "it uses the task board, which is a file"
        if brief.agent.name in self._server_agents:
            return "its agent has an MCP server of its own"
        spec = _find_spec(brief, past)
        if spec.kind is WorkspaceKind.ISOLATED:
            return self._explain_isolated(spec, past)
        if spec.kind is WorkspaceKind.COPY or spec.is_snapshot:
            return ""
        if spec.kind is not WorkspaceKind.SHARED:
            return "it shares the files of another run"
        return "" if self._only_reads(brief) else "it may change files, and shares them"

    def find_machine(self, brief: Brief, past: Sequence[StoredEvent]) -> str:
        """Return the machine with files that a run may have changed, "" if there is none.

        Arguments:
            past: events of the run.
        """
        spec = _find_spec(brief, past)
        if spec.kind is not WorkspaceKind.ISOLATED:
            return ""
        return spec.machine if has_effects(past, self._services.toolbox) else ""

    async def prepare(self, brief: Brief, past: Sequence[StoredEvent], host: str) -> Brief:
        """Return the brief of a run with the tree of files with which it begins.

        A run that has begun keeps its tree. One that has changed files needs their machine, too:
        another one may have files of an earlier attempt.

        Arguments:
            past: events of the run.
            host: name of the machine where the run works.

        Raises FilesNotReadyError.
        """
        spec = _find_spec(brief, past)
        if self.find_machine(brief, past) not in ("", host):
            raise FilesNotReadyError(explain_lost_files(spec), Reason.LOST)
        try:
            base, tree = await self._choose_trees(spec)
        except MudroomError as error:
            raise FilesNotReadyError(str(error)) from error
        self.transfers.allow(base, tree)
        kind = WorkspaceKind.FOLDER if spec.kind is WorkspaceKind.SHARED else spec.kind
        root = spec.root or self._services.environments.shared.workspace.root
        sent = replace(spec, kind=kind, root=root, base=base, tree=tree, machine=host)
        return replace(brief, workspace=sent)

    async def _choose_trees(self, spec: WorkspaceSpec) -> tuple[str, str]:
        """Return base and tree of a run, without hidden files."""
        if not spec.tree:
            tree = await self._store_files()
            return tree, tree
        # A tree of a merge with conflicts has all files of the session's folder.
        return (
            await asyncio.to_thread(self._leave_hidden_out, spec.base or spec.tree),
            await asyncio.to_thread(self._leave_hidden_out, spec.tree),
        )

    async def _store_files(self) -> str:
        """Store the present files; return their tree. Runs that wait for it share one pass."""
        if self._next is None:
            self._next = asyncio.create_task(self._store_next())
        return await asyncio.shield(self._next)

    async def _store_next(self) -> str:
        async with self._lock:
            self._next = None  # a run that comes from now on may follow a change
            return await asyncio.to_thread(self._store_visible)

    def _store_visible(self) -> str:
        """Store the present files that may be sent; return their tree."""
        return self._leave_hidden_out(self.transfers.isolation.store_files())

    def _leave_hidden_out(self, tree: str) -> str:
        """Return a tree without the files that may not be sent."""
        is_hidden = self._is_hidden
        if is_hidden is None:
            return tree
        visible = self._visible.get(tree)
        if visible is None:
            root = self._services.environments.shared.workspace.root
            isolation = self.transfers.isolation
            visible = isolation.leave_out(tree, lambda path: is_hidden(os.path.join(root, path)))
            self._visible = {tree: visible, **dict(list(self._visible.items())[:_KEPT_TREES])}
        return visible

    def _explain_isolated(self, spec: WorkspaceSpec, past: Sequence[StoredEvent]) -> str:
        if spec.parent:
            return "it begins with the files of another run"
        began_here = bool(past) and not spec.machine
        if began_here and has_effects(past, self._services.toolbox):
            return "it has changed files of its workspace there"
        return ""

    def _only_reads(self, brief: Brief) -> bool:
        toolbox = self._services.toolbox
        tools = [toolbox[name] for name in brief.tools if name in toolbox]
        # A tool that is imported there may use the workspace as it likes.
        if any(tool.reference and tool.effect is not Effect.PURE for tool in tools):
            return False
        writes = any(tool.category in (ToolCategory.WRITE, ToolCategory.RUN) for tool in tools)
        return brief.mode is Mode.PLAN or not writes

    def _has_category(self, brief: Brief, category: ToolCategory) -> bool:
        toolbox = self._services.toolbox
        return any(toolbox[name].category is category for name in brief.tools if name in toolbox)


def _find_spec(brief: Brief, past: Sequence[StoredEvent]) -> WorkspaceSpec:
    """Return the workspace that a run has in the record, else that of its brief."""
    return find_workspace(past) or brief.workspace
