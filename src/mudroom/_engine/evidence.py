"""Evidence of a run: its tool calls, the files it read, and the files that changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from msgspec.structs import replace

from .._core.events import WorkMerged, count_merges
from .._core.ports.board import CLAIM_DETAIL, update_claims
from .._core.runs import MergeCounts, Report, is_run_above
from .._core.tools import ToolResult, join_reasons
from .changes.watch import list_folders_above, select_outside
from .conversation import CallOutcome


class CallWindow(Protocol):
    """The time during which a call that may change files is running."""

    async def close(self, result: ToolResult) -> ToolResult: ...


class Evidence:
    """Counts for one run. Paths are relative to the workspace, each once, in order of first use.

    Includes what children sharing the workspace read and changed.

    Attributes:
        parallel_runs: other runs whose commands ran at the same time, descendants included.
        open_windows: windows of running calls (effectful calls and children), by call id.
    """

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self.failed = 0
        self.board_reminder = BoardReminder()
        self.unknown_changes = ""
        self.missing_tools: tuple[str, ...] = ()
        self.open_windows: dict[str, CallWindow] = {}
        self._files_read: dict[str, None] = {}
        self._files_changed: dict[str, None] = {}
        self._folders_of_writes: dict[str, None] = {}
        self._observed_changes: dict[str, None] = {}
        self.parallel_runs: dict[str, None] = {}
        self._merges: dict[tuple[str, str], WorkMerged] = {}

    def add(self, outcomes: Iterable[CallOutcome]) -> None:
        """Count the outcomes of tool calls; refused ones count only as failed."""
        for outcome in outcomes:
            result = outcome.result
            if not outcome.refused:
                self.calls[outcome.name] = self.calls.get(outcome.name, 0) + 1
            self.failed += result.error
            self.add_files(result)

    def add_files(self, result: ToolResult) -> None:
        self._files_read.update(dict.fromkeys(result.reads))
        if result.changes or result.observed_changes:
            self._add_changes(result)
        if result.unknown_changes:
            self.add_unknown_changes(result.unknown_changes)

    def add_unknown_changes(self, reason: str) -> None:
        self.unknown_changes = join_reasons(self.unknown_changes, reason)

    def _add_changes(self, result: ToolResult) -> None:
        self._files_changed.update(dict.fromkeys((*result.changes, *result.observed_changes)))
        self._folders_of_writes.update(dict.fromkeys(list_folders_above(result.changes)))
        self._observed_changes.update(dict.fromkeys(result.observed_changes))
        self.parallel_runs.update(dict.fromkeys(result.parallel_runs))

    def add_merge(self, event: WorkMerged) -> None:
        """Add the merge of a child's work, once."""
        self._merges[event.child, event.call] = event
        self.add_files(ToolResult("", changes=event.files))

    def list_merged(self) -> list[str]:
        """List the runs whose work was merged, then those whose work could not be."""
        return list(dict.fromkeys(child for child, _ in self._merges))

    def list_earlier_legs(self, run_id: str) -> list[str]:
        """List the runs whose work came back to this run, directly or in steps, latest first."""
        before = {each.returned: each.child for each in self._merges.values() if each.returned}
        legs: list[str] = []
        while run_id in before:
            run_id = before[run_id]
            legs.append(run_id)
        return legs

    @property
    def merges(self) -> MergeCounts | None:
        return count_merges(self._merges.values())

    def add_report(self, report: Report, *, is_shared: bool = True) -> None:
        """Add the files of a background child.

        An isolated child has changed nothing here, except outside its own files.
        """
        if not is_shared:
            self.add_unknown_changes(select_outside(report.unknown_changes))
            return
        self._files_read.update(dict.fromkeys(report.files_read))
        self._files_changed.update(dict.fromkeys(report.files_changed))
        self._folders_of_writes.update(dict.fromkeys(list_folders_above(report.files_written)))
        self._observed_changes.update(dict.fromkeys(report.observed_changes))
        self.parallel_runs.update(dict.fromkeys(report.parallel_runs))
        if report.unknown_changes:
            self.add_unknown_changes(report.unknown_changes)

    def list_parallel_runs(self, run_id: str) -> tuple[str, ...]:
        """List the other runs whose commands ran at the same time, without a run's descendants."""
        others = (each for each in self.parallel_runs if each != run_id)
        return tuple(sorted(each for each in others if not is_run_above(run_id, each)))

    @property
    def files_read(self) -> tuple[str, ...]:
        return tuple(self._files_read)

    @property
    def files_changed(self) -> tuple[str, ...]:
        return self._remove_folders_of_writes(self._files_changed)

    @property
    def observed_changes(self) -> tuple[str, ...]:
        """Files among `files_changed` that changed while an effectful call ran."""
        return self._remove_folders_of_writes(self._observed_changes)

    def _remove_folders_of_writes(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Leave out folders that tools created for their files: after a crash they look changed."""
        return tuple(path for path in paths if path not in self._folders_of_writes)


def keep_evidence(changed: ToolResult, result: ToolResult) -> ToolResult:
    """Return a hook's replacement result with the original result's files."""
    return replace(
        changed,
        reads=tuple(dict.fromkeys((*result.reads, *changed.reads))),
        changes=tuple(dict.fromkeys((*result.changes, *changed.changes))),
        observed_changes=result.observed_changes,
        unknown_changes=join_reasons(result.unknown_changes, changed.unknown_changes),
        parallel_runs=result.parallel_runs,
    )


TURNS_BEFORE_REMINDER = 10
"""Turns without a change to the board until a run with a claimed task is reminded."""

_REMINDER = "<reminder>You work on {tasks} of the task board. Update its status.</reminder>"


class BoardReminder:
    """Reminds a run of its claimed tasks, computed from the results of its calls."""

    def __init__(self) -> None:
        self._claims: dict[int, str] = {}
        self._turn = 0

    def add(self, outcomes: Iterable[CallOutcome], turn: int) -> None:
        for outcome in outcomes:
            detail = outcome.result.detail
            if CLAIM_DETAIL in detail and update_claims(self._claims, detail):
                self._turn = turn

    def make_text(self, turn: int) -> str:
        if not self._claims or turn - self._turn < TURNS_BEFORE_REMINDER:
            return ""
        self._turn = turn
        return _REMINDER.format(tasks=", ".join(f"#{task_id}" for task_id in self._claims))
