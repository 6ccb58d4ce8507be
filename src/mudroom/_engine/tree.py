"""The fold every screen reads: events in, the tree of runs as it stands now out; and the messages of one run, rebuilt."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Any

from msgspec import Struct

from .._core.agents import Brief, Reason, Report
from .._core.budgets import Budget
from .._core.events import (
    AnyEvent,
    CallFinished,
    CallStarted,
    Delta,
    Resumed,
    Retried,
    RunFinished,
    RunStarted,
    Stored,
    Told,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from .._core.messages import Call, Message, Result, Text, Usage, User
from .._core.tools import canonical

TAIL = 400
"""Characters kept of the words a model is streaming."""

ACTION = 160
"""Characters kept of a run's last action."""

_UNSEEN = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor moves
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links, device strings
    r"|\x1b[ -/]*[0-~]?"  # every other escape
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # control characters but tab and line feed
    r"|[\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"  # bidi marks, the invisible
)
_LONE = re.compile("[\ud800-\udfff]")
_BREAKS = re.compile(r"\r\n?|[\u2028\u2029\x85\x0b\x0c]")
_TELLING = ("description", "command", "file_path", "path", "pattern", "query", "url", "name", "prompt")
_STOPPED = {Reason.TIMEOUT, Reason.MAX_TURNS, Reason.CANCELLED, Reason.BUDGET, Reason.LOOP}


class State(StrEnum):
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
    started: float
    last_at: float
    finished: float = 0.0
    state: State = State.RUNNING
    turn: int = 0
    tools: int = 0
    failed: int = 0
    open: dict[str, str] = {}
    action: str = ""
    usage: Usage = Usage()
    below: Usage = Usage()
    tail: str = ""
    retried: Retried | None = None
    report: Report | None = None
    error: str = ""

    @property
    def subtree(self) -> Usage:
        """Tokens of the run and all below it."""
        return self.usage + self.below

    @property
    def title(self) -> str:
        """What screens call it: its description, else its prompt."""
        return self.description or self.prompt

    def seconds(self, now: float) -> float:
        """Its age in seconds; of a finished run, what it took. `now`: seconds since 1970."""
        return max(0.0, (self.finished or now) - self.started)


class Tree:
    """All runs of a session, folded from its events. Events of a run whose start was not seen are passed over."""

    def __init__(self) -> None:
        self.runs: dict[str, RunView] = {}
        self.roots: list[RunView] = []
        self._children: dict[str, list[RunView]] = {}

    def apply(self, event: AnyEvent) -> None:
        """Take in the next event. Constant time, but for a step to each ancestor when tokens are counted."""
        if isinstance(event, RunStarted):
            self._begin(event)
        elif run := self.runs.get(event.run):
            run.last_at = event.at
            if step := _STEPS.get(type(event)):
                step(run, event)
            if isinstance(event, TurnFinished):
                self._charge(run, event.message.usage)

    def children(self, run_id: str) -> tuple[RunView, ...]:
        """The runs right below one, in the order they began."""
        return tuple(self._children.get(run_id, ()))

    def walk(self, run_id: str = "") -> Iterator[RunView]:
        """The run and all below it, parents first; with no id, every run."""
        for run in [self.runs[run_id]] if run_id else list(self.roots):
            yield run
            for child in self.children(run.run_id):
                yield from self.walk(child.run_id)

    def _begin(self, event: RunStarted) -> None:
        brief = event.brief
        if known := self.runs.get(brief.run_id):  # a resumed run goes on
            known.report, known.finished, known.last_at = None, 0.0, event.at
            known.state, known.open = State.RUNNING, {}
            return
        self.runs[brief.run_id] = run = _view(brief, event.at)
        if run.parent in self.runs:
            self._children.setdefault(run.parent, []).append(run)
        else:
            self.roots.append(run)

    def _charge(self, run: RunView, usage: Usage) -> None:
        run.usage += usage
        above = self.runs.get(run.parent)
        while above:
            above.below += usage
            above = self.runs.get(above.parent)


def clean(text: str) -> str:
    """Text that a terminal shows and does not obey: no escapes, no control characters but tab and line feed, no hidden marks.

    Lone surrogates become U+FFFD, so that the text can always be encoded.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _UNSEEN.sub("", _BREAKS.sub("\n", text))
    return text if text.isascii() else _LONE.sub("\ufffd", text)


def one_line(text: str, limit: int = ACTION) -> str:
    """Clean text with every stretch of white space as one blank, cut at `limit` characters."""
    return " ".join(clean(text[: limit * 4]).split())[:limit]


def describe(call: Call) -> str:
    """A call in words for a screen: its tool and its most telling argument, "read src/x.py"."""
    given = [call.arguments[key] for key in _TELLING if call.arguments.get(key)]
    told = next((v for v in (*given, *call.arguments.values()) if isinstance(v, str)), "")
    return one_line(f"{call.name} {told}")


def transcript(events: Iterable[Stored], run_id: str) -> tuple[Message, ...]:
    """The messages of one run as its model sees them, rebuilt from the record; empty if the run never began.

    First the history recorded with the brief, then the prompt as a user message; what a run `continues` is in the transcript of
    the run it names. After every answer follows at most one user message:
    the results of its calls in the order of the calls, then what was told before the next model call, a text block each.
    Words told before the first model call join the prompt. While a call of the last answer has no result, the list
    ends with that answer. Of two results of one call the first counts. Failed and repeated model calls leave no trace.
    """
    book = _Rebuilt()
    for event in events:
        if event.run == run_id:
            book.apply(event)
    book.close()
    return tuple(book.messages)


def result_of(event: CallFinished) -> Result:
    """What the model reads of a finished call."""
    return Result(event.call_id, event.name, event.result.text, event.result.error)


class _Rebuilt:
    """The messages so far, and what will join the next user message."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.begun = False
        self.calls: tuple[Call, ...] = ()
        self.results: dict[str, Result] = {}
        self.told: list[Text | Result] = []
        self.unanswered = False

    def apply(self, event: Stored) -> None:
        if isinstance(event, RunStarted) and not self.begun:
            self.begun = True
            self.messages.extend(event.brief.history)
            self.told.append(Text(event.brief.prompt))
        elif isinstance(event, Told):
            self.told.append(Text(event.text))
        elif isinstance(event, CallFinished):
            self.results.setdefault(event.call_id, result_of(event))
        elif isinstance(event, TurnStarted):
            self.close()
            self.unanswered = True
        elif isinstance(event, Resumed):
            if self.unanswered and self.messages and isinstance(last := self.messages[-1], User):  # it is asked again
                self.told[:0] = last.content
                self.messages.pop()
            self.unanswered = False
        elif isinstance(event, TurnFinished):
            self.messages.append(event.message)
            self.unanswered = False
            self.calls = event.message.calls

    def close(self) -> None:
        if any(call.id not in self.results for call in self.calls):
            return
        if content := (*(self.results[call.id] for call in self.calls), *self.told):
            self.messages.append(User(content))
        self.calls, self.results, self.told = (), {}, []


def _view(brief: Brief, at: float) -> RunView:
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
        started=at,
        last_at=at,
    )


def _turn_started(run: RunView, event: TurnStarted) -> None:
    run.turn, run.tail, run.retried = event.turn, "", None


def _delta(run: RunView, event: Delta) -> None:
    run.retried = None
    if event.kind == "text":
        run.tail = (run.tail + event.text)[-TAIL:]


def _retried(run: RunView, event: Retried) -> None:
    run.tail, run.retried = "", event


def _turn_finished(run: RunView, _: TurnFinished) -> None:
    run.tail, run.retried = "", None


def _turn_failed(run: RunView, event: TurnFailed) -> None:
    run.tail, run.retried, run.error = "", None, one_line(event.error, TAIL)


def _at_work(run: RunView) -> State:
    return State.WAITING if run.open and all(name == "task" for name in run.open.values()) else State.RUNNING


def _call_started(run: RunView, event: CallStarted) -> None:
    run.open[event.call.id] = canonical(event.call.name)
    run.state, run.action = _at_work(run), describe(event.call)


def _call_finished(run: RunView, event: CallFinished) -> None:
    run.open.pop(event.call_id, None)
    run.state = _at_work(run)
    run.tools += not event.refused
    run.failed += event.result.error


def _run_finished(run: RunView, event: RunFinished) -> None:
    run.report, run.finished, reason = event.report, event.at, event.report.reason
    run.state = State.DONE if reason is Reason.GOAL else State.STOPPED if reason in _STOPPED else State.FAILED
    run.open, run.tail, run.retried = {}, "", None
    run.error = one_line(event.report.error, TAIL) or run.error


_STEPS: dict[type[Any], Callable[[RunView, Any], None]] = {
    TurnStarted: _turn_started,
    Delta: _delta,
    Retried: _retried,
    TurnFinished: _turn_finished,
    TurnFailed: _turn_failed,
    CallStarted: _call_started,
    CallFinished: _call_finished,
    RunFinished: _run_finished,
}
