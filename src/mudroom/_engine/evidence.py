"""Evidence of a run: the tool calls, read files and changed files that the engine saw."""

from __future__ import annotations

from collections.abc import Iterable

from .call_batch import CallOutcome


class Evidence:
    """Counts of one run. Paths are relative to the workspace, each once, in order of first use."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self.failed = 0
        self._files_read: dict[str, None] = {}
        self._files_changed: dict[str, None] = {}

    def add(self, outcomes: Iterable[CallOutcome]) -> None:
        """Count outcomes of tool calls; refused calls count only as failed."""
        for outcome in outcomes:
            if not outcome.refused:
                self.calls[outcome.name] = self.calls.get(outcome.name, 0) + 1
            self.failed += outcome.result.error
            self._files_read.update(dict.fromkeys(outcome.result.reads))
            self._files_changed.update(dict.fromkeys(outcome.result.changes))

    @property
    def files_read(self) -> tuple[str, ...]:
        """Files that the run and its children read."""
        return tuple(self._files_read)

    @property
    def files_changed(self) -> tuple[str, ...]:
        """Files that the run and its children changed."""
        return tuple(self._files_changed)
