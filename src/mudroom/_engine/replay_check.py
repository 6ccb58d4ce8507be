"""Replay check: runs a recorded session again, without model and effects, and compares events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from .._core.events import (
    Event,
    FileWriteIntended,
    MessageDelivered,
    MessageSent,
    ModelCallRetried,
    NoteInjected,
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
from .._core.ports import (
    ApprovalDecision,
    ApprovalRequest,
    Hooks,
    PermissionVerdict,
    ToolHookDecision,
    Workspace,
)
from .._core.runs import Brief, InboxMessage, Reason
from .._core.tools import Tool, ToolResult
from ..errors import MudroomError
from ..projections.transcript import build_transcript
from .call_context import CallContext
from .compaction import list_continued_runs
from .structured_output import OutputChecks, OutputRefusal


class ReplayDiverged(MudroomError):
    """An event of the replay differs from the recorded one."""


_NOT_COMPARED = (FileWriteIntended, MessageSent, RunResumed, ModelCallRetried)
"""Event types that depend on the outside world: a replay lacks them or has them elsewhere."""


class RecordedEvents:
    """The port Journal for a replay: accepts only the recorded events.

    Arguments:
        events: the recorded events.
        remove_times: takes a text, returns it without measured times.

    Attributes:
        on_run_start: called with the id of each run that starts.
    """

    def __init__(self, events: Sequence[StoredEvent], remove_times: Callable[[str], str]) -> None:
        self.on_run_start: Callable[[str], None] | None = None
        self._events = events
        self._remove_times = remove_times
        self._appended = 0
        self._expected: dict[tuple[str, ...], list[StoredEvent]] = {}
        for event in events:
            expected = self._expected.setdefault(_order_key(event), [])
            if isinstance(event, RunResumed):
                _remove_unanswered_turn(expected)
            if isinstance(event, PermissionDecided):
                expected.clear()  # the earlier process did not act on its decision
            if not isinstance(event, _NOT_COMPARED):
                expected.append(event)

    async def append(self, *events: StoredEvent) -> int:
        """Compare events with the recorded ones. Raises ReplayDiverged at the first difference."""
        for event in events:
            if isinstance(event, _NOT_COMPARED):
                continue
            where = f"run {event.run}, turn {event.turn}"
            expected = self._expected.get(_order_key(event))
            if not expected:
                raise ReplayDiverged(
                    f"not in the record: {self._to_comparable(event)}", where=where
                )
            recorded = self._to_comparable(expected.pop(0))
            replayed = self._to_comparable(event)
            if recorded != replayed:
                text = f"the replay differs.\nrecorded: {recorded}\nnow:      {replayed}"
                raise ReplayDiverged(text, where=where)
            if isinstance(event, RunStarted) and self.on_run_start:
                self.on_run_start(event.run)
        self._appended += len(events)
        return self._appended

    async def read(
        self, after: int = 0, *, types: Collection[type[StoredEvent]] = ()
    ) -> AsyncIterator[StoredEvent]:
        """Yield the recorded events."""
        for event in self._events[after:]:
            if not types or type(event) in types:
                yield event

    def follow(self, after: int = 0) -> AsyncIterator[StoredEvent]:
        """Yield the recorded events after a position."""
        return self.read(after)

    async def close(self) -> None:
        """Do nothing."""

    @property
    def missing_events(self) -> list[StoredEvent]:
        """Recorded events of runs that the replay has not produced."""
        return [event for events in self._expected.values() for event in events if event.run]

    def _to_comparable(self, event: StoredEvent) -> str:
        """Return an event as JSON, without times and the order in which parallel calls ended."""
        fields: Any = msgspec.to_builtins(replace(event, at=0.0))
        fields.pop("seconds", None)
        fields.pop("prompt_id", None)  # an older version made it from other facts
        report = fields.get("report", {})
        report.pop("seconds", None)
        report.pop("usd", None)
        report.pop("limit", None)
        for name in ("files_read", "files_changed", "observed_changes"):
            if name in report:
                report[name] = sorted(report[name])
        return self._remove_times(msgspec.json.encode(fields, order="deterministic").decode())


def _remove_unanswered_turn(events: list[StoredEvent]) -> None:
    """Remove the last turn if the earlier process received no answer; the next one repeats it."""
    if events and isinstance(events[-1], TurnFailed):
        events.pop()
    if events and isinstance(events[-1], TurnStarted):
        events.pop()


class RecordedOutcomes:
    """Recorded results and decisions in place of tools, policy and approver."""

    def __init__(self, events: Sequence[StoredEvent]) -> None:
        self._results: dict[tuple[str, str], ToolCallFinished] = {}
        self._decisions: dict[tuple[str, str], PermissionDecided] = {}
        for event in events:
            if isinstance(event, ToolCallFinished):
                self._results[event.run, event.call_id] = event
            elif isinstance(event, PermissionDecided):
                self._decisions[event.run, event.call_id] = event

    def make_toolbox(self, tools: Mapping[str, Tool]) -> dict[str, Tool]:
        """Return tools that give the recorded results.

        `task` starts the recorded children again. Tools with a memo are pure and run again.
        """
        replayed: dict[str, Tool] = {}
        for name, tool in tools.items():
            replayed[name] = tool if tool.is_stateful else replace(tool, run=self._return_result)
        task = tools["task"]
        replayed["task"] = replace(task, run=partial(self._run_task, task))
        return replayed

    async def _run_task(self, task: Tool, context: CallContext, arguments: object) -> ToolResult:
        event = self._find_result(context)
        return await task.run(context, arguments) if "run" in event.result.detail else event.result

    async def _return_result(self, context: CallContext, arguments: object) -> ToolResult:
        return self._find_result(context).result

    def _find_result(self, context: CallContext) -> ToolCallFinished:
        call_id = context.call.id if context.call else ""
        event = self._results.get((context.run_id, call_id))
        if event is None:
            text = f"the record has no result of {context.call}"
            raise ReplayDiverged(text, where=f"run {context.run_id}")
        return event

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        """Return the recorded decision."""
        event = self._decisions[request.run_id, request.call_id]
        return ApprovalDecision(event.allowed, event.approver_reason)

    def judge(
        self, call: ToolCallBlock, tool: Tool, arguments: Mapping[str, Any], brief: Brief
    ) -> PermissionVerdict:
        """Return the recorded verdict."""
        event = self._decisions.get((brief.run_id, call.id))
        if event is None:
            return PermissionVerdict("allow")
        return PermissionVerdict(event.verdict, event.policy_reason, event.rule, event.command_part)

    def filter_workspace(self, workspace: Workspace, tool: str, brief: Brief) -> Workspace:
        """Return the workspace unchanged; a replay opens no file."""
        return workspace


class RecordedHooks(Hooks):
    """Hooks that give the recorded notes and arguments.

    Arguments:
        send: sends a message to the run of this id.
    """

    def __init__(
        self, events: Sequence[StoredEvent], send: Callable[[str, InboxMessage], object]
    ) -> None:
        self._send = send
        self._calls: dict[tuple[str, str], ToolCallStarted] = {}
        self._prompt_notes: dict[str, str] = {}
        self._finish_notes: dict[str, list[str]] = {}
        self._messages: dict[str, list[tuple[int, InboxMessage]]] = {}
        sent: dict[str, InboxMessage] = {}
        for event in events:
            if isinstance(event, ToolCallStarted):
                self._calls[event.run, event.call.id] = event
            elif isinstance(event, MessageSent):
                sent[event.message.id] = event.message
            elif isinstance(event, MessageDelivered):
                message = sent[event.message_id]
                self._messages.setdefault(event.run, []).append((event.turn, message))
            elif isinstance(event, NoteInjected) and event.origin == "hook":
                self._add_note(event)

    def _add_note(self, event: NoteInjected) -> None:
        if event.turn:
            self._finish_notes.setdefault(event.run, []).append(event.text)
        else:
            self._prompt_notes[event.run] = event.text

    async def on_prompt(self, brief: Brief) -> str:
        """Return the recorded text."""
        return self._prompt_notes.get(brief.run_id, "")

    async def before_compaction(self, brief: Brief) -> str:
        """Return the recorded text."""
        return await self.on_prompt(brief)

    async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
        """Return the arguments with which the call was started."""
        started = self._calls.get((brief.run_id, call.id))
        if started is None or started.call.arguments == call.arguments:
            return None
        return ToolHookDecision(arguments=started.call.arguments)

    async def after_tool(
        self, brief: Brief, call: ToolCallBlock, result: ToolResult
    ) -> ToolResult | None:
        """Send the messages that were delivered after the turn of this call."""
        self.send_messages(brief.run_id, self._calls[brief.run_id, call.id].turn)

    async def before_finish(self, brief: Brief, text: str) -> str:
        """Send the messages and return the note with which the run continued."""
        messages = self._messages.get(brief.run_id)
        if messages:
            self.send_messages(brief.run_id, messages[0][0])
            return ""
        notes = self._finish_notes.get(brief.run_id)
        return notes.pop(0) if notes else ""

    def send_messages(self, run_id: str, turn: int) -> None:
        """Send the messages to a run that were delivered until this turn."""
        messages = self._messages.get(run_id, [])
        while messages and messages[0][0] <= turn:
            self._send(run_id, messages.pop(0)[1])


class RecordedOutputChecks(OutputChecks):
    """Output checks that refuse values where the record has a refusal."""

    def __init__(self, events: Sequence[StoredEvent]) -> None:
        super().__init__()
        self._refusals: dict[str, list[OutputRefusal]] = {}
        for event in events:
            if isinstance(event, NoteInjected) and event.refused is not None:
                refusal = OutputRefusal(event.text, event.refused)
                self._refusals.setdefault(event.run, []).append(refusal)

    async def find_refusal(self, run_id: str, values: dict[str, Any]) -> OutputRefusal | None:
        """Return the next recorded refusal of the run."""
        refusals = self._refusals.get(run_id)
        return refusals.pop(0) if refusals else None


def rebuild_conversations(events: Sequence[StoredEvent]) -> list[RecordedConversation]:
    """Return the recorded conversations, one per run, in the order in which the runs began."""
    briefs: dict[str, Brief] = {}
    failures: dict[str, str] = {}
    partial_texts: dict[str, str] = {}
    cut_off_by: dict[str, str] = {}
    for event in events:
        if isinstance(event, RunStarted):
            briefs[event.run] = event.brief
        elif isinstance(event, TurnFailed):
            failures[event.run] = event.error
            partial_texts[event.run] = event.text
        elif isinstance(event, RunFinished):
            if event.report.reason is Reason.TIMEOUT:
                failures[event.run] = event.report.error
            if event.report.reason in (Reason.TIMEOUT, Reason.CANCELLED):
                cut_off_by[event.run] = str(event.report.reason)
    return [
        RecordedConversation(
            run,
            _join_transcripts(list_continued_runs(run, briefs), events),
            failures.get(run, ""),
            cut_off_by.get(run, ""),
            partial_texts.get(run, ""),
        )
        for run in briefs
    ]


def rebuild_briefs(events: Sequence[StoredEvent]) -> list[Brief]:
    """Return the briefs of the root runs in order, each with the conversation that it continues."""
    by_run = {event.run: event.brief for event in events if isinstance(event, RunStarted)}
    briefs: list[Brief] = []
    for run, brief in by_run.items():
        if "." in run:
            continue
        if brief.continues:
            earlier_runs = list_continued_runs(run, by_run)[:-1]
            brief = replace(brief, history=_join_transcripts(earlier_runs, events))
        briefs.append(brief)
    return briefs


def _join_transcripts(runs: Sequence[str], events: Sequence[StoredEvent]) -> tuple[Message, ...]:
    return tuple(message for run in runs for message in build_transcript(events, run))


def _order_key(event: Event) -> tuple[str, ...]:
    """Return the key of an event. Only events with the same key have a fixed order.

    Tool calls have separate keys, because calls of one turn may run in parallel.
    """
    if isinstance(event, ToolCallStarted):
        return event.run, "started", event.call.id
    if isinstance(event, ToolCallFinished | FileWriteIntended | PermissionDecided):
        return event.run, type(event).__name__, event.call_id
    return (event.run,)
