"""Restores a run from its events and checks what interrupted tool calls did."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from .._core.agents import WorkspaceSpec
from .._core.budgets import Limit
from .._core.events import (
    Compacted,
    FileWriteIntended,
    MessageDelivered,
    MessageSent,
    NoteInjected,
    ResultsCleared,
    RunFinished,
    RunResumed,
    RunStarted,
    RunWaiting,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFailed,
    TurnFinished,
    TurnStarted,
    WorkMerged,
)
from .._core.messages import (
    NO_USAGE,
    AssistantMessage,
    StopReason,
    ToolCallBlock,
    Usage,
    UserBlock,
)
from .._core.runs import Reason, Report, join_run_id, split_run_id
from .._core.tool_names import normalize_tool_name
from .._core.tools import ToolResult
from .._projections.engine_text import quote
from .call_context import CallContext
from .children.start_child import open_team
from .compaction.record_file import rebuild_context
from .compaction.shortening import apply_edit
from .conversation import INTERRUPTED, UNKNOWN_AFTER_CRASH, CallOutcome
from .inbox import is_notification, make_notification
from .meters.account import Permit
from .meters.meter import NEAR_LIMIT
from .meters.run_timer import sum_worked_seconds
from .model_call import append_answer, charge
from .phase import WRAP_UP_NOTE, Phase, Resumption, RunControl
from .recorded_conversations import PastEvents, find_report, list_returned_runs
from .run_context import RunContext
from .structured_output import EMIT_TOOL, REMINDER_START, OutputRefusal
from .tool_calls import collect_reminders

NEAR_LIMIT_NOTES = {NEAR_LIMIT.format(limit=limit.replace("_", " ")): limit for limit in Limit}


async def restore_run(run: RunContext, events: Sequence[StoredEvent]) -> Resumption:
    restorer = _Restorer(run)
    for number, event in enumerate(events, 1):
        restorer.apply(event)
        if type(event) is ResultsCleared or type(event) is Compacted:
            apply_edit(run, event, rebuild_context(run, events[:number]).sent_messages)
        if type(event) is ToolCallFinished:
            await _restore_memo(run, event, restorer.calls)
    run.conversation.queue_again(restorer.sent_blocks)
    past = run.services.past_events
    below = (event for child in past.walk_below(run.run_id) for event in past[child])
    run.timer.add_past(sum_worked_seconds(events, below))
    return Resumption(
        restorer.pending_answer,
        restorer.summary_reason,
        restorer.is_stopped_from_outside,
        restorer.is_interrupted and not run.inbox.has_next_prompt,
    )


def _restore_permit(run: RunContext, max_tokens: int | None) -> Permit | None:
    """Return what the limits allowed a recorded request, which no longer holds anything."""
    if max_tokens is None:
        return None
    accounts = (account for meter in run.meter.walk_up() for account in meter.accounts.values())
    # The record does not say which limit kept the answer from being longer. Take the nearest: the
    # run's own, if it has one, before those of the runs above.
    nearest = next((account.state for account in accounts), None)
    return Permit((), None, max_tokens, nearest)


class _Restorer:
    """Restores a RunContext by applying the run's events one by one.

    `sent_blocks` belong to a request without a recorded answer; they are sent again.
    """

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._notifications: list[str] = []
        self.calls: dict[str, ToolCallBlock] = {}
        self.sent_blocks: list[UserBlock] = []
        self.pending_answer: AssistantMessage | None = None
        self.summary_reason: Reason | None = None
        self.is_stopped_from_outside = False
        self.is_interrupted = False
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            ToolCallStarted: self._start_call,
            FileWriteIntended: self._intend_write,
            ToolCallFinished: self._finish_call,
            MessageSent: self._restore_message,
            RunWaiting: self._restore_wait,
            NoteInjected: self._restore_note,
            MessageDelivered: self._restore_note,
            WorkMerged: run.evidence.add_merge,
            TurnStarted: self._start_turn,
            TurnFinished: self._finish_turn,
            TurnFailed: self._fail_turn,
            ResultsCleared: self._restore_edit,
            Compacted: self._restore_edit,
        }

    def apply(self, event: StoredEvent) -> None:
        if handler := self._handlers.get(type(event)):
            handler(event)

    def _restore_edit(self, event: ResultsCleared | Compacted) -> None:
        if isinstance(event, ResultsCleared) or event.cause != "user":
            self._close_turn()
        if isinstance(event, Compacted) and event.summary_run:
            charge_past_child(self._run, event.summary_run)

    def _start_call(self, event: ToolCallStarted) -> None:
        self.calls[event.call.id] = event.call
        self._run.turn.restore_start(event.call)

    def _intend_write(self, event: FileWriteIntended) -> None:
        self._run.turn.started[event.call_id] = event

    def _restore_message(self, event: MessageSent) -> None:
        self._run.inbox.restore(event.message)
        if event.result is not None:
            self._run.background.titles.setdefault(event.message.sender, "")
            self._run.evidence.add_files(event.result)
        elif event.message.kind == "notification":
            self._restore_end_of_child(event.message.sender)

    def _restore_wait(self, event: RunWaiting) -> None:
        run = self._run
        run.background.restore_wait(event.turn)
        if not event.is_interrupted:
            return
        answer = self.pending_answer
        if answer and not answer.tool_calls:
            run.loop_detector.add_turn(answer, ())
        self.pending_answer = None
        self.is_interrupted = True
        run.close_turn()
        run.conversation.queue_again(self.sent_blocks)
        self.sent_blocks = []
        run.inbox.mark_interrupt()

    def _restore_note(self, event: NoteInjected) -> None:
        run = self._run
        answer = self.pending_answer
        if answer and not answer.tool_calls:
            run.loop_detector.add_turn(answer, ())
            self._restore_final_answer(answer, event)
            self.pending_answer = None
        run.conversation.queue_text(event.text)
        if isinstance(event, MessageDelivered):
            run.conversation.in_a_row.asked = 0
            self.is_interrupted = False
            run.inbox.restore_delivery(event.message_id)
            if is_notification(event):
                self._notifications.append(event.text)
            return
        run.conversation.restored_notes.append(event.text)
        run.conversation.shortening.awaits_hook = False
        if event.refused is not None:
            run.outputs.refuse(OutputRefusal(event.text, event.refused))
        # Only its text tells what a recorded note is about, and whose limit a request for a summary
        # is. A resume of older records breaks if these texts change.
        if event.text in NEAR_LIMIT_NOTES:
            run.meter.has_warned = True
        self.is_stopped_from_outside = event.text == WRAP_UP_NOTE

    def _restore_final_answer(self, answer: AssistantMessage, event: NoteInjected) -> None:
        """Restore the values stated in an answer without calls, and count the reminder after it."""
        run = self._run
        if answer.stop_reason in (StopReason.END, StopReason.CALLS):
            run.outputs.take_text(answer.text)
        if not isinstance(event, MessageDelivered):
            run.conversation.in_a_row.asked += 1
            run.outputs.reminder_count += event.text.startswith(REMINDER_START)

    def _fail_turn(self, event: TurnFailed) -> None:
        run = self._run
        run.conversation.keep_partial_answer(event.text)
        run.meter.charge(Usage(), 0.0, event.estimate)
        if not event.overflow:
            return
        run.conversation.queue_again(self.sent_blocks)
        self.sent_blocks = []
        run.add_overflow(event.overflow, event.error)

    def _close_turn(self) -> None:
        run = self._run
        if run.turn.calls:
            outcomes = run.close_turn()
            collect_reminders(run)
            if self.pending_answer:
                run.loop_detector.add_turn(self.pending_answer, outcomes)
        self.pending_answer = None

    def _start_turn(self, event: TurnStarted) -> None:
        run = self._run
        self._close_turn()
        run.conversation.shortening.requested_focus = None
        run.conversation.shortening.awaits_hook = False
        for text in self._notifications:
            run.loop_detector.add_notification(text)
        self._notifications = []
        self.is_interrupted = False
        self.summary_reason = event.summary_reason
        if event.summary_reason:
            # The summary keeps its number when it is requested again. The turn before it counts
            # even if it was cut off.
            run.go_to_turn(event.turn - 1)
            run.conversation.answer_text = ""
        if event.summary_reason is Reason.CANCELLED:
            run.control.phase = Phase.WRAPPING_UP
        # If the answer was cut off, it was at this maximum; another request may allow more.
        run.meter.permit = _restore_permit(run, event.max_tokens)
        self.sent_blocks += run.conversation.take_queued()

    def _finish_turn(self, event: TurnFinished) -> None:
        run = self._run
        run.conversation.append_user_blocks(self.sent_blocks)
        self.sent_blocks = []
        run.go_to_turn(event.turn)
        if self.summary_reason is None:
            run.meter.add_turns(1)
        charge(run, event.message)
        run.timer.learn(event.seconds)
        append_answer(run, event.message)
        self.pending_answer = event.message

    def _finish_call(self, event: ToolCallFinished) -> None:
        run = self._run
        run.turn.add(CallOutcome(event.call_id, event.name, event.result, event.refused))
        call = self.calls.get(event.call_id)
        if event.name == EMIT_TOOL and event.result.error and not event.refused:
            run.outputs.add_refusal(event.result.text)
        elif event.name == EMIT_TOOL and not event.refused and call:
            name = call.arguments.get("emit_variable_name", "")
            run.outputs.emit(name, call.arguments.get("emit_variable_value"))
        detail = event.result.detail
        child = detail.get("run")
        if detail.get("background") and call:
            run.background.interrupted[child or detail["command"]] = call
        elif child is not None:
            charge_past_child(self._run, child)
        elif event.result.text == INTERRUPTED and call:
            self._charge_cut_off_child(event)

    def _charge_cut_off_child(self, event: ToolCallFinished) -> None:
        """Charge for the child of a call that the user interrupted."""
        position = list(self._run.turn.calls).index(event.call_id) + 1
        child = join_run_id(event.run, event.turn, position)
        if child in self._run.services.past_events:
            charge_past_child(self._run, child)

    def _restore_end_of_child(self, child: str) -> None:
        """Charge for a background child that has sent its notification, and add its evidence."""
        self._run.background.titles.setdefault(child, "")
        if report := charge_past_child(self._run, child):
            _add_evidence(self._run, child, report)


def _add_evidence(run: RunContext, child: str, report: Report) -> None:
    """Add the files of an earlier process's background child to its parent's."""
    started = next(iter(run.services.past_events.get(child, ())), None)
    has_own_files = isinstance(started, RunStarted) and started.brief.workspace.has_own_files
    run.evidence.add_report(report, is_shared=not has_own_files)


def charge_past_child(run: RunContext, child: str) -> Report | None:
    """Charge a run for what a child spent in earlier processes; return the child's last report."""
    past = run.services.past_events
    report = None
    for each in (child, *list_returned_runs(past, child)):
        report = find_report(past.get(each, ()))
        usage = report.usage if report else NO_USAGE
        usd = report.usd if report else 0.0
        run.meter.add_usage(usage, usd, *_sum_past(past, each))
        run.services.meters.charged.add(each)
    return report


def sum_estimates(past: PastEvents, run_id: str) -> Usage:
    return _sum_past(past, run_id)[1]


def _sum_past(past: PastEvents, run_id: str) -> tuple[int, Usage]:
    """Count a run and its descendants that began, and add up their cut-off answers."""
    count = 0
    estimate = NO_USAGE
    for each in (run_id, *past.walk_below(run_id)):
        for event in past.get(each, ()):
            if type(event) is TurnFailed:
                estimate += event.estimate
            elif type(event) is RunStarted:
                count += not event.brief.is_compaction  # a summary run is no child
    return count, estimate


def report_interrupted(run: RunContext, work_id: str) -> None:
    """Send the notification for a command that an earlier process started."""
    if run.background.is_reported(work_id):
        return
    result = ToolResult("", error=True, unknown_changes=UNKNOWN_AFTER_CRASH)
    run.evidence.add_files(result)
    message = make_notification(work_id, "stopped", "an interrupted command", INTERRUPTED)
    run.inbox.put(message, result)


async def _restore_memo(
    run: RunContext, event: ToolCallFinished, calls: Mapping[str, ToolCallBlock]
) -> None:
    """Restore a tool's memo by repeating a successful call in its turn."""
    tool = run.tools.get(event.name)
    call = calls.get(event.call_id)
    if tool and call and tool.is_stateful and not event.result.error:
        await tool.run(CallContext(run, call), tool.parse_arguments(call.arguments))


async def restart_background_work(run: RunContext) -> None:
    """Continue the background children that an earlier process left without a notification.

    A command cannot continue: its notification says so.
    """
    for run_id, call in run.background.interrupted.items():
        tool = run.tools.get(normalize_tool_name(call.name))
        if tool is None or not tool.needs_children:
            report_interrupted(run, run_id)
            continue
        _, turn, position = split_run_id(run_id)
        context = CallContext(run, call, position, turn)
        arguments = tool.parse_arguments(call.arguments | {"background": True})
        result = await tool.run(context, arguments)
        if result.error:
            title = str(call.arguments.get(tool.title_argument, call.name))
            run.inbox.put(make_notification(run_id, "failed", title, quote(result.text)))
    run.background.interrupted.clear()
    if run.services.teams.roster.list_teammates(run.run_id):
        await open_team(run).restart()
    await asyncio.sleep(0)  # let the children restore what they spent before the run spends more


async def end_past_children(
    run: RunContext, finish: Callable[[RunContext], Awaitable[Report]]
) -> None:
    """End the children that an ending run has not continued (S10), and charge for them (S9).

    A run stopped right after its resume has not continued its children. A run killed while its
    conversation was being summarised may go on without the summary. `finish` ends a run that was
    cancelled.
    """
    services = run.services
    past = services.past_events
    unfinished: list[str] = []
    for child in past.list_children(run.run_id):
        if not find_report(past[child]):
            unfinished.append(child)
        elif child not in services.meters.charged:
            # It ended in an earlier process, but the run never got its result (S9).
            report = charge_past_child(run, child)
            if report and child in run.background.interrupted:
                _add_evidence(run, child, report)
    if not unfinished:
        return
    ends = services.journal.read(types=(RunFinished,))
    ended = {event.run async for event in ends}
    for child in unfinished:
        if child not in ended:
            await _end_child(run, child, finish)


async def _end_child(
    run: RunContext, child: str, finish: Callable[[RunContext], Awaitable[Report]]
) -> None:
    services = run.services
    events = services.past_events[child]
    first = events[0]
    if not isinstance(first, RunStarted):
        return
    # It does no more work and has no files of its own to store.
    brief = replace(first.brief, workspace=WorkspaceSpec())
    control = RunControl()
    control.cancel(run.control.stop_reason)
    grant = services.meters.open(child, brief.budget, run.meter)
    try:
        meter = services.meters.get(grant)
        context = RunContext(
            brief, meter, services, run.background.worker, control, run.environment
        )
        await restore_run(context, events)
        await context.recorder.record(
            context.recorder.make_event(RunResumed, head=context.describe_head())
        )
        report = await finish(context)
    finally:
        services.meters.close(grant)
    # The result of a call that waits for it says what is unknown; for a background child, nothing
    # else would.
    if child in run.background.interrupted:
        _add_evidence(run, child, report)
