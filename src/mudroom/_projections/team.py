"""Teammates: the named children of a session, their state, and the messages they have not read.

roster = Roster()
for event in events:
    roster.apply(event)
for teammate in roster.list_teammates("1"):
    print(teammate.name, teammate.state, teammate.unread)
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from .._core.events import (
    AnyEvent,
    MessageDelivered,
    MessageSent,
    RunFinished,
    RunStarted,
    TeamMessageSent,
    ToolCallFinished,
    TurnFinished,
    WorkMerged,
)
from .._core.messages import Usage
from .._core.runs import Brief, InboxMessage, Report, find_root_id

# Calls of this tool are no work: messages alone could go back and forth forever.
MESSAGE_TOOL = "send_message"


def normalize_name(text: str) -> str:
    """Normalise a name to the form that children have: lower case, without "@" and spaces.

    Letters with several forms, such as full-width ones, get a single form.
    """
    words = unicodedata.normalize("NFKC", text).strip().lower().removeprefix("@").split()
    return unicodedata.normalize("NFKC", "-".join(words))


class TeammateState(StrEnum):
    WORKING = "working"
    # Its last run has ended. A message starts the next one.
    IDLE = "idle"
    # Its last run ended with a plan for its parent to approve or refuse.
    WAITS_FOR_APPROVAL = "waits for approval"
    # It was stopped. No message restarts it, and another child may take its name.
    STOPPED = "stopped"


class Teammate(Struct, kw_only=True, eq=False):
    """One named child: a conversation of one or more runs. Only Roster changes it.

    Arguments:
        briefs: of its runs, oldest first.
        started_at, last_event_at: seconds since 1970.
        reports: of its finished runs, by run id.
        unread: messages none of its runs has read, by id.
        shutdown: the open request to stop.
        turns_after_shutdown: answers since it read that request.
        has_refused: true if it has refused a request to stop, which it may do once.
        stopped_in: the parent's runs that stopped it.
        replaced_in: the parent's runs in which a newer child took its name.
        is_merged: false if the files of the last run could not be merged.
    """

    name: str
    briefs: list[Brief]
    started_at: float
    last_event_at: float
    reports: dict[str, Report] = field(default_factory=dict[str, Report])
    usage: Usage = Usage()
    unread: dict[str, InboxMessage] = field(default_factory=dict[str, InboxMessage])
    shutdown: InboxMessage | None = None
    shutdown_at: float = 0.0
    turns_after_shutdown: int = 0
    has_refused: bool = False
    stopped_in: list[str] = field(default_factory=list[str])
    replaced_in: list[str] = field(default_factory=list[str])
    is_merged: bool = True

    @property
    def report(self) -> Report | None:
        """Its last run's report; None while it is running."""
        return self.reports.get(self.run_id)

    @property
    def is_stopped(self) -> bool:
        return bool(self.stopped_in)

    @property
    def is_replaced(self) -> bool:
        return bool(self.replaced_in)

    @property
    def is_idle(self) -> bool:
        """True if it is not running, so that a message would start its next run."""
        return bool(self.report) and not self.is_stopped and not self.is_replaced

    @property
    def first_run(self) -> str:
        return self.briefs[0].run_id

    @property
    def run_id(self) -> str:
        return self.briefs[-1].run_id

    @property
    def agent(self) -> str:
        return self.briefs[-1].agent.name

    @property
    def state(self) -> TeammateState:
        if self.report is None:
            return TeammateState.WORKING
        if self.is_stopped:
            return TeammateState.STOPPED
        if self.briefs[-1].is_plan:
            return TeammateState.WAITS_FOR_APPROVAL
        return TeammateState.IDLE


class Roster:
    """The named children of all runs of a session, built from its events."""

    def __init__(self) -> None:
        self.teammates: list[Teammate] = []
        self._by_run: dict[str, Teammate] = {}
        self._continued: dict[str, str] = {}
        self._early: dict[str, list[TeamMessageSent]] = {}
        self._parents: dict[str, str] = {}
        self._between_prompts: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._exchanges: dict[frozenset[str], int] = {}
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            RunStarted: self._start_run,
            RunFinished: self._finish_run,
            TurnFinished: self._finish_turn,
            TeamMessageSent: self._add_team_message,
            MessageSent: self._add_message_to_parent,
            MessageDelivered: self._deliver,
            ToolCallFinished: self._finish_call,
            WorkMerged: self._finish_merge,
        }

    def apply(self, event: AnyEvent) -> None:
        handler = self._handlers.get(type(event))
        if handler:
            handler(event)

    def has_message(self, message_id: str) -> bool:
        return message_id in self._parents

    def get_last_brief(self, parent: str, teammate: Teammate) -> Brief:
        """Find the brief of a named child's last run, ignoring runs removed by a rewind."""
        parents = self.list_conversation(parent)
        return next(each for each in reversed(teammate.briefs) if each.parent in parents)

    def get_number(self, run_id: str) -> int:
        """Return the number of this run among its named child's, from 1."""
        return self._numbers.get(run_id, 1)

    def list_unread(self, parent: str, teammate: Teammate) -> list[InboxMessage]:
        parents = self.list_conversation(parent)
        return [each for each in teammate.unread.values() if self._parents[each.id] in parents]

    def is_stopped(self, parent: str, teammate: Teammate) -> bool:
        return not self.list_conversation(parent).isdisjoint(teammate.stopped_in)

    def has_due_message(self, parent: str, teammate: Teammate) -> bool:
        """Return whether an unread message, from this run or between prompts, starts the child."""
        return any(
            self._parents[message.id] == parent or message.id in self._between_prompts
            for message in self.list_unread(parent, teammate)
        )

    def get(self, run_id: str) -> Teammate | None:
        return self._by_run.get(run_id)

    def find(self, parent: str, name: str) -> Teammate | None:
        """Find the newest named child of a run, or of the runs it continues.

        The name may be spelt as `normalize_name` allows, or be the id of one of the child's runs.
        """
        name = normalize_name(name)
        parents = self.list_conversation(parent)
        for teammate in reversed(self.teammates):
            if any(brief.parent in parents for brief in teammate.briefs) and (
                teammate.name == name or self._by_run.get(name) is teammate
            ):
                return teammate
        return None

    def list_teammates(self, parent: str) -> list[Teammate]:
        """List the named children of a run and the runs it continues, oldest first."""
        parents = self.list_conversation(parent)
        return [
            teammate
            for teammate in self.teammates
            if any(brief.parent in parents for brief in teammate.briefs)
        ]

    def list_current(self, parent: str) -> list[Teammate]:
        """List the same children, without runs, messages and stops removed by a rewind."""
        parents = self.list_conversation(parent)
        return list(self._select(lambda run_id: run_id in parents))

    def list_current_of_roots(self, *roots: str) -> list[Teammate]:
        kept = {run_id for root in roots for run_id in self.list_conversation(root)}
        return list(self._select(lambda run_id: find_root_id(run_id) in kept))

    def _select(self, is_kept: Callable[[str], bool]) -> Iterator[Teammate]:
        """Yield the named children, with only what belongs to the kept runs of their parents."""
        for teammate in list(self.teammates):
            briefs = [brief for brief in teammate.briefs if is_kept(brief.parent)]
            if briefs:
                yield replace(
                    teammate,
                    briefs=briefs,
                    unread={
                        message_id: message
                        for message_id, message in list(teammate.unread.items())
                        if is_kept(self._parents[message_id])
                    },
                    stopped_in=list(filter(is_kept, teammate.stopped_in)),
                    replaced_in=list(filter(is_kept, teammate.replaced_in)),
                )

    def count_exchanges(self, first: Teammate, second: Teammate) -> int:
        """Count the consecutive messages between two that do nothing else."""
        return self._exchanges.get(frozenset((first.first_run, second.first_run)), 0)

    def count_unread(self, parent: str) -> dict[str, int]:
        """Count the messages that a run's named children have not read, by name.

        Includes those to children that have not begun.
        """
        counts: dict[str, int] = {}
        for event in (event for events in self._early.values() for event in events):
            if event.run == parent:
                counts[event.to] = counts.get(event.to, 0) + 1
        for teammate in self.list_teammates(parent):
            if unread := self.list_unread(parent, teammate):
                counts[teammate.name] = counts.get(teammate.name, 0) + len(unread)
        return counts

    def list_conversation(self, run_id: str) -> set[str]:
        """List the ids of a run and the runs it continues."""
        runs: set[str] = set()
        while run_id and run_id not in runs:
            runs.add(run_id)
            run_id = self._continued.get(run_id, "")
        return runs

    def _start_run(self, event: RunStarted) -> None:
        brief = event.brief
        if brief.continues:
            self._continued[event.run] = brief.continues
        if not brief.name or brief.is_compaction or event.run in self._by_run:
            return
        teammate = self._by_run.get(brief.continues)
        if teammate is None:
            if older := self.find(brief.parent, brief.name):
                older.replaced_in.append(brief.parent)
            teammate = Teammate(
                name=brief.name, briefs=[], started_at=event.at, last_event_at=event.at
            )
            self.teammates.append(teammate)
            for early in self._early.pop(event.run, ()):
                self._add_message(teammate, early)
        teammate.briefs.append(brief)
        self._numbers[event.run] = self._numbers.get(brief.continues, 0) + 1
        teammate.is_merged = True
        teammate.last_event_at = event.at
        self._by_run[event.run] = teammate
        for message_id in brief.message_ids:
            teammate.unread.pop(message_id, None)

    def _finish_run(self, event: RunFinished) -> None:
        teammate = self._by_run.get(event.run)
        if teammate is None or teammate.run_id != event.run:
            return
        teammate.reports[event.run] = event.report
        teammate.last_event_at = event.at
        if teammate.shutdown:
            teammate.stopped_in.append(teammate.briefs[-1].parent)
            teammate.unread.pop(teammate.shutdown.id, None)
            teammate.shutdown = None

    def _finish_merge(self, event: WorkMerged) -> None:
        teammate = self._by_run.get(event.child)
        if teammate and teammate.run_id == event.child:
            teammate.is_merged = event.state == "merged"

    def _finish_turn(self, event: TurnFinished) -> None:
        teammate = self._by_run.get(event.run)
        if teammate is None:
            return
        teammate.usage += event.message.usage
        teammate.last_event_at = event.at
        if teammate.shutdown and teammate.shutdown.id not in teammate.unread:
            teammate.turns_after_shutdown += 1

    def _add_team_message(self, event: TeamMessageSent) -> None:
        self._parents[event.message.id] = event.run or event.after
        if event.after:
            self._between_prompts.add(event.message.id)
        teammate = self._by_run.get(event.child)
        if teammate is None:
            self._early.setdefault(event.child, []).append(event)
            return
        self._add_message(teammate, event)
        sender = self._by_run.get(event.message.sender)
        if sender is None:
            self._end_exchanges(teammate.first_run)
            return
        pair = frozenset((sender.first_run, teammate.first_run))
        count = self._exchanges.pop(pair, 0)
        self._end_exchanges(sender.first_run)
        self._end_exchanges(teammate.first_run)
        self._exchanges[pair] = count + 1

    def _add_message(self, teammate: Teammate, event: TeamMessageSent) -> None:
        message = event.message
        if message.kind == "shutdown" and teammate.report:
            teammate.stopped_in.append(event.run)
            return
        teammate.unread[message.id] = message
        if message.kind == "shutdown":
            teammate.shutdown = message
            teammate.shutdown_at = event.at
            teammate.turns_after_shutdown = 0

    def _add_message_to_parent(self, event: MessageSent) -> None:
        teammate = self._by_run.get(event.message.sender)
        if teammate is None or event.message.kind != "message":
            return
        self._end_exchanges(teammate.first_run)
        if event.message.approve is False and teammate.shutdown and not teammate.has_refused:
            teammate.has_refused = True
            teammate.shutdown = None

    def _deliver(self, event: MessageDelivered) -> None:
        if teammate := self._by_run.get(event.run):
            teammate.unread.pop(event.message_id, None)

    def _finish_call(self, event: ToolCallFinished) -> None:
        if (caller := self._by_run.get(event.run)) and event.name != MESSAGE_TOOL:
            self._end_exchanges(caller.first_run)
        stopped = event.result.detail.get("stopped")
        if stopped and (teammate := self.find(event.run, stopped)):
            teammate.stopped_in.append(event.run)

    def _end_exchanges(self, first_run: str) -> None:
        for pair in [pair for pair in self._exchanges if first_run in pair]:
            del self._exchanges[pair]
