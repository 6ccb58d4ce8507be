"""What a recorded session left: its conversation so far, and the runs that were under way when its process died."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ._core.agents import Brief, Report
from ._core.events import RunStarted, StoredEvent
from ._core.messages import Message
from ._engine.compaction import continued_runs, has_summary
from ._engine.resume import finished_report
from .errors import JournalDamaged
from .projections.transcript import build_transcript


class RecordedSession:
    """The fold of a session's events to what is needed to go on with it.

    Arguments (of the object):
        runs: how many root runs there were. latest: run id of the conversation's last one.
        conversation: messages of all its finished runs. left: events of unfinished root runs and of all runs below them.

    Arguments (of the constructor):
        before: run id of a root run; latest and conversation are as they were when it began.
    """

    def __init__(self, events: Iterable[StoredEvent], *, before: str = "") -> None:
        by_run: dict[str, list[StoredEvent]] = {}
        for event in events:
            if event.run:
                by_run.setdefault(event.run, []).append(event)
        roots = [run for run in by_run if "." not in run]
        open_roots = {run for run in roots if not finished_report(by_run[run])}
        self.run_count = max(map(int, roots), default=0)
        talked = [run for run in roots if _is_in_conversation(by_run[run])]
        briefs = {run: get_brief(by_run[run]) for run in roots}
        self.latest_run = briefs[before].continues if before else talked[-1] if talked else ""
        known = continued_runs(self.latest_run, briefs) if self.latest_run else []
        if known and briefs[self.latest_run].compacts and self.latest_run not in open_roots:
            known = [self.latest_run]
        said = (build_transcript(by_run[run], run) for run in known if run not in open_roots)
        self.conversation: tuple[Message, ...] = tuple(
            message for messages in said for message in messages
        )
        self.unfinished_events = {
            run: found for run, found in by_run.items() if run.partition(".")[0] in open_roots
        }


class ConversationState:
    """Where a session's conversation stands: how many root runs there were, what was said, and what a dead process left."""

    def __init__(self) -> None:
        self.run_count = 0
        self.latest_run = ""
        self.unfinished_events: dict[str, list[StoredEvent]] = {}
        self._messages: tuple[Message, ...] = ()
        self._messages_until = ""

    def load(self, events: Iterable[StoredEvent]) -> None:
        """Go on from a record."""
        record = RecordedSession(events)
        self.run_count, self.latest_run, self._messages = (
            record.run_count,
            record.latest_run,
            record.conversation,
        )
        self._messages_until = (
            "" if record.latest_run in record.unfinished_events else record.latest_run
        )
        self.unfinished_events.update(record.unfinished_events)

    def rewind(self, events: Iterable[StoredEvent], run_id: str) -> None:
        """Go back to before a root run; numbers are not used again."""
        record = RecordedSession(events, before=run_id)
        self.latest_run = self._messages_until = record.latest_run
        self._messages = record.conversation

    @property
    def unfinished_runs(self) -> tuple[str, ...]:
        """Root runs that a dead process left, by run id."""
        return tuple(
            run
            for run, events in self.unfinished_events.items()
            if "." not in run and not finished_report(events)
        )

    def resumed_brief(self, run_id: str) -> Brief:
        """The brief of an unfinished run, with the conversation it went on with."""
        brief = get_brief(self.unfinished_events[run_id])
        return replace(brief, history=self._messages) if brief.continues else brief

    def apply_outcome(self, brief: Brief, report: Report | None) -> None:
        """Take in what came of a run: one that compacts takes the place of all before it, or, when it failed, has no place at all."""
        if brief.compacts and has_summary(report):
            self._messages, self._messages_until = (), ""
        elif brief.compacts:
            self.latest_run = self._messages_until = brief.continues

    def history(self, events: Iterable[StoredEvent]) -> tuple[Message, ...]:
        """The conversation so far; the latest run is added from the record only now that it goes on."""
        if self.latest_run != self._messages_until:
            self._messages += build_transcript(events, self.latest_run)
            self._messages_until = self.latest_run
        return self._messages


def _is_in_conversation(events: Sequence[StoredEvent]) -> bool:
    """Whether a root run is part of the conversation: no task beside it, and no failed attempt to compact it."""
    brief, report = get_brief(events), finished_report(events)
    return brief.depth == 0 and not (brief.compacts and report and not has_summary(report))


def get_brief(events: Sequence[StoredEvent]) -> Brief:
    """The brief a run began with."""
    first = events[0]
    if not isinstance(first, RunStarted):
        raise JournalDamaged(f"the record of run {first.run} does not begin with its brief")
    return first.brief
