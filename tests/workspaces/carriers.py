"""The way of trees between two folders of one machine."""

from __future__ import annotations

import threading

from mudroom._adapters.workspaces.isolated.node_workspaces import describe_source
from mudroom._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces
from mudroom._core.ports import SourceFacts
from mudroom._core.runs import Work


class DirectCarrier:
    """The port TreeCarrier between two folders of this machine."""

    def __init__(self, session: IsolatedWorkspaces) -> None:
        self._session = session
        self.fetched: list[tuple[str, list[str]]] = []
        self.merged: list[str] = []
        self.failure: OSError | None = None

    def describe_source(self) -> SourceFacts:
        return describe_source(self._session.store)

    def fetch(self, tree: str, known: list[str], path: str, stop: threading.Event) -> None:
        self.fetched.append((tree, known))
        self._session.store.pack_trees([tree], known, path)

    def send(self, run_id: str, work: Work, path: str) -> None:
        if self.failure:
            raise self.failure
        self._session.add_work(run_id, work, path)

    def mark_merged(self, run_id: str) -> None:
        self.merged.append(run_id)
