"""Recorded stops: where limits and cancels ended a record's runs, and the same stops again.

In a replay nothing depends on time or on what parallel runs spend. A run is stopped when everything
stands still at the first event that its record has after the stop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from .._core.budgets import Budget, Grant, Limit, LimitState
from .._core.events import (
    CUT_OFF,
    MessageDelivered,
    MessageSent,
    NoteInjected,
    RunFinished,
    RunResumed,
    RunStarted,
    RunWaiting,
    StoredEvent,
    ToolCallFinished,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from .._core.messages import Usage
from .._core.runs import Brief, Reason, Report, find_parent_id
from .._core.tools import ToolResult
from .._engine.changes.watch import ChangeWindow
from .._engine.conversation import UNKNOWN_AFTER_CRASH, is_cut_off_result
from .._engine.finish import OWN_LIMIT_NOTES
from .._engine.meters.account import Permit
from .._engine.meters.meter import Meter, ParentMeter
from .._engine.meters.request_gate import Meters, RequestGate
from .._engine.phase import SUMMARY_REQUEST, WRAP_UP_NOTE
from .._engine.resume import NEAR_LIMIT_NOTES
from .._engine.run_context import RunContext
from ..errors import ModelError

_LIMITS = {Reason.MAX_TURNS: Limit.TURNS, Reason.BUDGET: Limit.TOTAL_TOKENS}
"""Reasons for limits checked before a turn, each with a limit for reports that lack one."""


class RecordedFault(Exception):
    """An adapter's exception that ended a recorded run; the subclass has its name."""


class RunEnd(Struct):
    """The end of a recorded run, or an interrupt by the user."""

    report: Report | None = None  # None if the record has no end
    is_interrupt: bool = False
    turn: int = 0  # the last one before the summary
    refusals: int = 0  # of the next request, as too long
    index: int | None = None  # the place of the first event after the stop, None without one
    has_summary: bool = False  # a summary was requested
    is_asked: bool = False  # a note asked for the summary; it may be left out
    is_own: bool = False  # at its own limit
    wraps_up: bool = False  # requested by `wrap_up` or at the limit of a run above
    is_cut: bool = False  # a model call, a call or a wait was cut off
    results: dict[str, ToolResult] = {}  # of cut-off calls, by id
    has_read: bool = False  # the run has read messages since its last answer
    is_request_lost: bool = False  # a process ended during the request with these messages
    warning: tuple[int, Limit] | None = None  # turn and limit of the warning
    has_notes: bool = False  # a run began summarising its conversation
    is_over: bool = False  # the run was stopped again

    def apply(self, event: StoredEvent, index: int) -> None:
        """Add the run's next event. `index`: its place in the record."""
        is_turn = isinstance(event, TurnStarted) and event.summary_reason is None
        if is_turn or self._is_after_lost_stop(event):
            self._forget_stop()
        if is_turn:
            self.turn = event.turn
            self.has_read = self.is_request_lost = False
            return
        if isinstance(event, TurnFinished) and not self.has_summary:
            self.refusals = 0
        if self.index is None and self._is_after_stop(event):
            self.index = index
        self._add_facts(event)

    def _add_facts(self, event: StoredEvent) -> None:
        if isinstance(event, TurnStarted):
            self.has_summary = True
        elif isinstance(event, TurnFailed) and not self.has_summary:
            self._add_failure(event)
        elif isinstance(event, ToolCallFinished) and is_cut_off(event):
            self.results = {**self.results, event.call_id: event.result}
            self.is_cut = True
        elif isinstance(event, MessageDelivered):
            self.has_read = True
        elif isinstance(event, NoteInjected):
            self.wraps_up |= event.text == WRAP_UP_NOTE
            self.is_asked |= asks_for_summary(event)
            self.is_own |= event.text in OWN_LIMIT_NOTES
            if limit := NEAR_LIMIT_NOTES.get(event.text):
                self.warning = event.turn, limit
        elif isinstance(event, RunFinished):
            self.report = event.report
        elif isinstance(event, RunWaiting):
            self.is_interrupt = event.is_interrupted
            self.is_cut = True  # until a message wakes the run, and the next turn starts

    def _add_failure(self, event: TurnFailed) -> None:
        if event.overflow:
            self.turn = event.turn - 1  # the run takes back the request
            self.refusals += 1
        elif event.error == CUT_OFF:
            self.is_cut = True
            self.is_asked = True  # else the next process would have repeated the turn

    def _forget_stop(self) -> None:
        self.index = None
        self.results = {}
        self.is_cut = False
        self.has_summary = False
        self.is_asked = False
        self.is_own = False
        self.wraps_up = False

    def continue_run(self) -> None:
        """Note that another process goes on with the run.

        That process does not know about a stop that the first one did not finish, unless a note
        tells the run to end: a pause, or a kill while calls were being cut off, ends no run.
        """
        if not self.is_asked:
            self._forget_stop()
            self.is_request_lost |= self.has_read

    def _is_after_lost_stop(self, event: StoredEvent) -> bool:
        """Return whether the run continues after a stop.

        The process ended while stopping the run, and the next one did not know about it.
        """
        if type(event) is not NoteInjected or event.origin != "engine" or self.has_summary:
            return False
        if self.index is None:
            return False
        is_own_limit = event.text in OWN_LIMIT_NOTES  # found between turns, not in a call
        return not asks_for_summary(event) or (self.is_cut and is_own_limit)

    def _is_after_stop(self, event: StoredEvent) -> bool:
        if isinstance(event, TurnFailed):
            return event.error == CUT_OFF
        if isinstance(event, ToolCallFinished):
            return is_cut_off(event)
        if isinstance(event, MessageDelivered):
            return event.turn == self.turn
        if isinstance(event, NoteInjected):
            return asks_for_summary(event)
        return isinstance(event, RunFinished | TurnStarted) or is_interrupt(event)

    def is_reached_by(self, run: RunContext) -> bool:
        """Return whether a run has reached its last turn and passed the refusals after it."""
        refusals = run.conversation.shortening.overflow_count
        return (run.turn.number, refusals) >= (self.turn, self.refusals)

    @property
    def is_due(self) -> bool:
        """True if something outside the run still has to stop it."""
        if self.is_over or self.index is None or self.has_not_begun:
            return False
        if self.is_interrupt:
            return True
        if self.report is None:
            return self.is_cut or self.wraps_up
        if self.report.reason in (*_LIMITS, Reason.TIMEOUT) and not self.is_cut:
            return self.limit is None
        return self.report.reason in (*_LIMITS, Reason.TIMEOUT, Reason.CANCELLED)

    @property
    def has_not_begun(self) -> bool:
        """True if there was not enough time for the run's first answer."""
        if self.report is None or self.turn:
            return False
        if self.has_notes and self.report.limit is None:
            return False  # it was cut off while summarising its conversation
        return self.report.reason is Reason.TIMEOUT and bool(self.report.error)

    @property
    def limit(self) -> LimitState | None:
        """The limit the run found used up before a turn, None if it ended otherwise."""
        report = self.report
        if report is None or self.is_cut:
            return None
        if report.reason is Reason.TIMEOUT:
            # The time limit itself ends a run anywhere, without an error.
            return report.limit if report.error else None
        if report.reason not in _LIMITS:
            return None
        if report.limit is None and self.is_own:
            # A process that continues the run before its summary does not know what was spent.
            return LimitState(_LIMITS[report.reason], self.turn, self.turn)
        return report.limit


def is_interrupt(event: StoredEvent) -> bool:
    return isinstance(event, RunWaiting) and event.is_interrupted


def list_past_ends(events: Iterable[StoredEvent]) -> set[int]:
    """Return the ids of events that end runs, or their calls, which no process continued.

    The run's process was lost, or the next one was told to end the run before going on with it.
    These events have no turn.
    """
    begun: set[str] = set()
    ends: set[int] = set()
    for event in events:
        if isinstance(event, TurnStarted):
            begun.add(event.run)
        elif isinstance(event, ToolCallFinished) and not event.turn:
            ends.add(id(event))
        elif isinstance(event, RunFinished) and not event.turn:
            is_lost = event.report.reason is Reason.LOST
            ends.update({id(event)} if is_lost or event.run in begun else ())
    return ends


def is_about_limit(event: NoteInjected) -> bool:
    """Return whether a note says that a limit is near, or asks for the summary."""
    return event.text in NEAR_LIMIT_NOTES or asks_for_summary(event)


def asks_for_summary(event: NoteInjected) -> bool:
    return event.text.endswith(SUMMARY_REQUEST)


def is_cut_off(event: ToolCallFinished) -> bool:
    """Return whether stopping its run cut off a call.

    A process that continues a run ends interrupted calls with the same text, but continues the
    child of a `task`; what is unknown about that call is what its child left unknown.
    """
    is_of_crash = event.result.unknown_changes == UNKNOWN_AFTER_CRASH and event.name != "task"
    return is_cut_off_result(event.result.text) and not is_of_crash


class RecordedStops:
    """The stops of all runs of a record.

    `steps` are the events that come again, in order, and the places where another process went on
    with a run. `past_ends`: see `list_past_ends`.
    """

    def __init__(self, steps: Sequence[StoredEvent], past_ends: Container[int]) -> None:
        self.past_ends = past_ends
        self._ends: dict[str, list[RunEnd]] = {}
        self._runs: dict[str, RunContext] = {}
        self._max_tokens: dict[tuple[str, int], deque[int | None]] = {}
        self._cut_off: set[tuple[str, str]] = set()
        self._kept_ends: list[tuple[str, asyncio.Future[None]]] = []
        index = -1
        for event in steps:
            if isinstance(event, RunResumed):
                if event.run in self._ends:
                    self._ends[event.run][-1].continue_run()
                continue
            index += 1
            if isinstance(event, MessageSent) or id(event) in past_ends:
                continue
            if isinstance(event, TurnStarted) and event.summary_reason is None:
                requests = self._max_tokens.setdefault((event.run, event.turn), deque())
                requests.append(event.max_tokens)  # one that was too long is sent again, shortened
            if isinstance(event, ToolCallFinished) and is_cut_off(event):
                self._cut_off.add((event.run, event.call_id))
            ends = self._ends.setdefault(event.run, [RunEnd()])
            ends[-1].apply(event, index)
            if isinstance(event, RunStarted) and event.brief.is_compaction:
                above = self._ends.get(event.brief.parent, [RunEnd()])
                above[-1].has_notes = True
            if is_interrupt(event):
                ends.append(RunEnd(turn=event.turn, refusals=ends[-1].refusals))

    def get_end(self, run_id: str) -> RunEnd:
        """Return a run's next interrupt or its end."""
        return self._ends[run_id][0]

    def add_run(self, run: RunContext) -> None:
        self._runs[run.run_id] = run

    def find_run(self, run_id: str) -> RunContext | None:
        return self._runs.get(run_id)

    def is_stopped_before(self, run_id: str, index: int | None) -> bool:
        """Return whether a run has yet to be stopped, before a place in the record.

        None means the end of the record.
        """
        if run_id not in self._ends:
            return False
        end = self.get_end(run_id)
        return end.is_due and (index is None or end.index is None or index >= end.index)

    def has_stopped(self, run_id: str) -> bool:
        return run_id in self._ends and self.get_end(run_id).is_over

    def keep_end(self, run_id: str, arrival: asyncio.Future[None]) -> None:
        """Keep the end of a run whose record is cut off, until a run above it is stopped.

        The run above had not continued it, but in a replay both are working, and one waits for the
        other's end.
        """
        self._kept_ends.append((run_id, arrival))
        self._release_ends()

    def _release_ends(self) -> None:
        for run_id, arrival in self._kept_ends:
            if self._has_stopped_above(run_id) and not arrival.done():
                arrival.set_result(None)

    def _has_stopped_above(self, run_id: str) -> bool:
        parent = find_parent_id(run_id)
        return bool(parent) and (self.has_stopped(parent) or self._has_stopped_above(parent))

    def find_report(self, run_id: str) -> Report | None:
        """Find a run's recorded report, None if the record ends before it."""
        ends = self._ends.get(run_id)
        return ends[-1].report if ends else None

    def has_cut_off(self, run_id: str, call_id: str) -> bool:
        """Return whether a stop cut off a call, even without a later process knowing about it."""
        return (run_id, call_id) in self._cut_off

    def pass_interrupt(self, run_id: str) -> None:
        """Move past an interrupt that has come again."""
        self._ends[run_id].pop(0)

    def stop(self, run_id: str, index: int) -> bool:
        """Stop a run if the record stopped it before this place. Return whether it did."""
        run = self._runs.get(run_id)
        if run is None or not self.is_stopped_before(run_id, index):
            return False
        end = self.get_end(run_id)
        self._begin_stop(run, end)
        reason = end.report.reason if end.report else Reason.CANCELLED
        if end.is_interrupt:
            run.control.interrupt()
        elif end.has_summary and reason is Reason.TIMEOUT and not end.wraps_up:
            if run.timer.deadline:  # the run's own time limit
                run.timer.deadline.reschedule(asyncio.get_running_loop().time())
        elif end.has_summary:
            run.control.wrap_up(reason)
        else:
            run.control.cancel(reason)
        return True

    def _begin_stop(self, run: RunContext, end: RunEnd) -> None:
        end.is_over = True
        self._release_ends()
        for call_id, result in end.results.items():
            run.evidence.open_windows[call_id] = _RecordedWindow(result)

    def find_limit(self, run_id: str) -> LimitState | None:
        """Return the recorded limit if it ended the run before the next turn.

        If an error ended it there, raises ModelError or TimeoutError with the recorded error.
        """
        end = self.get_end(run_id)
        run = self._runs[run_id]
        report = end.report
        if not end.is_reached_by(run) or report is None or end.is_due or end.is_request_lost:
            return None
        if end.has_not_begun:
            raise TimeoutError(report.error)
        if end.limit:
            return end.limit
        if report.reason is Reason.ERROR:
            raise ModelError(report.error)  # its workspace could not be opened
        return None

    def is_stopped_here(self, run_id: str) -> bool:
        """Return whether a stop or lost request must come before the run's next turn."""
        end = self.get_end(run_id)
        return (end.is_due or end.is_request_lost) and end.is_reached_by(self._runs[run_id])

    def lose_request(self, run_id: str) -> LimitState | None:
        """Note that a lost request has come again as far as it got; return the limit found then."""
        self.get_end(run_id).is_request_lost = False
        return self.find_limit(run_id)

    def is_ended_by_limit(self, run_id: str) -> bool:
        """Return whether a limit ended the run before the next turn."""
        end = self.get_end(run_id)
        return end.limit is not None and end.is_reached_by(self._runs[run_id])

    def permit_request(self, run_id: str) -> Permit | None:
        """Return the next turn's recorded permit, None if no limit counted its answer."""
        end = self.get_end(run_id)
        turn = self._runs[run_id].turn.number + 1
        report = end.report if turn == end.turn else None
        limit = report.limit if report and report.reason is Reason.BUDGET else None
        requests = self._max_tokens.get((run_id, turn))
        max_tokens = requests.popleft() if requests else None
        if max_tokens is None and limit is None:
            return None
        return Permit((), None, max_tokens=max_tokens, cut_by=limit)

    def find_passed_limit(self, run_id: str) -> LimitState | None:
        report = self.get_end(run_id).report
        return report.limit if report else None

    def find_warning(self, run_id: str) -> LimitState | None:
        """Find the limit that the run was warned about at this point."""
        warning = self.get_end(run_id).warning
        if warning is None or warning[0] != self._runs[run_id].turn.number:
            return None
        return LimitState(warning[1], 0, 0)

    def repeat_failure(self, run_id: str) -> None:
        """Raise the exception from a model call that ended the run.

        Returns if something outside the run cut the call off.
        """
        end = self.get_end(run_id)
        report = end.report
        if end.is_interrupt or report is None:
            return
        if report.reason is Reason.ERROR:
            name, _, text = report.error.partition(": ")
            raise type(name, (RecordedFault,), {})(text)
        if report.reason is Reason.TIMEOUT and report.error:
            self._begin_stop(self._runs[run_id], end)
            raise TimeoutError(report.error)

    def is_cut_off(self, run_id: str, call_id: str) -> bool:
        """Return whether stopping its run cut off a call."""
        return call_id in self.get_end(run_id).results


class _RecordedWindow(ChangeWindow):
    """The recorded changes of a cut-off call."""

    def __init__(self, result: ToolResult) -> None:
        self._result = result

    async def close(self, result: ToolResult) -> ToolResult:
        return self._result


class RecordedMeters(Meters):
    """Meters with the recorded budgets and limits."""

    def __init__(
        self, briefs: Mapping[str, Brief], stops: RecordedStops, gate: RequestGate
    ) -> None:
        super().__init__()
        self.gate = gate
        self._briefs = briefs
        self._stops = stops

    def open(self, run_id: str, budget: Budget, parent: Meter | ParentMeter | None = None) -> Grant:
        self._meters[run_id] = RecordedMeter(run_id, budget, parent, self._stops)
        return Grant(run_id, budget)

    async def allocate(
        self, parent: Meter, run_id: str, requested: Budget, seconds: float
    ) -> Grant:
        parent.add_usage(Usage(), 0.0, children=1)
        return self.open(run_id, self._briefs[run_id].budget, parent)


class RecordedMeter(Meter):
    """A meter that counts the run's turns; all other limits come from the record."""

    has_shared_limits: Any = True  # so every request asks the gate, which has recorded permits

    def __init__(
        self, run_id: str, budget: Budget, parent: Meter | ParentMeter | None, stops: RecordedStops
    ) -> None:
        super().__init__(Budget(turns=budget.turns), parent)
        self.run_id = run_id
        self._stops = stops

    def find_exceeded_limit(self, seconds: float = 0.0) -> LimitState | None:
        if limit := self._stops.find_limit(self.run_id):
            return limit
        # A run stopped here, or whose request was lost, had not found its limit yet.
        return None if self._stops.is_stopped_here(self.run_id) else super().find_exceeded_limit()

    def find_passed_limit(self) -> LimitState | None:
        return self._stops.find_passed_limit(self.run_id)

    def take_warning(self, seconds: float = 0.0) -> LimitState | None:
        if self.has_warned:
            return None
        state = self._stops.find_warning(self.run_id)
        self.has_warned = state is not None
        return state
