"""The fold every screen reads: events in, the tree of runs as it stands now out; and the messages of one run, rebuilt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

from msgspec import Struct

from .._core.agents import Brief, Reason, Report
from .._core.budgets import Budget
from .._core.events import (
    AnyEvent,
    Delta,
    ModelCallRetried,
    RunFinished,
    RunStarted,
    ToolCallFinished,
    ToolCallStarted,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from .._core.messages import Usage
from .._core.tools import canonical_tool_name
from .safe_text import describe_call, sanitize_line

TAIL_LENGTH = 400
"""Characters kept of the words a model is streaming."""


_STOPPED = {Reason.TIMEOUT, Reason.MAX_TURNS, Reason.CANCELLED, Reason.BUDGET, Reason.LOOP}


class RunState(StrEnum):
    """How a run stands. WAITING: it does nothing but wait for runs below it."""

    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


class RunView(Struct, kw_only=True, eq=False):
    """One run as it stands; changed by the Tree alone.

    Arguments:
        run_id, parent, call_id, agent (its name), description, model, depth, prompt, continues, budget: from the brief.
        state: how it stands. turn: number of the current model call. tools: calls that acted and finished.
        failed: calls that were errors, refused ones too.
        open: calls begun and not finished, by id. action: the last one in words, safe to print, one line.
        usage: tokens of the run itself. below: tokens of all its descendants.
        started, finished, last_at: seconds since 1970; finished is 0 while it runs. last_at: its last event, for stalls.
        tail: last words of the answer that is streaming. retried: the model call is waiting to be made again.
        report: set once it has ended. error: what went wrong last, safe to print.
    """

    run_id: str
    parent: str
    call_id: str
    agent: str
    description: str
    model: str
    depth: int
    prompt: str
    continues: str
    budget: Budget
    started_at: float
    last_event_at: float
    finished_at: float = 0.0
    state: RunState = RunState.RUNNING
    turn: int = 0
    tool_call_count: int = 0
    failed_calls: int = 0
    open_calls: dict[str, str] = {}
    last_action: str = ""
    usage: Usage = Usage()
    descendant_usage: Usage = Usage()
    streamed_tail: str = ""
    pending_retry: ModelCallRetried | None = None
    report: Report | None = None
    error: str = ""

    @property
    def total_usage(self) -> Usage:
        """Tokens of the run and all below it."""
        return self.usage + self.descendant_usage

    @property
    def title(self) -> str:
        """What screens call it: its description, else its prompt."""
        return self.description or self.prompt

    def seconds(self, now: float) -> float:
        """Its age in seconds; of a finished run, what it took. `now`: seconds since 1970."""
        return max(0.0, (self.finished_at or now) - self.started_at)


class RunTree:
    """All runs of a session, folded from its events. Events of a run whose start was not seen are passed over."""

    def __init__(self) -> None:
        self.runs: dict[str, RunView] = {}
        self.roots: list[RunView] = []
        self._children: dict[str, list[RunView]] = {}

    def apply(self, event: AnyEvent) -> None:
        """Take in the next event. Constant time, but for a step to each ancestor when tokens are counted."""
        if isinstance(event, RunStarted):
            self._start_run(event)
        elif run := self.runs.get(event.run):
            run.last_event_at = event.at
            if step := _HANDLERS.get(type(event)):
                step(run, event)
            if isinstance(event, TurnFinished):
                self._add_usage(run, event.message.usage)

    def children(self, run_id: str) -> tuple[RunView, ...]:
        """The runs right below one, in the order they began."""
        return tuple(self._children.get(run_id, ()))

    def walk(self, run_id: str = "") -> Iterator[RunView]:
        """The run and all below it, parents first; with no id, every run."""
        for run in [self.runs[run_id]] if run_id else list(self.roots):
            yield run
            for child in self.children(run.run_id):
                yield from self.walk(child.run_id)

    def _start_run(self, event: RunStarted) -> None:
        brief = event.brief
        if known := self.runs.get(brief.run_id):  # a resumed run goes on
            known.report, known.finished_at, known.last_event_at = None, 0.0, event.at
            known.state, known.open_calls = RunState.RUNNING, {}
            return
        self.runs[brief.run_id] = run = _make_view(brief, event.at)
        if run.parent in self.runs:
            self._children.setdefault(run.parent, []).append(run)
        else:
            self.roots.append(run)

    def _add_usage(self, run: RunView, usage: Usage) -> None:
        run.usage += usage
        above = self.runs.get(run.parent)
        while above:
            above.descendant_usage += usage
            above = self.runs.get(above.parent)


def _make_view(brief: Brief, at: float) -> RunView:
    return RunView(
        run_id=brief.run_id,
        parent=brief.parent,
        call_id=brief.call_id,
        agent=brief.agent.name,
        description=brief.description,
        model=brief.model,
        depth=brief.depth,
        prompt=brief.prompt,
        continues=brief.continues,
        budget=brief.budget,
        started_at=at,
        last_event_at=at,
    )


def _turn_started(run: RunView, event: TurnStarted) -> None:
    run.turn, run.streamed_tail, run.pending_retry = event.turn, "", None


def _delta(run: RunView, event: Delta) -> None:
    run.pending_retry = None
    if event.kind == "text":
        run.streamed_tail = (run.streamed_tail + event.text)[-TAIL_LENGTH:]


def _retried(run: RunView, event: ModelCallRetried) -> None:
    run.streamed_tail, run.pending_retry = "", event


def _turn_finished(run: RunView, _: TurnFinished) -> None:
    run.streamed_tail, run.pending_retry = "", None


def _turn_failed(run: RunView, event: TurnFailed) -> None:
    run.streamed_tail, run.pending_retry, run.error = (
        "",
        None,
        sanitize_line(event.error, TAIL_LENGTH),
    )


def _working_state(run: RunView) -> RunState:
    return (
        RunState.WAITING
        if run.open_calls and all(name == "task" for name in run.open_calls.values())
        else RunState.RUNNING
    )


def _call_started(run: RunView, event: ToolCallStarted) -> None:
    run.open_calls[event.call.id] = canonical_tool_name(event.call.name)
    run.state, run.last_action = _working_state(run), describe_call(event.call)


def _call_finished(run: RunView, event: ToolCallFinished) -> None:
    run.open_calls.pop(event.call_id, None)
    run.state = _working_state(run)
    run.tool_call_count += not event.refused
    run.failed_calls += event.result.error


def _run_finished(run: RunView, event: RunFinished) -> None:
    run.report, run.finished_at, reason = event.report, event.at, event.report.reason
    run.state = (
        RunState.DONE
        if reason is Reason.GOAL
        else RunState.STOPPED
        if reason in _STOPPED
        else RunState.FAILED
    )
    run.open_calls, run.streamed_tail, run.pending_retry = {}, "", None
    run.error = sanitize_line(event.report.error, TAIL_LENGTH) or run.error


_HANDLERS: dict[type[Any], Callable[[RunView, Any], None]] = {
    TurnStarted: _turn_started,
    Delta: _delta,
    ModelCallRetried: _retried,
    TurnFinished: _turn_finished,
    TurnFailed: _turn_failed,
    ToolCallStarted: _call_started,
    ToolCallFinished: _call_finished,
    RunFinished: _run_finished,
}
