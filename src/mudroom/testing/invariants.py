"""A record judged: whether a session's events, and the effects seen in the world, keep the promises that can be seen in them.

    assert not violations(read_only(path).read(), effects=Counter(commands_that_ran))

S5, S6 and S8 (one writer, torn tails, cancel) leave no trace in a record; their tests look at files and processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from .._core.agents import Brief, Reason
from .._core.events import (
    FileWriteIntended,
    PermissionDecided,
    RunFinished,
    RunResumed,
    RunStarted,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from .._core.messages import AssistantMessage, TextBlock, ToolResultBlock, Usage, UserMessage
from .._core.tools import ToolResult, canonical_tool_name
from .._engine.resume import INTERRUPTED
from .._engine.task import NO_SUMMARY, REPORT_CAP
from ..projections.transcript import build_transcript

_EARLY, _LATE = 0.1, 1.0
"""Seconds by which a report's figure may be under or over what the times of its events say; over for each process that took it up."""


class Violation(Struct, frozen=True):
    """A promise broken: which ("S1" to "S10"), in which run, and how."""

    promise: str
    run: str
    description: str

    def __str__(self) -> str:
        return f"{self.promise} in run {self.run}: {self.description}"


def find_violations(
    events: Iterable[StoredEvent],
    *,
    effects: Mapping[str, int] | None = None,
    effectful: Collection[str] = ("bash",),
    ended: bool = True,
    timed: bool = True,
) -> list[Violation]:
    """What in a record of one session is not as promised; empty if it is in order.

    Arguments:
        effects: command -> how often it was seen to have run, for the calls of effectful tools; None: nobody looked.
        effectful: names of the tools whose calls run at most once.
        ended: whether the session came to its end, so that every run must have a reason.
        timed: whether it was recorded in real time, so that the times of its events can be held against what its reports say.
    """
    book = _SessionChecker(effectful, timed=timed)
    for event in events:
        book.enter(event)
    return [
        *book.found,
        *book.close(ended=ended),
        *(book.judge(effects) if effects is not None else ()),
    ]


class _CallRecord:
    """What the record says of one call."""

    def __init__(self, started: ToolCallStarted | None, lives: int) -> None:
        self.started, self.lives = started, lives
        self.result: ToolResult | None = None
        self.resumed = False

    @property
    def interrupted(self) -> bool:
        return self.result is not None and self.result.error and self.result.text == INTERRUPTED


class _ActiveTime:
    """How long a run, or one below it, was at work by the times of its events; what passed while no process was does not count."""

    def __init__(self, at: float) -> None:
        self.last, self.seconds, self.stood_still = at, 0.0, False

    def tick(self, event: StoredEvent, *, own: bool) -> None:
        if not (own and isinstance(event, RunResumed)):
            self.seconds += max(0.0, event.at - self.last)
        self.last = max(self.last, event.at)
        self.stood_still |= isinstance(event, PermissionDecided) and event.verdict == "ask"


class _RunRecord:
    """What the record says of one run."""

    def __init__(self, brief: Brief, at: float) -> None:
        self.brief, self.clock = brief, _ActiveTime(at)
        self.events: list[StoredEvent] = []
        self.lives = 1
        self.turn, self.answered = 0, set[int]()
        self.open_turn, self.grace = False, False
        self.counted = 0
        self.asked: set[str] = set()
        self.ids: set[str] = set()
        self.calls: dict[str, _CallRecord] = {}
        self.children, self.below, self.usage = set[str](), 0, Usage()
        self.report: RunFinished | None = None


class _SessionChecker:
    """All runs of a session, entered event by event."""

    def __init__(self, effectful: Collection[str], *, timed: bool) -> None:
        self.runs: dict[str, _RunRecord] = {}
        self.found: list[Violation] = []
        self._effectful, self._timed = effectful, timed

    def enter(self, event: StoredEvent) -> None:
        """Take in the next event."""
        if isinstance(event, RunStarted):
            self._begin(event)
        run = self.runs.get(event.run)
        if run is None:
            if event.run:
                self._broken("S1", event, f"{type(event).__name__} before the run began")
            return
        if run.report is not None:
            self._broken("S10", event, f"{type(event).__name__} after its end")
        for above in self._upward(run):
            above.clock.tick(event, own=above is run)
            if above.report is not None and above is not run:
                self._broken(
                    "S10",
                    event,
                    f"{type(event).__name__} after the end of run {above.brief.run_id}, which it belongs to",
                )
        run.events.append(event)
        self._step(run, event)

    def _step(self, run: _RunRecord, event: StoredEvent) -> None:
        match event:
            case RunResumed():
                run.lives += 1
                run.grace = (
                    run.grace and not run.open_turn
                )  # who died before the answer came asks again
                run.open_turn = False
            case TurnStarted():
                self._turn_started(run, event)
            case TurnFinished():
                self._turn_finished(run, event)
            case TurnFailed():
                run.open_turn = False
            case ToolCallStarted():
                self._call_started(run, event)
            case FileWriteIntended():
                entry = run.calls.get(event.call_id)
                if entry is None or entry.result is not None:
                    self._broken(
                        "S1", event, f"{event.path} was changed outside of its call {event.call_id}"
                    )
            case ToolCallFinished():
                self._call_finished(run, event)
            case RunFinished():
                self._run_finished(run, event)
            case _:
                pass

    def _turn_started(self, run: _RunRecord, event: TurnStarted) -> None:
        if run.open_turn:
            self._broken(
                "S2", event, f"turn {event.turn} began while turn {run.turn} was under way"
            )
        if event.turn in run.answered or event.turn < run.turn:
            self._broken("S2", event, f"turn {event.turn} was asked for after turn {run.turn}")
        if run.grace:
            self._broken("S10", event, f"turn {event.turn} came after the grace turn")
        for call_id in sorted(
            run.asked - {call_id for call_id, entry in run.calls.items() if entry.result}
        ):
            self._broken(
                "S7", event, f"turn {event.turn} began without a result for call {call_id}"
            )
        run.turn, run.open_turn, run.grace = event.turn, True, event.grace is not None
        run.asked = set()

    def _turn_finished(self, run: _RunRecord, event: TurnFinished) -> None:
        if event.turn in run.answered:
            self._broken("S2", event, f"the answer of turn {event.turn} was bought twice")
        elif not run.open_turn or event.turn != run.turn:
            self._broken("S2", event, f"an answer of turn {event.turn}, which nobody asked for")
        run.answered.add(event.turn)
        run.open_turn = False
        run.counted += not run.grace
        for above in self._upward(run):
            above.usage += event.message.usage
        ids = [call.id for call in event.message.tool_calls]
        if "" in ids or len(set(ids)) < len(ids) or not run.ids.isdisjoint(ids):
            self._broken("S7", event, f"call ids that are empty or not new: {ids}")
        run.ids.update(ids)
        run.asked = set(ids)

    def _call_started(self, run: _RunRecord, event: ToolCallStarted) -> None:
        call_id = event.call.id
        if call_id not in run.asked:
            self._broken(
                "S2", event, f"call {call_id} began before the answer that asks for it was stored"
            )
        if run.grace:
            self._broken("S10", event, f"call {call_id} began in the grace turn")
        if call_id in run.calls:
            self._broken("S3", event, f"call {call_id} began twice")
        run.calls.setdefault(call_id, _CallRecord(event, run.lives))

    def _call_finished(self, run: _RunRecord, event: ToolCallFinished) -> None:
        entry = run.calls.get(event.call_id) or _CallRecord(None, run.lives)
        if entry.result is not None:
            self._broken("S7", event, f"call {event.call_id} has two results")
            return
        run.calls[event.call_id] = entry
        entry.result, entry.resumed = event.result, entry.lives < run.lives
        if event.call_id not in run.asked:
            self._broken(
                "S7",
                event,
                f"a result for call {event.call_id}, which the last answer does not hold",
            )
        if entry.started is None and not entry.interrupted and not (event.refused and run.grace):
            self._broken("S1", event, f"call {event.call_id} has a result and no intent")
        if (
            entry.resumed
            and not entry.interrupted
            and not event.refused
            and canonical_tool_name(event.name) in self._effectful
        ):
            self._broken(
                "S3",
                event,
                f"call {event.call_id} of {event.name} was run again after an interruption",
            )

    def _run_finished(self, run: _RunRecord, event: RunFinished) -> None:
        report, budget = event.report, run.brief.budget
        run.report = event
        if run.open_turn:
            self._broken("S10", event, f"it ended while turn {run.turn} was under way")
        if report.turns < len(run.answered):
            self._broken(
                "S9",
                event,
                f"its report counts {report.turns} turns, the record {len(run.answered)}",
            )
        if budget.turns is not None and run.counted > budget.turns:
            self._broken("S9", event, f"{run.counted} turns of a budget of {budget.turns}")
        if budget.children is not None and run.below > budget.children:
            self._broken("S9", event, f"{run.below} children of a budget of {budget.children}")
        if report.usage != run.usage:
            self._broken("S9", event, f"its report says {report.usage}, the record {run.usage}")
        if self._timed:
            self._run_timed(run, event)

    def _run_timed(self, run: _RunRecord, event: RunFinished) -> None:
        told, seconds, most = event.report.seconds, run.clock.seconds, run.brief.budget.seconds
        if told > seconds + _LATE * run.lives or (
            told < seconds - _EARLY and not run.clock.stood_still
        ):
            self._broken(
                "S9",
                event,
                f"its report says {told:.3f} s, the times of its events {seconds:.3f} s",
            )
        if (
            most is not None
            and event.report.reason is Reason.TIMEOUT
            and not event.report.error
            and told < most - _EARLY
        ):
            self._broken("S10", event, f"its time was up after {told:.3f} s of {most:.3f} s")

    def _begin(self, event: RunStarted) -> None:
        brief = event.brief
        if event.run in self.runs:
            return self._broken("S4", event, "it began twice")
        run = self.runs[event.run] = _RunRecord(brief, event.at)
        for above in self._upward(run):
            above.below += above is not run
        if not brief.parent:
            return None
        parent = self.runs.get(brief.parent)
        if parent is None or brief.call_id not in parent.calls:
            return self._broken(
                "S1",
                event,
                f"it began before the intent of call {brief.call_id} of run {brief.parent}",
            )
        if brief.call_id in parent.children:
            self._broken(
                "S4",
                event,
                f"call {brief.call_id} of run {brief.parent} began another child before",
            )
        return parent.children.add(brief.call_id)

    def _upward(self, run: _RunRecord | None) -> Iterator[_RunRecord]:
        while run is not None:
            yield run
            run = self.runs.get(run.brief.parent)

    def close(self, *, ended: bool) -> Iterator[Violation]:
        """What can be said only at the end of the record."""
        for run_id, run in self.runs.items():
            if run.report is not None:
                yield from self._delivered(run_id, run)
                yield from _sendable(run_id, run)
            elif ended:
                yield Violation("S10", run_id, "it has no end")

    def _delivered(self, run_id: str, run: _RunRecord) -> Iterator[Violation]:
        parent = self.runs.get(run.brief.parent)
        if parent is None or parent.report is None or run.report is None:
            return
        entry = parent.calls.get(run.brief.call_id)
        if entry is None or entry.result is None:
            yield Violation("S10", run_id, "its parent ended and never heard of its end")
        elif entry.interrupted:
            if parent.report.report.reason is Reason.GOAL:
                yield Violation("S4", run_id, "its parent went on without its report")
        elif entry.result.detail.get("run") != run_id:
            yield Violation(
                "S4",
                run_id,
                f"call {run.brief.call_id} was answered with the report of run {entry.result.detail.get('run')}",
            )
        elif (run.report.report.text.strip()[:REPORT_CAP] or NO_SUMMARY) not in entry.result.text:
            yield Violation("S4", run_id, "its parent was told something else than its report")

    def judge(self, effects: Mapping[str, int]) -> Iterator[Violation]:
        """What was seen in the world against what the record says of it."""
        intents, done = Counter[str](), Counter[str]()
        for run in self.runs.values():
            for entry in run.calls.values():
                if (
                    entry.started
                    and canonical_tool_name(entry.started.call.name) in self._effectful
                ):
                    command = str(entry.started.call.arguments.get("command", ""))
                    intents[command] += 1
                    done[command] += entry.result is not None and not entry.result.error
        for command in sorted({*effects, *done}):
            seen = effects.get(command, 0)
            if seen > intents[command]:
                yield Violation(
                    "S3", "", f"{command!r} ran {seen} times for {intents[command]} intents"
                )
            if seen < done[command]:
                yield Violation(
                    "S1", "", f"{command!r} ran {seen} times, the record says {done[command]}"
                )

    def _broken(self, promise: str, event: StoredEvent, what: str) -> None:
        self.found.append(Violation(promise, event.run, what))


def _sendable(run_id: str, run: _RunRecord) -> Iterator[Violation]:
    """S7, of the conversation as the next model call would have it."""
    waiting: list[str] = []
    for message in build_transcript(run.events, run_id):
        if isinstance(message, AssistantMessage):
            if waiting:
                yield Violation("S7", run_id, f"no results for calls {waiting}")
            waiting = [call.id for call in message.tool_calls]
            continue
        yield from _heard(run_id, message, waiting)
        waiting = []
    if waiting:
        yield Violation("S7", run_id, f"no results for calls {waiting}")


def _heard(run_id: str, message: UserMessage, waiting: list[str]) -> Iterator[Violation]:
    given = [block.call_id for block in message.content if isinstance(block, ToolResultBlock)]
    if given != waiting:
        yield Violation("S7", run_id, f"results of calls {given} for calls {waiting}")
    if any(isinstance(block, TextBlock) and not block.text.strip() for block in message.content):
        yield Violation("S7", run_id, "an empty block")
