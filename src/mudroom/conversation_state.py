"""What a recorded session left: its conversation so far, and the runs that were under way when its process died."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ._core.agents import Brief, Report
from ._core.events import RunStarted, Stored
from ._core.messages import Message
from ._engine.compaction import chain, told
from ._engine.resume import finished
from .errors import JournalDamaged
from .projections.transcript import transcript


class Record:
    """The fold of a session's events to what is needed to go on with it.

    Arguments (of the object):
        runs: how many root runs there were. latest: run id of the conversation's last one.
        conversation: messages of all its finished runs. left: events of unfinished root runs and of all runs below them.

    Arguments (of the constructor):
        before: run id of a root run; latest and conversation are as they were when it began.
    """

    def __init__(self, events: Iterable[Stored], *, before: str = "") -> None:
        by_run: dict[str, list[Stored]] = {}
        for event in events:
            if event.run:
                by_run.setdefault(event.run, []).append(event)
        roots = [run for run in by_run if "." not in run]
        open_roots = {run for run in roots if not finished(by_run[run])}
        self.runs = max(map(int, roots), default=0)
        talked = [run for run in roots if _talked(by_run[run])]
        briefs = {run: started(by_run[run]) for run in roots}
        self.latest = briefs[before].continues if before else talked[-1] if talked else ""
        known = chain(self.latest, briefs) if self.latest else []
        if known and briefs[self.latest].compacts and self.latest not in open_roots:
            known = [self.latest]
        said = (transcript(by_run[run], run) for run in known if run not in open_roots)
        self.conversation: tuple[Message, ...] = tuple(
            message for messages in said for message in messages
        )
        self.left = {
            run: found for run, found in by_run.items() if run.partition(".")[0] in open_roots
        }


class Ongoing:
    """Where a session's conversation stands: how many root runs there were, what was said, and what a dead process left."""

    def __init__(self) -> None:
        self.runs = 0
        self.latest = ""
        self.left: dict[str, list[Stored]] = {}
        self._said: tuple[Message, ...] = ()
        self._said_to = ""

    def take_up(self, events: Iterable[Stored]) -> None:
        """Go on from a record."""
        record = Record(events)
        self.runs, self.latest, self._said = record.runs, record.latest, record.conversation
        self._said_to = "" if record.latest in record.left else record.latest
        self.left.update(record.left)

    def rewind(self, events: Iterable[Stored], run_id: str) -> None:
        """Go back to before a root run; numbers are not used again."""
        record = Record(events, before=run_id)
        self.latest = self._said_to = record.latest
        self._said = record.conversation

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Root runs that a dead process left, by run id."""
        return tuple(
            run for run, events in self.left.items() if "." not in run and not finished(events)
        )

    def resumed(self, run_id: str) -> Brief:
        """The brief of an unfinished run, with the conversation it went on with."""
        brief = started(self.left[run_id])
        return replace(brief, history=self._said) if brief.continues else brief

    def settle(self, brief: Brief, report: Report | None) -> None:
        """Take in what came of a run: one that compacts takes the place of all before it, or, when it failed, has no place at all."""
        if brief.compacts and told(report):
            self._said, self._said_to = (), ""
        elif brief.compacts:
            self.latest = self._said_to = brief.continues

    def history(self, events: Iterable[Stored]) -> tuple[Message, ...]:
        """The conversation so far; the latest run is added from the record only now that it goes on."""
        if self.latest != self._said_to:
            self._said += transcript(events, self.latest)
            self._said_to = self.latest
        return self._said


def _talked(events: Sequence[Stored]) -> bool:
    """Whether a root run is part of the conversation: no task beside it, and no failed attempt to compact it."""
    brief, report = started(events), finished(events)
    return brief.depth == 0 and not (brief.compacts and report and not told(report))


def started(events: Sequence[Stored]) -> Brief:
    """The brief a run began with."""
    first = events[0]
    if not isinstance(first, RunStarted):
        raise JournalDamaged(f"the record of run {first.run} does not begin with its brief")
    return first.brief
