"""What a recorded session left: its conversation so far, and the runs that were under way when its process died."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .._core.agents import Brief
from .._core.events import RunStarted, Stored
from .._core.messages import Message
from ..errors import JournalDamaged
from .recall import finished
from .tree import transcript


class Record:
    """The fold of a session's events to what is needed to go on with it.

    Arguments (of the object):
        runs: how many root runs there were. latest: run id of the conversation's last one.
        conversation: messages of all its finished runs. left: events of unfinished root runs and of all runs below them.
    """

    def __init__(self, events: Iterable[Stored]) -> None:
        by_run: dict[str, list[Stored]] = {}
        for event in events:
            if event.run:
                by_run.setdefault(event.run, []).append(event)
        roots = [run for run in by_run if "." not in run]
        open_roots = {run for run in roots if not finished(by_run[run])}
        self.runs = max(map(int, roots), default=0)
        talked = [run for run in roots if started(by_run[run]).depth == 0]
        self.latest = talked[-1] if talked else ""
        self.conversation: tuple[Message, ...] = ()
        for run in talked:
            if run not in open_roots:
                self.conversation += transcript(by_run[run], run)
        self.left = {run: found for run, found in by_run.items() if run.partition(".")[0] in open_roots}


def started(events: Sequence[Stored]) -> Brief:
    """The brief a run began with."""
    first = events[0]
    if not isinstance(first, RunStarted):
        raise JournalDamaged(f"the record of run {first.run} does not begin with its brief")
    return first.brief
