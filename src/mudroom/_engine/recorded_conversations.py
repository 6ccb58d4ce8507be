"""A session's recorded runs: conversations, briefs, reports, effects, and unfinished runs."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from .._core.agents import WorkspaceKind, WorkspaceSpec
from .._core.events import (
    CUT_OFF,
    Compacted,
    NoteInjected,
    ResultsCleared,
    RunFinished,
    RunResumed,
    RunStarted,
    RunWaiting,
    StoredEvent,
    ToolCallStarted,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from .._core.messages import Message, RecordedConversation, RecordedFailure
from .._core.runs import Brief, Reason, Report, find_parent_id, is_child_id, make_following_id
from .._core.tool_names import normalize_tool_name
from .._core.tools import Effect, Tool
from .._projections.transcript import ContextBuilder
from .conversation import normalize_conversation


class PastEvents(UserDict[str, list[StoredEvent]]):
    """Events by run id, with an index of the runs below each run."""

    def __init__(self, events: Mapping[str, list[StoredEvent]] | None = None) -> None:
        self._children: dict[str, dict[str, None]] = {}
        super().__init__(events)

    def __getitem__(self, run_id: str) -> list[StoredEvent]:
        return self.data[run_id]  # the inherited method looks for `__missing__` each time

    def __setitem__(self, run_id: str, events: list[StoredEvent]) -> None:
        super().__setitem__(run_id, events)
        if parent := find_parent_id(run_id):
            self._children.setdefault(parent, {})[run_id] = None

    def __delitem__(self, run_id: str) -> None:
        super().__delitem__(run_id)
        if parent := find_parent_id(run_id):
            del self._children[parent][run_id]

    def clear(self) -> None:
        # The inherited method pops entries one by one, in quadratic time.
        self.data.clear()
        self._children.clear()

    def list_children(self, run_id: str) -> list[str]:
        """Return the ids of the children of a run, oldest first."""
        return list(self._children.get(run_id, ()))

    def walk_below(self, run_id: str) -> Iterator[str]:
        """Yield the ids of all runs below this one, parents before children."""
        for child in self._children.get(run_id, ()):
            yield child
            if child in self._children:
                yield from self.walk_below(child)


def rebuild_conversations(events: Sequence[StoredEvent]) -> list[RecordedConversation]:
    """Return the recorded conversations, ordered by the start of their runs.

    A run has one conversation, until an edit by the engine ends it and begins the next.
    """
    return [each for record in _rebuild_runs(events).values() for each in record.list_parts()]


_STOPPED = (Reason.TIMEOUT, Reason.CANCELLED, Reason.MAX_TURNS, Reason.BUDGET)
"""Reasons for which a run may be cut off in a call: its limits, those above, a cancel."""

_STEPS = (
    RunResumed,
    TurnFailed,
    TurnFinished,
    TurnStarted,
    NoteInjected,
    ResultsCleared,
    Compacted,
    RunWaiting,
)
"""Events after which an unanswered call is no longer the latest step."""


class _RunRecord:
    """A run's conversations, rebuilt as its events arrive.

    `history` are the messages of earlier runs, as the run received them.
    """

    def __init__(self, start: RunStarted, history: tuple[Message, ...]) -> None:
        self.brief = start.brief
        self.history = history
        self.context = ContextBuilder()
        self.context.apply(replace(start, brief=replace(start.brief, history=history)))
        self._parts: list[tuple[tuple[Message, ...], list[TurnFailed]]] = []
        self._failures: list[TurnFailed] = []
        self._request_count = 0  # in the last part
        self._latest: StoredEvent = start
        self._summary_turn = 0
        self._report: Report | None = None
        self._interrupted: set[int] = set()

    def apply(self, event: StoredEvent) -> None:
        if isinstance(event, ResultsCleared | Compacted):
            self._end_part()
        elif isinstance(event, TurnStarted):
            self._request_count += 1
            if event.summary_reason:
                self._summary_turn = event.turn
        elif isinstance(event, TurnFailed):
            self._failures.append(event)
        elif isinstance(event, RunResumed):
            self._drop_repeated_call()
        elif isinstance(event, RunWaiting) and event.is_interrupted and is_repeated(self._latest):
            self._interrupted.add(id(self._latest))
            self._end_part()  # the next request repeats this one
        elif isinstance(event, RunFinished):
            self._report = event.report
        if isinstance(event, _STEPS):
            self._latest = event
        self.context.apply(event)
        if isinstance(event, TurnFailed) and event.overflow:
            self._end_part()  # the next request is a new one, shortened or not

    def _drop_repeated_call(self) -> None:
        """Forget a call by an earlier process, which the next one repeats."""
        latest = self._latest
        if isinstance(latest, TurnStarted):
            self._request_count -= 1
        elif is_repeated(latest):
            self._request_count -= 1
            self._failures.pop()
        elif isinstance(latest, TurnFailed) and latest.turn == self._summary_turn:
            # The summary was refused as too long; its part continues.
            _, self._failures = self._parts.pop()
            self._failures.pop()

    def _end_part(self) -> None:
        if self._request_count:
            self._parts.append((self.context.build(), self._failures))
        self._failures = []
        self._request_count = 0

    def list_parts(self) -> list[RecordedConversation]:
        parts = [*self._parts, (self.context.build(), self._failures)]
        return [
            RecordedConversation(
                self.brief.run_id,
                messages,
                tuple(map(self._make_failure, failures)),
            )
            for messages, failures in parts
        ]

    def _make_failure(self, event: TurnFailed) -> RecordedFailure:
        if id(event) in self._interrupted:
            return RecordedFailure(event.error, False, event.text, stop=str(Reason.CANCELLED))
        return _make_failure(event, self._report, self._summary_turn)

    def list_next_history(self) -> tuple[Message, ...]:
        """Return the messages that a run continuing this one would receive now."""
        messages = self.context.build()
        if self.brief.is_compaction and not self.context.is_compacted:
            messages = messages[len(self.history) :]
        return messages


def is_repeated(event: StoredEvent | None) -> bool:
    """Return whether the next process repeats a model call unchanged. `event`: the run's last."""
    return isinstance(event, TurnFailed) and not event.overflow


class RecordedRuns:
    """The conversations of runs, rebuilt as their events arrive."""

    def __init__(self) -> None:
        self.records: dict[str, _RunRecord] = {}

    def apply(self, event: StoredEvent) -> None:
        """Add the next event. Events of a run without a start are ignored."""
        if isinstance(event, RunStarted) and event.run not in self.records:
            history = self.list_next_history(event.brief.continues)
            history = normalize_conversation((*history, *event.brief.history))
            self.records[event.run] = _RunRecord(event, history)
        elif event.run in self.records:
            self.records[event.run].apply(event)

    def list_next_history(self, run_id: str) -> tuple[Message, ...]:
        record = self.records.get(run_id)
        return record.list_next_history() if record else ()


def _rebuild_runs(events: Iterable[StoredEvent]) -> dict[str, _RunRecord]:
    runs = RecordedRuns()
    for event in events:
        runs.apply(event)
    return runs.records


def _make_failure(event: TurnFailed, report: Report | None, summary_turn: int) -> RecordedFailure:
    failure = RecordedFailure(
        event.error, event.transient, event.text, is_overflow=event.overflow > 0
    )
    if report is None and event.error == CUT_OFF:  # the process ended before the run did
        return replace(failure, stop=str(Reason.CANCELLED))
    if report is None or event.overflow or event.turn == summary_turn:
        return failure
    is_fault = report.reason is Reason.ERROR and report.error != event.error
    # A call may happen to fail at the moment of the stop.
    is_cut = report.reason in _STOPPED and event.error in (CUT_OFF, report.error)
    if is_fault or is_cut:
        return replace(failure, error=report.error, stop=str(report.reason))
    return failure


def rebuild_briefs(events: Iterable[StoredEvent]) -> list[Brief]:
    """Return the briefs that no working parent made, in order.

    These are the briefs of root runs, and of runs that begin with a message to a named child. Each
    includes the conversation it continues.
    """
    return [
        replace(record.brief, history=record.history) if record.brief.continues else record.brief
        for run, record in _rebuild_runs(events).items()
        if not is_child_id(run) or record.brief.message_ids
    ]


def group_by_run(events: Iterable[StoredEvent]) -> dict[str, list[StoredEvent]]:
    """Group events by run id, in order; events of the session itself are left out."""
    by_run: dict[str, list[StoredEvent]] = {}
    for event in events:
        if event.run:
            by_run.setdefault(event.run, []).append(event)
    return by_run


def find_report(events: Sequence[StoredEvent]) -> Report | None:
    """Find the report among a run's events; None if the run has not finished."""
    if events and isinstance(last := events[-1], RunFinished):
        return last.report
    return None


def find_workspace(events: Sequence[StoredEvent]) -> WorkspaceSpec | None:
    """Find a run's workspace; its machine is the last one to have the files."""
    if not events or not isinstance(started := events[0], RunStarted):
        return None
    spec = started.brief.workspace
    if spec.kind is not WorkspaceKind.ISOLATED:
        return spec
    for event in reversed(events):
        if isinstance(event, RunResumed) and event.machine is not None:
            return replace(spec, machine=event.machine)
    return spec


def list_returned_runs(past: Mapping[str, Sequence[StoredEvent]], run_id: str) -> list[str]:
    """List the ids of the later runs in which a child got its work back, in order."""
    runs: list[str] = []
    while (run_id := make_following_id(run_id)) in past:
        first = past[run_id][0]
        if not isinstance(first, RunStarted) or not first.brief.workspace.tree:
            break
        runs.append(run_id)
    return runs


def has_effects(events: Iterable[StoredEvent], toolbox: Mapping[str, Tool]) -> bool:
    """Return whether a run started a call that may have changed something."""
    return any(
        isinstance(event, ToolCallStarted) and not _is_pure(event.call.name, toolbox)
        for event in events
    )


def _is_pure(name: str, toolbox: Mapping[str, Tool]) -> bool:
    tool = toolbox.get(normalize_tool_name(name)) or toolbox.get(name)
    return tool is not None and tool.effect is Effect.PURE
