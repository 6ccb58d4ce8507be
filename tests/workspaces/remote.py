"""A workspace as on another machine: it gives no access to open files."""

from __future__ import annotations

from mudroom._core.ports import LocalFiles
from mudroom._core.ports.workspace import WorkspaceWrapper


class RemoteWorkspace(WorkspaceWrapper):
    """Passes every call of the port to another workspace, but has no local files."""

    @property
    def local(self) -> LocalFiles | None:
        return None
