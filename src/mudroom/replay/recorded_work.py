"""Recorded work: the isolated workspaces of a record. A replay writes and merges no file."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from .._core.agents import WorkspaceSpec
from .._core.events import RunFinished, RunStarted, StoredEvent, WorkMerged
from .._core.runs import Work
from .._engine.children.merge import is_merge_of


class RecordedWork:
    """Work and merges of a record, by the id of the run with the isolated workspace."""

    def __init__(self, events: Iterable[StoredEvent]) -> None:
        self._workspaces: dict[str, WorkspaceSpec] = {}
        self._works: dict[str, Work | None] = {}
        self._errors: dict[str, str] = {}
        self._unknown_changes: dict[str, str] = {}
        self._merges: list[WorkMerged] = []
        for event in events:
            if isinstance(event, RunStarted):
                self._workspaces[event.run] = event.brief.workspace
            elif isinstance(event, RunFinished):
                self._works[event.run] = event.report.work
                self._errors[event.run] = event.report.error
                self._unknown_changes[event.run] = event.report.unknown_changes
            elif isinstance(event, WorkMerged):
                self._merges.append(event)

    def find_workspace(self, run_id: str) -> WorkspaceSpec | None:
        """Return the workspace of a run."""
        return self._workspaces.get(run_id)

    def find_work(self, run_id: str) -> Work | None:
        """Return what a run made of its isolated workspace."""
        return self._works.get(run_id)

    def find_unknown_changes(self, run_id: str) -> str:
        """Return why a run may have changed more files than its report says; "" if it says all."""
        return self._unknown_changes.get(run_id, "")

    def find_error(self, run_id: str) -> str:
        """Return the error with which a run ended, "" if it had none."""
        return self._errors.get(run_id, "")

    def find_merge(self, child: str, call: str) -> WorkMerged | None:
        """Return the outcome of a merge; see `find_recorded_merge`."""
        merged = next((each for each in self._merges if is_merge_of(each, child, call)), None)
        if merged and merged.returned not in self._workspaces:
            return replace(merged, returned="")
        return merged
