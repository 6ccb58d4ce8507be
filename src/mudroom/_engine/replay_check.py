"""A recorded tree run again with no model and no effect: every event must come out as it was, whatever the order of parallel runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from .._core.agents import Brief, Reason
from .._core.events import (
    Event,
    FileWriteIntended,
    ModelCallRetried,
    PermissionDecided,
    RunFinished,
    RunResumed,
    RunStarted,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFailed,
    TurnStarted,
)
from .._core.messages import Message, RecordedConversation, ToolCallBlock
from .._core.ports import ApprovalDecision, ApprovalRequest, PermissionVerdict, Workspace
from .._core.tools import Tool, ToolResult
from ..errors import MudroomError
from ..projections.transcript import build_transcript
from .compaction import continued_runs
from .run_context import CallContext


class ReplayDiverged(MudroomError):
    """What happened now is not what is recorded; says where, what was, and what is."""


_OUTSIDE = (FileWriteIntended, RunResumed, ModelCallRetried)
"""What only the world outside brings about; in a replay it does not happen."""


class RecordedEvents:
    """The port Journal for a replay: takes events only if they are the recorded ones, and keeps those.

    Arguments:
        events: the record. timeless: a text -> the text without measured times.
    """

    def __init__(self, events: Sequence[StoredEvent], timeless: Callable[[str], str]) -> None:
        self._events, self._timeless = events, timeless
        self._left: dict[tuple[str, ...], list[StoredEvent]] = {}
        for event in events:
            left = self._left.setdefault(_key(event), [])
            if isinstance(event, RunResumed) and left and isinstance(left[-1], TurnStarted):
                left.pop()  # a dead process asked, and heard no answer
            if not isinstance(event, _OUTSIDE):
                left.append(event)

    async def append(self, *events: StoredEvent) -> None:
        """Check events off. Raises ReplayDiverged at the first that is not in the record."""
        for event in events:
            left = self._left.get(_key(event))
            if not left:
                raise ReplayDiverged(
                    f"not in the record: {self._told(event)}",
                    where=f"run {event.run}, turn {event.turn}",
                )
            recorded = left.pop(0)
            if self._told(recorded) != self._told(event):
                what = f"the replay differs.\nrecorded: {self._told(recorded)}\nnow:      {self._told(event)}"
                raise ReplayDiverged(what, where=f"run {event.run}, turn {event.turn}")

    def read(self) -> Iterator[StoredEvent]:
        """The record."""
        return iter(self._events)

    async def close(self) -> None:
        """Nothing to let go of."""

    @property
    def missing_events(self) -> list[StoredEvent]:
        """Recorded events of runs that did not come again."""
        return [event for events in self._left.values() for event in events if event.run]

    def _told(self, event: StoredEvent) -> str:
        plain: Any = msgspec.to_builtins(replace(event, at=0.0))
        plain.pop("seconds", None)
        report = plain.get("report", {})
        for figure in ("seconds", "usd"):
            report.pop(figure, None)
        report |= {
            files: sorted(report[files])
            for files in ("files_read", "files_changed")
            if files in report
        }  # as calls ended
        return self._timeless(msgspec.json.encode(plain, order="deterministic").decode())


class RecordedOutcomes:
    """Results and answers of a record, for tools that must have no effect and people who need not be asked."""

    def __init__(self, events: Sequence[StoredEvent]) -> None:
        self._results = {
            (event.run, event.call_id): event
            for event in events
            if isinstance(event, ToolCallFinished)
        }
        self._judged = {
            (event.run, event.call_id): event
            for event in events
            if isinstance(event, PermissionDecided)
        }

    def toolbox(self, tools: Mapping[str, Tool]) -> dict[str, Tool]:
        """The same tools, giving what they gave. `task` makes the children it made; tools with a memo are pure and run."""
        kept = {name for name, tool in tools.items() if tool.remind}
        gave = {
            name: tool if name in kept else replace(tool, run=self._gave)
            for name, tool in tools.items()
        }
        return {**gave, "task": replace(tools["task"], run=partial(self._made, tools["task"]))}

    async def _made(self, task: Tool, context: CallContext, arguments: object) -> ToolResult:
        event = self._event(context)
        return await task.run(context, arguments) if "run" in event.result.detail else event.result

    async def _gave(self, context: CallContext, arguments: object) -> ToolResult:
        return self._event(context).result

    def _event(self, context: CallContext) -> ToolCallFinished:
        event = self._results.get((context.run_id, context.call.id if context.call else ""))
        if event is None:
            raise ReplayDiverged(
                f"the record has no result of {context.call}", where=f"run {context.run_id}"
            )
        return event

    async def decide(self, question: ApprovalRequest) -> ApprovalDecision:
        """What was decided then."""
        judged = self._judged[question.run_id, question.call_id]
        return ApprovalDecision(judged.allowed, judged.answer)

    def judge(
        self, call: ToolCallBlock, tool: Tool, arguments: Mapping[str, Any], brief: Brief
    ) -> PermissionVerdict:
        """What the rules said then."""
        judged = self._judged.get((brief.run_id, call.id))
        return (
            PermissionVerdict(judged.verdict, judged.why, judged.rule, judged.part)
            if judged
            else PermissionVerdict("allow")
        )

    def view(self, workspace: Workspace, tool: str, brief: Brief) -> Workspace:
        """No file is looked at again."""
        return workspace


def recorded_conversations(events: Sequence[StoredEvent]) -> list[RecordedConversation]:
    """The recorded conversations, one a run, in the order the runs began."""
    runs = {event.run: event.brief for event in events if isinstance(event, RunStarted)}
    reports = {event.run: event.report for event in events if isinstance(event, RunFinished)}
    failures = {event.run: event.error for event in events if isinstance(event, TurnFailed)}
    failures |= {
        run: report.error for run, report in reports.items() if report.reason is Reason.TIMEOUT
    }
    broken = {
        run: str(report.reason)
        for run, report in reports.items()
        if report.reason in (Reason.TIMEOUT, Reason.CANCELLED)
    }
    said = {run: _said(continued_runs(run, runs), events) for run in runs}
    return [
        RecordedConversation(run, said[run], failures.get(run, ""), broken.get(run, ""))
        for run in runs
    ]


def _said(runs: Sequence[str], events: Sequence[StoredEvent]) -> tuple[Message, ...]:
    return tuple(message for run in runs for message in build_transcript(events, run))


def recorded_briefs(events: Sequence[StoredEvent]) -> list[Brief]:
    """The root runs of a record, in the order they began, each with the conversation it went on with."""
    begun = {event.run: event.brief for event in events if isinstance(event, RunStarted)}
    roots = [brief for run, brief in begun.items() if "." not in run]
    return [
        replace(brief, history=_said(continued_runs(brief.run_id, begun)[:-1], events))
        if brief.continues
        else brief
        for brief in roots
    ]


def _key(event: Event) -> tuple[str, ...]:
    """Events of one key come in one order; calls of a turn may come in any."""
    if isinstance(event, ToolCallStarted):
        return event.run, "started", event.call.id
    if isinstance(event, ToolCallFinished | FileWriteIntended | PermissionDecided):
        return event.run, type(event).__name__, event.call_id
    return (event.run,)
