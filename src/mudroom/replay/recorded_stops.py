"""Recorded stops: where limits and cancels ended the runs of a record, and the same stops again.

In a replay nothing depends on time or on what parallel runs spent: a run is stopped after the last
step that its record has before the stop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from msgspec import Struct

from .._core.budgets import Limit, LimitState
from .._core.events import (
    MessageDelivered,
    NoteInjected,
    RunFinished,
    RunStarted,
    RunWaiting,
    StoredEvent,
    ToolCallFinished,
    TurnFailed,
    TurnStarted,
)
from .._core.run_ids import list_above
from .._core.runs import InboxMessage, Reason, Report
from .._core.tools import ToolResult
from .._engine.call_batch import INTERRUPTED
from .._engine.changes.watch import ChangeWindow
from .._engine.finish import SUMMARY_REQUEST, WRAP_UP_NOTE
from .._engine.meters.request_plan import Permit
from .._engine.phase import Phase
from .._engine.resume import NEAR_LIMIT_NOTES, UNKNOWN_AFTER_CRASH
from .._engine.run_context import RunContext
from ..errors import ModelError

_LIMITS = {Reason.MAX_TURNS: Limit.TURNS, Reason.BUDGET: Limit.TOTAL_TOKENS}
"""Reasons of limits that are checked before a turn; each with a limit for reports that lack it."""


class RecordedFault(Exception):
    """An exception of an adapter that ended a recorded run; the subclass has its name."""


class RunEnd(Struct):
    """End of one run in the record, or an interrupt of the user.

    Arguments:
        is_interrupt: true for an interrupt; `report` is made here then, the record has none.
        turn: number of the last turn before the summary.
        has_summary: true if a summary was requested.
        wraps_up: true if `wrap_up`, or the limit of a run above, requested it.
        results: results of the calls that were cut off, by call id.
        warning: turn and limit of the warning that a limit is near.
        steps_left: events before the stop that have not come again.
        runs_left: runs below it that have not ended again.
        is_over: true if the run was stopped again.
    """

    report: Report | None = None
    is_interrupt: bool = False
    turn: int = 0
    has_summary: bool = False
    wraps_up: bool = False
    results: dict[str, ToolResult] = {}
    warning: tuple[int, Limit] | None = None
    steps_left: int = 0
    runs_left: int = 0
    is_over: bool = False

    def apply(self, event: StoredEvent) -> None:
        """Add the next event of the run."""
        if isinstance(event, TurnStarted):
            self.has_summary = event.summary_reason is not None
            is_asked = self.wraps_up or event.summary_reason is Reason.CANCELLED
            self.wraps_up = self.has_summary and is_asked
            if not self.has_summary:
                self.turn = event.turn
                self.results = {}
        elif isinstance(event, ToolCallFinished) and _is_cut_off(event):
            self.results[event.call_id] = event.result
        elif isinstance(event, NoteInjected) and event.text in NEAR_LIMIT_NOTES:
            self.warning = event.turn, NEAR_LIMIT_NOTES[event.text]
        elif isinstance(event, NoteInjected) and event.text == WRAP_UP_NOTE:
            self.wraps_up = True
        elif isinstance(event, RunFinished):
            self.report = event.report
        elif is_interrupt(event):
            self.is_interrupt = True
            outputs: dict[str, Any] = {}
            self.report = Report(
                text="", reason=Reason.CANCELLED, run_id=event.run, outputs=outputs
            )

    @property
    def is_due(self) -> bool:
        """True if a time limit, a cancel, `wrap_up` or a run above must still stop the run."""
        reason = self.report.reason if self.report else None
        is_stop = reason in (Reason.TIMEOUT, Reason.CANCELLED) or self.is_from_above
        return is_stop and not self.is_over

    @property
    def is_from_above(self) -> bool:
        """True if the limit of a run above stopped the run; its own limit is in its report."""
        if self.report is None or self.report.limit is not None or self.report.error:
            return False
        is_limit = self.report.reason in _LIMITS or self.report.reason is Reason.TIMEOUT
        return is_limit and (self.wraps_up or not self.has_summary)

    def is_after_stop(self, event: StoredEvent) -> bool:
        """Return whether an event of a stopped run came after the stop."""
        if event.turn > self.turn or isinstance(event, RunFinished | TurnFailed):
            return True
        if is_interrupt(event):
            return True
        if isinstance(event, ToolCallFinished):
            return event.call_id in self.results
        if isinstance(event, MessageDelivered):
            return event.turn == self.turn and not self.is_interrupt
        return isinstance(event, NoteInjected) and event.text.endswith(SUMMARY_REQUEST)


def is_interrupt(event: StoredEvent) -> bool:
    """Return whether an event records that the user interrupted the run."""
    return isinstance(event, RunWaiting) and event.is_interrupted


def _is_cut_off(event: ToolCallFinished) -> bool:
    result = event.result
    return result.text == INTERRUPTED and result.unknown_changes != UNKNOWN_AFTER_CRASH


class RecordedStops:
    """Stops of all runs of a record.

    A stop inside a model call, before a turn or at the goal raises its exception in the task of the
    run. A stop inside tool calls comes when all recorded steps of the run are done and the runs
    below it have ended.

    Attributes:
        on_stop: called with the id and the last turn of a run before it is stopped.
    """

    def __init__(self, events: Sequence[StoredEvent]) -> None:
        self.on_stop: Callable[[str, int], None] | None = None
        self._ends: dict[str, list[RunEnd]] = {}
        self._runs: dict[str, RunContext] = {}
        self._end_after: dict[int, RunEnd] = {}
        self._end_after_run: dict[tuple[str, str], RunEnd] = {}
        self._interrupt_counts: Counter[str] = Counter()
        self._max_tokens: dict[tuple[str, int], int] = {}
        for event in events:
            if event.run:
                self._add(event)
        for end in self._end_after_run.values():
            end.runs_left += 1

    def _add(self, event: StoredEvent) -> None:
        """Add the next recorded event to the interrupt, or the end, that follows it."""
        if isinstance(event, TurnStarted) and event.max_tokens is not None:
            self._max_tokens[event.run, event.turn] = event.max_tokens
        ends = self._ends.setdefault(event.run, [RunEnd()])
        end = ends[-1]
        end.apply(event)
        self._end_after[id(event)] = end
        if end.is_interrupt:
            ends.append(RunEnd(turn=event.turn))
            for (above, run_id), earlier in self._end_after_run.items():
                if above == event.run and earlier is end and not self._has_ended(run_id):
                    self._end_after_run[above, run_id] = ends[-1]
        if isinstance(event, RunStarted):
            for above in list_above(event.run):
                self._end_after_run[above, event.run] = self._ends[above][-1]

    def _has_ended(self, run_id: str) -> bool:
        return self._ends[run_id][-1].report is not None

    def _get_end(self, run_id: str) -> RunEnd:
        """Return the next interrupt, or the end, of a run."""
        return self._ends[run_id][0]

    def get_interrupt_count(self, run_id: str) -> int:
        """Return the number of recorded interrupts of a run that have come again."""
        return self._interrupt_counts[run_id]

    def add_run(self, run: RunContext) -> None:
        """Add a run of the replay."""
        self._runs[run.run_id] = run

    def send(self, run_id: str, message: InboxMessage) -> None:
        """Send a message to a run; it is stored already."""
        self._runs[run_id].inbox.restore(message)

    def add_step(self, event: StoredEvent) -> None:
        """Add an event that must come again."""
        end = self._end_after.get(id(event))
        if end and not end.is_after_stop(event):
            end.steps_left += 1

    def is_before_stop(self, run_id: str, expected: StoredEvent | None) -> bool:
        """Return whether a run must be stopped instead of continuing.

        Arguments:
            expected: the recorded event of the next step, None if the record has none.
        """
        if run_id not in self._ends:
            return False
        end = self._get_end(run_id)
        if not (end.is_due or self._is_stopping(run_id, end)):
            return False
        return expected is None or end.is_after_stop(expected)

    def _is_stopping(self, run_id: str, end: RunEnd) -> bool:
        """Return whether the stop of a run has not yet arrived in its task."""
        run = self._runs[run_id]
        if end.is_interrupt:
            return end.is_over and run.control.is_cancel_pending
        return end.is_over and run.timer.deadline is not None

    def count_step(self, event: StoredEvent) -> bool:
        """Count an event that came again. Return True if its run is stopped after it."""
        if event.run not in self._ends:
            return False
        end = self._get_end(event.run)
        if is_interrupt(event):
            self._ends[event.run].pop(0)
            self._interrupt_counts[event.run] += 1
            return False
        if isinstance(event, RunFinished):
            for run_id in list_above(event.run):
                self._end_after_run[run_id, event.run].runs_left -= 1
                self._stop_if_due(run_id)
        elif not end.is_after_stop(event):
            end.steps_left -= 1
        return self._stop_if_due(event.run)

    def _stop_if_due(self, run_id: str) -> bool:
        end = self._get_end(run_id)
        run = self._runs[run_id]
        if not end.is_due or end.steps_left or end.runs_left or not run.turn:
            return False
        self._start_stop(run, end)
        if end.is_interrupt:
            return run.control.interrupt()
        reason = end.report.reason if end.report else Reason.CANCELLED
        if end.wraps_up:
            run.control.wrap_up(reason)
        elif reason is Reason.TIMEOUT:
            if run.timer.deadline:
                run.timer.deadline.reschedule(asyncio.get_running_loop().time())
        else:
            run.control.cancel(reason)
        if not end.has_summary:
            run.control.phase = Phase.CANCELLING
        return True

    def _start_stop(self, run: RunContext, end: RunEnd) -> None:
        end.is_over = True
        for call_id, result in end.results.items():
            run.evidence.open_windows[call_id] = _RecordedWindow(result)
        if self.on_stop and not end.is_interrupt:
            self.on_stop(run.run_id, end.turn)

    def find_limit(self, run_id: str) -> LimitState | None:
        """Return the recorded limit if it ended the run at this point, or raise its other stop."""
        end = self._get_end(run_id)
        run = self._runs[run_id]
        report = end.report
        if run.turn != end.turn or report is None:
            return None
        if (limit := _LIMITS.get(report.reason)) and not end.is_from_above:
            return report.limit or LimitState(limit, run.turn, run.turn)
        if report.reason is Reason.ERROR:
            raise ModelError(report.error)  # its workspace could not be opened
        if end.is_due:
            self.stop(run_id)
        return None

    def start_turn(self, run_id: str) -> Permit | None:
        """Permit the next turn of a run as recorded, and prepare its end before its last turn."""
        end = self._get_end(run_id)
        run = self._runs[run_id]
        report = end.report
        limit: LimitState | None = None
        if run.turn + 1 == end.turn and report is not None:
            is_own = report.reason in (*_LIMITS, Reason.LOOP) and not end.is_from_above
            if is_own and not end.has_summary:
                run.control.phase = Phase.CANCELLING
            limit = report.limit if report.reason is Reason.BUDGET else None
        max_tokens = self._max_tokens.get((run_id, run.turn + 1))
        if max_tokens is None and limit is None:
            return None
        return Permit([], _do_nothing, max_tokens=max_tokens or 0, cut_by=limit)

    def find_passed_limit(self, run_id: str) -> LimitState | None:
        """Return the limit in the recorded report of a run."""
        report = self._get_end(run_id).report
        return report.limit if report else None

    def find_warning(self, run_id: str) -> LimitState | None:
        """Return the limit of which the run was warned at this point."""
        warning = self._get_end(run_id).warning
        if warning is None or warning[0] != self._runs[run_id].turn:
            return None
        return LimitState(warning[1], 0, 0)

    def stop_at_goal(self, run_id: str) -> None:
        """Stop a run that has reached its goal, if the record stopped it there."""
        end = self._get_end(run_id)
        if end.is_due and self._runs[run_id].turn == end.turn:
            self.stop(run_id)

    def stop_interrupted(self, run_id: str) -> None:
        """Stop a run that waits for the next prompt, if the record stopped it there."""
        end = self._get_end(run_id)
        if end.is_due and not (end.is_interrupt or end.steps_left):
            self._runs[run_id].control.resume()
            self.stop(run_id)

    def stop(self, run_id: str) -> NoReturn:
        """Raise the exception with which the record stopped the run, in the task of the run."""
        end = self._get_end(run_id)
        run = self._runs[run_id]
        report = end.report
        assert report is not None
        self._start_stop(run, end)
        if end.is_interrupt:
            run.control.phase = Phase.INTERRUPTING
            raise asyncio.CancelledError
        if not end.has_summary:
            run.control.phase = Phase.CANCELLING
        if report.reason is Reason.TIMEOUT and not end.wraps_up:
            raise TimeoutError(report.error)
        if report.reason is Reason.ERROR:
            name, _, text = report.error.partition(": ")
            raise type(name, (RecordedFault,), {})(text)
        if end.wraps_up:
            run.control.phase = Phase.WRAPPING_UP
        run.control.stop_reason = report.reason
        raise asyncio.CancelledError

    def is_cut_off(self, run_id: str, call_id: str) -> bool:
        """Return whether the stop of its run cut off a call."""
        end = self._get_end(run_id)
        return (end.is_due or self._is_stopping(run_id, end)) and call_id in end.results


def _do_nothing() -> None:
    pass


class _RecordedWindow(ChangeWindow):
    """Changes that the record has for a call that was cut off."""

    def __init__(self, result: ToolResult) -> None:
        self._result = result

    async def close(self, result: ToolResult) -> ToolResult:
        """Return the recorded result."""
        return self._result
