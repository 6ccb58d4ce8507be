"""Invariant checker: reads a session's events and reports broken promises (S1-S4, S7, S9-S11, S13).

    assert not find_violations(open_reader(path).read(), effects=Counter(commands_that_ran))

S5, S6 and S8 (one writer, torn tails, cancel) leave no trace in a record. Their tests examine files
and processes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from .._core.events import (
    Compacted,
    FileWriteIntended,
    MessageDelivered,
    MessageSent,
    RunFinished,
    RunResumed,
    RunStarted,
    RunWaiting,
    StoredEvent,
    TeamMessageSent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFailed,
    TurnFinished,
    TurnStarted,
    WorkMerged,
)
from .._core.runs import Reason
from .._core.tool_names import normalize_tool_name
from .._projections.engine_text import unquote
from ._run_records import (
    CallRecord,
    RunRecord,
    Violation,
    check_messages,
    check_notification,
    check_work,
    conversation_errors,
    get_delivered_words,
    has_own_files,
)

__all__ = ["Violation", "find_violations"]

_MAX_UNDER = 0.1  # seconds by which a report's time may fall short of its events' time

_MAX_OVER = 1.0
"""Seconds, per process, by which a report's time may exceed its events' time."""


def find_violations(
    events: Iterable[StoredEvent],
    *,
    effects: Mapping[str, int] | None = None,
    effectful: Collection[str] = ("bash",),
    ended: bool = True,
    timed: bool = True,
) -> list[Violation]:
    """Find the broken promises in one session's record; empty if there are none.

    Arguments:
        effects: command -> how often it really ran, for the calls of effectful tools; None skips
            this check.
        effectful: names of the tools whose calls run at most once.
        ended: true if the session has ended, so every run must have a reason.
        timed: true if the session ran in real time, so event times must agree with the reports.
    """
    checker = _SessionChecker(effectful, timed=timed)
    for event in events:
        checker.add(event)
    violations = [*checker.violations, *checker.check_end(ended=ended)]
    if effects is not None:
        violations += checker.check_effects(effects)
    return violations


class _SessionChecker:
    """Checker for the events of one session, one event at a time."""

    def __init__(self, effectful: Collection[str], *, timed: bool) -> None:
        self.runs: dict[str, RunRecord] = {}
        self._returned: set[str] = set()
        self.team_messages: dict[str, bool] = {}
        self.violations: list[Violation] = []
        self._effectful = effectful
        self._timed = timed
        self._first_at = math.inf

    def add(self, event: StoredEvent) -> None:
        self._first_at = min(self._first_at, event.at)
        name = type(event).__name__
        if isinstance(event, RunStarted):
            self._add_run(event)
        if isinstance(event, TeamMessageSent):
            self._add_team_message(event)
        run = self.runs.get(event.run)
        if run is None:
            if event.run:
                self._report("S1", event, f"{name} before the run began")
            return
        if run.finished is not None:
            self._report("S10", event, f"{name} after its end")
        for ancestor in self._with_ancestors(run):
            ancestor.time.add(event, is_own=ancestor is run)
            if ancestor.finished is not None and ancestor is not run:
                run_id = ancestor.brief.run_id
                self._report("S10", event, f"{name} after the end of run {run_id} above it")
        run.events.append(event)
        if isinstance(event, RunWaiting):
            run.mark_cut_off_calls(event)
        elif isinstance(event, MessageSent | MessageDelivered):
            self._check_message(run, event)
        else:
            self._check(run, event)

    def _check(self, run: RunRecord, event: StoredEvent) -> None:
        match event:
            case RunResumed():
                run.processes += 1
                # A resumed run requests an unanswered grace turn again.
                run.in_grace = run.in_grace and not run.turn_is_open
                run.turn_is_open = False
            case TurnStarted():
                self._check_turn_started(run, event)
            case TurnFinished():
                self._check_turn_finished(run, event)
            case TurnFailed():
                run.turn_is_open = False
            case ToolCallStarted():
                self._check_call_started(run, event)
            case FileWriteIntended():
                if not run.allows_write(event.call_id):
                    problem = f"{event.path} was changed outside of its call {event.call_id}"
                    self._report("S1", event, problem)
            case ToolCallFinished():
                self._check_call_finished(run, event)
            case RunFinished():
                self._check_run_finished(run, event)
            case _:
                pass

    def _check_message(self, run: RunRecord, event: MessageSent | MessageDelivered) -> None:
        if isinstance(event, MessageSent):
            if event.message.id in run.messages:
                self._report("S11", event, f"message {event.message.id} was stored twice")
            run.messages[event.message.id] = None
            return
        message_id = event.message_id
        if message_id not in run.messages:
            self._report("S11", event, f"message {message_id} was read before it was stored")
        elif run.messages[message_id] is not None:
            self._report("S11", event, f"message {message_id} was read twice")
        run.messages[message_id] = event.text
        if message_id in self.team_messages:
            self._read_team_message(message_id, event)

    def _add_team_message(self, event: TeamMessageSent) -> None:
        message_id = event.message.id
        if message_id in self.team_messages:
            self._report("S11", event, f"message {message_id} was stored twice")
        self.team_messages[message_id] = False

    def _read_team_message(self, message_id: str, event: StoredEvent) -> None:
        if self.team_messages.get(message_id):
            self._report("S11", event, f"message {message_id} was read twice")
        elif message_id not in self.team_messages:
            self._report("S11", event, f"message {message_id} was read before it was stored")
        self.team_messages[message_id] = True

    def _check_turn_started(self, run: RunRecord, event: TurnStarted) -> None:
        turn = event.turn
        if run.turn_is_open:
            self._report("S2", event, f"turn {turn} began before turn {run.turn} ended")
        if turn in run.answered or turn < run.turn:
            self._report("S2", event, f"turn {turn} was requested after turn {run.turn}")
        if run.in_grace:
            self._report("S10", event, f"turn {turn} came after the grace turn")
        with_result = {call_id for call_id, call in run.calls.items() if call.result}
        for call_id in sorted(run.requested - with_result):
            self._report("S7", event, f"turn {turn} began without a result for call {call_id}")
        run.turn = turn
        run.turn_is_open = True
        run.in_grace = event.summary_reason is not None
        run.requested = set()

    def _check_turn_finished(self, run: RunRecord, event: TurnFinished) -> None:
        if event.turn in run.answered:
            self._report("S2", event, f"the answer of turn {event.turn} was requested twice")
        elif not run.turn_is_open or event.turn != run.turn:
            self._report("S2", event, f"an answer of turn {event.turn}, which was not requested")
        run.answered.add(event.turn)
        run.turn_is_open = False
        run.counted_turns += not run.in_grace
        for ancestor in self._with_ancestors(run):
            ancestor.usage += event.message.usage
        ids = [call.id for call in event.message.tool_calls]
        if "" in ids or len(set(ids)) < len(ids) or not run.used_ids.isdisjoint(ids):
            self._report("S7", event, f"call ids that are empty or not new: {ids}")
        run.used_ids.update(ids)
        run.requested = set(ids)

    def _check_call_started(self, run: RunRecord, event: ToolCallStarted) -> None:
        call_id = event.call.id
        if call_id not in run.requested:
            self._report("S2", event, f"call {call_id} began before its answer was stored")
        if run.in_grace:
            self._report("S10", event, f"call {call_id} began in the grace turn")
        if call_id in run.calls:
            self._report("S3", event, f"call {call_id} began twice")
        run.calls.setdefault(call_id, CallRecord(event, run.processes))

    def _check_call_finished(self, run: RunRecord, event: ToolCallFinished) -> None:
        call_id = event.call_id
        call = run.calls.get(call_id) or CallRecord(None, run.processes)
        if call.result is not None:
            self._report("S7", event, f"call {call_id} has two results")
            return
        run.calls[call_id] = call
        call.result = event.result
        if call_id not in run.requested:
            self._report("S7", event, f"a result for call {call_id}, not one of the last answer")
        is_summary = run.in_grace or run.brief.is_compaction  # summaries call no tools
        is_refused = event.refused and is_summary
        if call.started is None and not call.is_interrupted and not is_refused:
            self._report("S1", event, f"call {call_id} has a result and no intent")
        was_resumed = call.process < run.processes
        ran = not call.is_interrupted and not event.refused
        if was_resumed and ran and normalize_tool_name(event.name) in self._effectful:
            problem = f"call {call_id} of {event.name} was run again after an interruption"
            self._report("S3", event, problem)

    def _check_run_finished(self, run: RunRecord, event: RunFinished) -> None:
        report = event.report
        budget = run.brief.budget
        run.finished = event
        if run.turn_is_open:
            self._report("S10", event, f"it ended before turn {run.turn} ended")
        answered = len(run.answered)
        if report.turns < answered:
            problem = f"its report counts {report.turns} turns, the record {answered}"
            self._report("S9", event, problem)
        if budget.turns is not None and run.counted_turns > budget.turns:
            self._report("S9", event, f"{run.counted_turns} turns of a budget of {budget.turns}")
        if budget.children is not None and run.runs_below > budget.children:
            problem = f"{run.runs_below} children of a budget of {budget.children}"
            self._report("S9", event, problem)
        if report.usage != run.usage:
            self._report("S9", event, f"its report says {report.usage}, the record {run.usage}")
        if self._timed:
            self._check_times(run, event)

    def _check_times(self, run: RunRecord, event: RunFinished) -> None:
        reported = event.report.seconds
        recorded = run.time.seconds
        limit = run.brief.budget.seconds
        is_over = reported > recorded + _MAX_OVER * run.processes
        is_under = reported < recorded - _MAX_UNDER and not run.time.was_paused
        if is_over or is_under:
            problem = f"its report says {reported:.3f} s, the times of its events {recorded:.3f} s"
            self._report("S9", event, problem)
        ended_by_timeout = event.report.reason is Reason.TIMEOUT and not event.report.error
        # A child wraps up early to leave time for the last turns of the runs above it.
        leaves_time = run.in_grace and bool(run.brief.parent)
        is_early = limit is not None and reported < limit - _MAX_UNDER and not leaves_time
        if ended_by_timeout and is_early and not self._is_session_time_up(event):
            self._report("S10", event, f"its time was up after {reported:.3f} s of {limit:.3f} s")

    def _is_session_time_up(self, event: RunFinished) -> bool:
        # The clock of the session starts before its first event.
        state = event.report.limit
        if state is None or state.spent < state.maximum:
            return False
        return event.at - self._first_at >= state.maximum - _MAX_OVER

    def _add_run(self, event: RunStarted) -> None:
        brief = event.brief
        if event.run in self.runs:
            self._report("S4", event, "it began twice")
            return
        run = RunRecord(event)
        self.runs[event.run] = run
        if brief.is_compaction:
            return
        for ancestor in self._with_ancestors(run):
            ancestor.runs_below += ancestor is not run
        for message_id in brief.message_ids:
            self._read_team_message(message_id, event)
        parent = self.runs.get(brief.parent)
        if brief.message_ids and parent and brief.call_id in parent.calls:
            parent.calls[brief.call_id].has_child = True
        if not brief.parent or brief.message_ids:
            return
        if run.is_returned:
            self._check_return(event)
            return
        call = f"call {brief.call_id} of run {brief.parent}"
        if parent is None or brief.call_id not in parent.calls:
            self._report("S1", event, f"it began before the intent of {call}")
            return
        if parent.calls[brief.call_id].has_child:
            self._report("S4", event, f"{call} started another child before")
        parent.calls[brief.call_id].has_child = True

    def _check_return(self, event: RunStarted) -> None:
        self._returned.add(event.brief.continues)
        parent = self.runs.get(event.brief.parent)
        merges = [each for each in parent.events if isinstance(each, WorkMerged)] if parent else []
        returned = [each.returned for each in merges if each.child == event.brief.continues]
        if returned != [event.run]:
            self._report("S4", event, "it began with work that did not come back to it")

    def _with_ancestors(self, run: RunRecord | None) -> Iterator[RunRecord]:
        while run is not None:
            yield run
            run = self.runs.get(run.brief.parent)

    def check_end(self, *, ended: bool) -> Iterator[Violation]:
        """Yield the violations that only show at the end of the record."""
        for run_id, run in self.runs.items():
            if run.finished is not None:
                yield from check_messages(run_id, run)
                yield from self._check_delivery(run_id, run, run.finished)
                yield from conversation_errors(run_id, run)
            elif ended:
                yield Violation("S10", run_id, "it has no end")

    def _check_delivery(
        self, run_id: str, run: RunRecord, finished: RunFinished
    ) -> Iterator[Violation]:
        parent = self.runs.get(run.brief.parent)
        if parent is None or parent.finished is None:
            return
        if run.brief.is_compaction:
            summaries = [each.summary_run for each in parent.events if isinstance(each, Compacted)]
            is_goal = parent.finished.report.reason is Reason.GOAL
            if is_goal and summaries.count(run_id) != 1:
                yield Violation("S4", run_id, "its parent continued without its notes")
            return
        if has_own_files(run) and parent.finished.report.reason is Reason.GOAL:
            yield from check_work(run_id, self.runs)
        text = get_delivered_words(finished.report)
        if run_id in self._returned:
            return  # the parent only reads the last report
        while run.is_returned:
            run_id = run.brief.continues
            run = self.runs[run_id]
        if run.brief.message_ids:
            yield from check_notification(run_id, text, parent)
        else:
            yield from self._check_call_report(run_id, run.brief.call_id, text, parent)

    def _check_call_report(
        self, run_id: str, call_id: str, text: str, parent: RunRecord
    ) -> Iterator[Violation]:
        """Yield violations of S4: a call that did not receive its child's report."""
        assert parent.finished is not None
        call = parent.calls.get(call_id)
        if call is None or call.result is None:
            yield Violation("S10", run_id, "its parent ended without its report")
            return
        if call.is_interrupted:
            if parent.finished.report.reason is Reason.GOAL and not call.is_cut_off_by_user:
                yield Violation("S4", run_id, "its parent continued without its report")
            return
        delivered_run = call.result.detail.get("run")
        if call.result.detail.get("background"):
            yield from check_notification(run_id, text, parent)
            return
        if delivered_run != run_id:
            problem = f"call {call_id} was answered with the report of run {delivered_run}"
            yield Violation("S4", run_id, problem)
        elif text not in unquote(call.result.text):
            yield Violation("S4", run_id, "its parent got a text that differs from its report")

    def check_effects(self, effects: Mapping[str, int]) -> Iterator[Violation]:
        """Yield the differences between the commands that ran and the record."""
        intended: Counter[str] = Counter()
        succeeded: Counter[str] = Counter()
        for run in self.runs.values():
            for call in run.calls.values():
                started = call.started
                if started and normalize_tool_name(started.call.name) in self._effectful:
                    command = str(started.call.arguments.get("command", ""))
                    intended[command] += 1
                    succeeded[command] += call.result is not None and not call.result.error
        for command in sorted({*effects, *succeeded}):
            ran = effects.get(command, 0)
            if ran > intended[command]:
                problem = f"{command!r} ran {ran} times for {intended[command]} intents"
                yield Violation("S3", "", problem)
            if ran < succeeded[command]:
                problem = f"{command!r} ran {ran} times, the record says {succeeded[command]}"
                yield Violation("S1", "", problem)

    def _report(self, promise: str, event: StoredEvent, description: str) -> None:
        self.violations.append(Violation(promise, event.run, description))
