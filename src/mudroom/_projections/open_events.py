"""What a session needs in order to continue: events, and what its runs have spent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from .._core.agents import WorkspaceKind
from .._core.events import (
    RunFinished,
    RunResumed,
    RunStarted,
    SessionOpened,
    StoredEvent,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from .._core.messages import Usage
from .._core.runs import find_root_id, is_child_id

ComputePrice = Callable[[str, Usage], float | None]

_MIN_REPORTED_USD = 0.0001


# `type(event) is ...` takes a fifth of the time of `isinstance`, and no event has a subclass here.
class PastAmounts:
    """What recorded runs have spent.

    Attributes:
        is_price_known: false if the price of any answer is unknown.
        estimate: tokens and price of cut-off answers.
        turns: turns of root runs. children: runs below them.
    """

    def __init__(self, compute_price: ComputePrice) -> None:
        self.usage = Usage()
        self.usd = 0.0
        self.is_price_known = True
        self.estimate = Usage()
        self.turns = 0
        self.children = 0
        self._compute_price = compute_price
        self._models: dict[str, str] = {}
        self._summarising: set[str] = set()

    def apply(self, event: StoredEvent) -> None:
        """Add an event of a run whose earlier events were added."""
        is_root = not is_child_id(event.run)
        if type(event) is TurnFinished:
            usage = event.message.usage
            self._add_costs(event.message.answered_by or self._models[event.run], usage)
            self.usage += usage
            self.turns += is_root and event.run not in self._summarising
        elif type(event) is TurnFailed:
            self.estimate += event.estimate
        elif type(event) is RunStarted:
            self._models[event.run] = event.brief.model
            self.children += not is_root
        elif type(event) is TurnStarted and event.summary_reason:
            self._summarising.add(event.run)

    def add(self, other: PastAmounts) -> None:
        self.usage += other.usage
        self.usd += other.usd
        self.is_price_known = self.is_price_known and other.is_price_known
        self.estimate += other.estimate
        self.turns += other.turns
        self.children += other.children

    def _add_costs(self, model: str, usage: Usage) -> None:
        usd = self._compute_price(model, usage)
        if usd is None:
            self.is_price_known = False
        else:
            self.usd += usd


class WorkedTime:
    """The seconds that a recorded run spent working."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._working: set[str] = set()
        self._last_at = 0.0

    def apply(self, event: StoredEvent) -> None:
        kind = type(event)
        # Before an opening or a resume, no process worked.
        if self._working and kind is not SessionOpened and kind is not RunResumed:
            self.seconds += event.at - self._last_at
        self._last_at = event.at
        # The earlier process has ended; what it left unfinished continues only after a resume.
        if kind is SessionOpened:
            self._working.clear()
        elif kind is RunStarted or kind is RunResumed:
            self._working.add(event.run)
        elif kind is RunFinished:
            self._working.discard(event.run)


class OpenEvents:
    """A recorded session's events; if it drops tasks, without those of finished tasks.

    Keeps tasks that later runs may need: those with named children or isolated work.

    Attributes:
        count: events read so far.
        task_count: highest number of a root run left out.
        heads: events left out with a system prompt, which later runs refer to.
        starts: of the starts left out, one for each selection of tools.
        amounts: what the runs left out have spent. time: while any run worked.
    """

    def __init__(self, compute_price: ComputePrice, *, drops_tasks: bool) -> None:
        self.count = 0
        self.task_count = 0
        self.heads: list[StoredEvent] = []
        self.starts: dict[object, RunStarted] = {}
        self.amounts = PastAmounts(compute_price)
        self.time = WorkedTime()
        self._compute_price = compute_price
        self._drops_tasks = drops_tasks
        self._events: dict[int, StoredEvent] = {}
        self._tasks: dict[str, list[int]] = {}

    @property
    def events(self) -> list[StoredEvent]:
        return list(self._events.values())

    def apply(self, event: StoredEvent) -> None:
        self.count += 1
        self.time.apply(event)
        self._events[self.count] = event
        if self._drops_tasks and (self._tasks or type(event) is RunStarted):
            self._add_to_task(event)

    def _add_to_task(self, event: StoredEvent) -> None:
        root = find_root_id(event.run)
        if root == event.run and type(event) is RunStarted and event.brief.depth:
            self._tasks[root] = []
        if (positions := self._tasks.get(root)) is None:
            return
        positions.append(self.count)
        if event.outlives_task or _may_be_continued(event):
            del self._tasks[root]
        elif root == event.run and type(event) is RunFinished:
            self._drop(root)

    def extend(self, events: Iterable[StoredEvent]) -> None:
        for event in events:
            self.apply(event)

    def _drop(self, root: str) -> None:
        events: Sequence[StoredEvent] = [
            self._events.pop(position) for position in self._tasks.pop(root)
        ]
        self.task_count = max(self.task_count, int(root))
        reported = _find_reported_costs(events[-1])
        # With the costs from the report, no price of an answer is looked up.
        amounts = PastAmounts(self._compute_price if reported is None else _count_no_price)
        amounts.usd = reported or 0.0
        for event in events:
            amounts.apply(event)
            if isinstance(event, RunStarted | RunResumed) and event.head and event.head.system:
                self.heads.append(event)
            if isinstance(event, RunStarted):
                self.starts.setdefault((event.brief.agent.tools, event.brief.tools), event)
        self.amounts.add(amounts)


def _count_no_price(model: str, usage: Usage) -> float:
    return 0.0


def _find_reported_costs(end: StoredEvent) -> float | None:
    """Find the US dollars in a task's report; None if they are too inexact.

    Looking up the price of each answer takes most of the time when resuming many tasks. Reports
    have six decimals, so the error is below half a percent per task.
    """
    usd = end.report.usd if isinstance(end, RunFinished) else None
    return usd if usd is not None and usd >= _MIN_REPORTED_USD else None


def _may_be_continued(event: StoredEvent) -> bool:
    """Return whether a run starts runs that others may continue, or its work may be open."""
    if type(event) is not RunStarted:
        return False
    brief = event.brief
    return bool(brief.name) or brief.workspace.kind is WorkspaceKind.ISOLATED
