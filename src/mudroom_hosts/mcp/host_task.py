"""HostTask: one task of the server, its state computed from its events."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from msgspec import Struct

from mudroom import AnyEvent, ApprovalDecision, Report
from mudroom.driving import Question
from mudroom.events import PermissionDecided, RunStarted, TurnFinished
from mudroom.views import RunTree, calculate_cost

from .task_request import TaskArguments

State = Literal["waiting", "working", "asking", "ended"]
_MAX_DENIALS = 50
"""Refused calls that a result lists."""


class Owner(Struct, frozen=True, kw_only=True):
    """Who gives tasks; owners do not see the tasks of others.

    Arguments:
        name: "" for the host at stdin.
        agents: names of the agents that it may use; () for all.
        can_answer: it may answer questions about tool calls.
    """

    name: str = ""
    agents: tuple[str, ...] = ()
    can_answer: bool = True


LOCAL_OWNER = Owner()
OWNER_KEY = "mudroom.owner"
"""Key of the owner in the scope of an HTTP request (ASGI)."""


class Denial(Struct, frozen=True):
    """A tool call that was refused. `run`: the run that wanted it."""

    run: str
    tool: str
    why: str


class ChildEnd(Struct, frozen=True):
    """A run below the task. `reason`: "" while it works."""

    run: str
    agent: str
    reason: str


class HostTask:
    """One task.

    Arguments:
        id: names the task in later calls of the host.
        arguments: as the host sent them.
        owner: of the host.

    Attributes:
        run_id: "" before the task has started.
        report: of the task that has ended.
        error: why there is no report, such as an unknown agent.
        turns: model calls of the task and of the runs below it.
        watchers: set after each change.
        can_ask: the host that has given it shows questions to its user.
    """

    def __init__(self, id: str, arguments: TaskArguments, owner: Owner = LOCAL_OWNER) -> None:
        self.id = id
        self.arguments = arguments
        self.owner = owner
        self.run_id = ""
        self.report: Report[Any] | None = None
        self.error = ""
        self.turns = 0
        self.usd: float | None = 0.0
        self.denials: list[Denial] = []
        self.children: tuple[ChildEnd, ...] = ()
        self.questions: dict[str, Question] = {}
        self.watchers: set[asyncio.Event] = set()
        self.has_ended = False
        self.can_ask = False
        self.is_cancelled = False
        self._tree: RunTree | None = None

    @property
    def state(self) -> State:
        """What the task does."""
        if self.has_ended:
            return "ended"
        if self.questions:
            return "asking"
        return "working" if self.run_id else "waiting"

    def apply(self, event: AnyEvent) -> None:
        """Add the next event of the task or of a run below it."""
        if self._tree is None:
            self._tree = RunTree()
        self._tree.apply(event)
        match event:
            case RunStarted() if not self.run_id:
                self.run_id = event.run
            case TurnFinished():
                self._add_turn(event)
            case PermissionDecided(allowed=False) if len(self.denials) < _MAX_DENIALS:
                why = event.approver_reason or event.policy_reason
                self.denials.append(Denial(event.run, event.name, why))
            case _:
                return
        self.notify()

    def _add_turn(self, event: TurnFinished) -> None:
        self.turns += 1
        view = self._tree.runs.get(event.run) if self._tree else None
        cost = calculate_cost(view.model, event.message.usage) if view else None
        self.usd = None if cost is None or self.usd is None else self.usd + cost

    def finish(self, report: Report[Any] | None, error: str = "") -> None:
        """Note the end of the task."""
        self.children = self.list_children()
        self._tree = None  # the report has what a result needs
        self.report = report
        self.error = error
        self.has_ended = True
        for question in list(self.questions.values()):
            question.answer(ApprovalDecision(False, "the task has ended"))
        self.questions.clear()
        self.notify()

    def notify(self) -> None:
        """Wake those who wait for a change."""
        for watcher in self.watchers:
            watcher.set()

    def list_children(self) -> tuple[ChildEnd, ...]:
        """Return the runs below the task, parents first."""
        if self._tree is None or self.run_id not in self._tree.runs:
            return self.children
        return tuple(
            ChildEnd(run.run_id, run.agent, run.report.reason.value if run.report else "")
            for run in self._tree.walk(self.run_id)
            if run.run_id != self.run_id
        )

    def describe_progress(self) -> str:
        """Return what the task has done so far, in one line."""
        if not self.run_id or self._tree is None:
            return self.state
        root = self._tree.runs[self.run_id]
        facts = [
            _count(len(self.list_children()), "child run"),
            _count(self.turns, "request"),
            f"{root.total_usage.total_tokens:,} tokens",
        ]
        if self.usd is not None:
            facts.append(f"{self.usd:.2f} USD")
        action = root.last_action
        return f"{', '.join(facts)}{f'; {action}' if action else ''}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
