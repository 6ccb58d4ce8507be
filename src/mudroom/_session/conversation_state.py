"""A session's conversation: each root run's messages, and runs interrupted by a crash."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from .._core.events import ConversationRewound, RunStarted, StoredEvent
from .._core.messages import Message
from .._core.runs import Brief, Report, find_root_id, is_child_id
from .._engine.recorded_conversations import PastEvents, find_report, group_by_run
from .._projections.transcript import Cleared, ContextBuilder, is_left_out
from ..errors import JournalDamaged, UnknownName


class ConversationRun(Struct, frozen=True):
    """One finished root run of the conversation.

    Arguments:
        continues: id of the root run before it; "" for the first.
        is_compacted: true if its messages replace those of the runs before it.
        cleared: its cleared parts, and those of runs before it that it cleared.
    """

    continues: str
    is_compacted: bool
    messages: tuple[Message, ...]
    cleared: Cleared


class ConversationState:
    """A conversation's state, updated with each event; the journal is read only once.

    Attributes:
        run_count: root runs so far. Numbers are never reused.
        latest_run: id of the last prompt run (a root run of depth 0); "" before the first.
        unfinished_events: events of root runs without an end, and of all runs below them, by run
            id, left by a crashed process.
    """

    def __init__(self) -> None:
        self.run_count = 0
        self.latest_run = ""
        self.unfinished_events = PastEvents()
        self._runs: dict[str, ConversationRun] = {}
        self._current_run = ""
        self._context = ContextBuilder()

    def load(self, events: Iterable[StoredEvent]) -> None:
        events = list(events)
        by_run = group_by_run(events)
        roots = [run for run in by_run if not is_child_id(run)]
        self.run_count = max(map(int, roots), default=0)
        self.unfinished_events.update(_select_unfinished(by_run))
        for run in roots:
            brief = _get_brief(by_run[run])
            # Tasks and scopes are root runs as well, but not part of the conversation.
            if brief.depth > 0:
                continue
            self.latest_run = run
            if run not in self.unfinished_events:
                context = ContextBuilder()
                for event in by_run[run]:
                    context.apply(event)
                self._add_run(brief, find_report(by_run[run]), context)
        rewound_to = _find_rewind(events)
        if rewound_to is not None:
            self.latest_run = rewound_to

    def make_run_id(self) -> str:
        self.run_count += 1
        return str(self.run_count)

    @property
    def unfinished_runs(self) -> tuple[str, ...]:
        return tuple(
            run
            for run, events in self.unfinished_events.items()
            if not is_child_id(run) and not find_report(events)
        )

    @property
    def messages(self) -> tuple[Message, ...]:
        return self._list_messages_until(self.latest_run)

    def get_brief_to_resume(self, run_id: str) -> Brief:
        """Return an interrupted run's brief, with the conversation it continues."""
        brief = _get_brief(self.unfinished_events[run_id])
        if not brief.continues:
            return brief
        # The record leaves out the history, which is in the record of earlier runs.
        return replace(brief, history=self._list_messages_until(brief.continues))

    def start_run(self, brief: Brief) -> None:
        """Collect a root run's messages from now on, after those from before a crash."""
        if brief.depth == 0 and brief.continues == self.latest_run:
            self.latest_run = brief.run_id
        self._current_run = brief.run_id
        self._context = ContextBuilder()
        for event in self.unfinished_events.get(brief.run_id, ()):
            self._context.apply(event)

    def observe(self, event: StoredEvent) -> None:
        if event.run == self._current_run:
            self._context.apply(event)

    def finish_run(self, brief: Brief, report: Report | None) -> None:
        """Add an ended root run's messages; without a report, an exception ended it."""
        self._current_run = ""
        if brief.depth == 0:
            self._add_run(brief, report, self._context)

    def rewind(self, run_id: str) -> None:
        if run_id not in self._runs:
            raise UnknownName("run of the conversation", run_id, self._runs)
        self.latest_run = self._runs[run_id].continues

    def _add_run(self, brief: Brief, report: Report | None, context: ContextBuilder) -> None:
        messages = context.build()
        is_compacted = brief.is_compaction or context.is_compacted
        self._runs[brief.run_id] = ConversationRun(
            brief.continues, is_compacted, messages, context.cleared
        )
        if self.latest_run == brief.run_id and is_left_out(brief, report, messages):
            self.latest_run = brief.continues

    def _list_messages_until(self, run_id: str) -> tuple[Message, ...]:
        """List the messages that a run after `run_id` continues, back to the last compaction."""
        known: list[tuple[Message, ...]] = []
        cleared = Cleared()
        while run_id in self._runs:
            run = self._runs[run_id]
            known.append(run.messages)
            cleared = run.cleared.add(cleared)
            if run.is_compacted:
                break
            run_id = run.continues
        return cleared.clear_messages(chain.from_iterable(reversed(known)))


def select_finished(events: Sequence[StoredEvent]) -> list[StoredEvent]:
    """Leave out the events of unfinished root runs and of all runs below them."""
    unfinished = _select_unfinished(group_by_run(events))
    return [event for event in events if event.run not in unfinished]


def _select_unfinished(by_run: dict[str, list[StoredEvent]]) -> dict[str, list[StoredEvent]]:
    open_roots = {run for run in by_run if not is_child_id(run) and not find_report(by_run[run])}
    return {run: by_run[run] for run in by_run if find_root_id(run) in open_roots}


def _find_rewind(events: Sequence[StoredEvent]) -> str | None:
    """Find the run that a rewind after the last prompt went back to; None without a rewind."""
    for event in reversed(events):
        if type(event) is ConversationRewound:
            return event.latest_run
        if type(event) is RunStarted and not event.brief.depth:
            return None
    return None


def _get_brief(events: Sequence[StoredEvent]) -> Brief:
    first = events[0]
    if not isinstance(first, RunStarted):
        raise JournalDamaged(f"the record of run {first.run} does not start with its brief")
    return first.brief
