"""Environments of a session on a machine that does not see its folder."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec.structs import replace

from .._adapters.workspaces.isolated.node_workspaces import NodeWorkspaces
from .._core.agents import WorkspaceKind
from .._core.ports import Environment
from ..errors import WorkspaceError
from .environments import EnvironmentFactory, FolderView, Opening, SessionEnvironments


class NodeEnvironments(SessionEnvironments):
    """The port Environments on a machine that does not see the session's folder.

    Its shared environment has no files: a run begins with the files of a tree.

    Arguments:
        factory: opens folders with the options of the session.
        folder: path of the folder on the session's machine.
        workspaces: the files that this machine has.
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
        """Path of the folder on the session's machine."""
        return self._folder

    def _prepare(self, opening: Opening) -> Environment:
        """Fetch the files of a run and open its environment."""
        spec = opening.spec
        if spec.is_snapshot:
            environment = self._open_snapshot(opening)
            opening.stack.callback(environment.sandbox.close)
            return environment
        if spec.kind is WorkspaceKind.COPY and spec.tree:
            return self._open_fetched_copy(opening)
        if spec.tree and not spec.has_changes:
            for tree in {spec.base, spec.tree}:
                self._workspaces.fetch(tree, opening.stop)
        return super()._prepare(opening)

    def _open_snapshot(self, opening: Opening) -> Environment:
        """Open the files of a tree for a run that only reads."""
        spec = opening.spec
        folder = opening.stack.enter_context(
            self._workspaces.open_snapshot(spec.tree, opening.stop, same_path=self._has_same_path)
        )
        return self._add_trees(self._open_as(spec, folder, opening.factory))

    def _open_fetched_copy(self, opening: Opening) -> Environment:
        """Open a copy of the files of a tree, which is removed with the run."""
        tree = opening.spec.tree
        self._workspaces.fetch(tree, opening.stop)
        folder = self._workspaces.check_out(tree, same_path=self._has_same_path)
        opening.stack.callback(self._workspaces.remove, folder.run_id)
        environment = opening.factory.open_copy(folder.files.folder, self.original)
        opening.stack.callback(environment.sandbox.close)
        return replace(environment, missing=", ".join(folder.missing))


def find_node_folder(home: str, host: str, session: str) -> str:
    """Return the folder for the files of a session on a machine.

    Arguments:
        home: mudroom's state folder on this machine; several machines may share it.
        host: name of this machine. session: id of the session.
    """
    name = host.replace("/", "-").strip(".") or "node"
    # The id comes from another machine, and must not lead out of the folder.
    for part in (name, session):
        if part != os.path.basename(part) or part in ("", ".", ".."):
            raise WorkspaceError(f"{part!r} cannot be the name of a folder")
    return os.path.join(home, "nodes", name, session)
