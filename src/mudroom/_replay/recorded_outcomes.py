"""Recorded results, decisions, notes and messages, in place of live ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from .._adapters.workers.past_runs import WORKERS_ENDED
from .._core.budgets import Limit, LimitState
from .._core.events import (
    Compacted,
    MessageDelivered,
    MessageSent,
    NoteInjected,
    PermissionDecided,
    RunFinished,
    RunStarted,
    RunWaiting,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnStarted,
)
from .._core.messages import Message, ToolCallBlock, Usage
from .._core.ports import (
    MERGE,
    ApprovalDecision,
    ApprovalRequest,
    Hooks,
    MessageHookDecision,
    PermissionVerdict,
    RunHandle,
    ToolHookDecision,
    Workspace,
)
from .._core.ports.hooks import HOOKS_UNWATCHED
from .._core.runs import Brief, InboxMessage, Reason, Report, split_run_id
from .._core.tools import Effect, Tool, ToolResult, find_no_key, join_reasons
from .._engine.background import STILL_RUNNING, BackgroundWork
from .._engine.call_context import CallContext
from .._engine.children.child_brief import TaskArguments
from .._engine.children.child_run import ChildRun
from .._engine.children.merge import find_recorded_merge
from .._engine.inbox import REFUSED_MESSAGE, Inbox
from .._engine.loop import EMPTY_ANSWER, warn_near_limit
from .._engine.meters.account import RequestPlan
from .._engine.meters.meter import Meter
from .._engine.meters.request_gate import RequestGate
from .._engine.recorded_conversations import RecordedRuns
from .._engine.run_context import RunContext
from .._engine.run_tools.merge_tool import MergeArguments
from .._engine.session_context import CHECK, Recorder
from .._engine.structured_output import OutputChecks, OutputRefusal
from .._engine.team_registry import Teams
from .recorded_events import RecordedEvents
from .recorded_stops import RecordedMeter, is_about_limit


def read_failure(task: asyncio.Task[Any]) -> None:
    """Keep asyncio from logging a failure nobody reads: the record has the work's end."""
    if not task.cancelled():
        task.exception()


class RecordedOutcomes:
    """Recorded results and decisions in place of tools, policy and approver.

    `left` are calls whose recorded results come before their work has ended.
    """

    def __init__(self, events: Sequence[StoredEvent], journal: RecordedEvents) -> None:
        self._journal = journal
        self._started_runs: set[str] = set()
        self.left: set[asyncio.Task[Any]] = set()
        self._results: dict[tuple[str, str], ToolCallFinished] = {}
        self._decisions: dict[tuple[str, str], PermissionDecided] = {}
        for event in events:
            if isinstance(event, ToolCallFinished):
                self._results[event.run, event.call_id] = event
            elif isinstance(event, PermissionDecided) and event.name not in (MERGE, CHECK):
                self._decisions[event.run, event.call_id] = event
            elif isinstance(event, RunStarted):
                self._started_runs.add(event.run)

    def make_toolbox(self, tools: Mapping[str, Tool]) -> dict[str, Tool]:
        """Make tools that give the recorded results.

        `task` starts the recorded children again. Tools with a memo are pure, and run again.
        """
        replayed: dict[str, Tool] = {}
        for name, tool in tools.items():
            # Keyed calls without a key do not wait for each other, and their results are stored at
            # once, so that the stops can count them.
            tool = replace(tool, effect=Effect.KEYED, get_key=find_no_key)
            run = partial(self._run_stateful, tool) if tool.is_stateful else self._return_result
            replayed[name] = replace(tool, run=run)
        for name in replayed.keys() & {"task", "merge"}:
            replayed[name] = replace(replayed[name], run=partial(self._run_child, tools[name]))
        return replayed

    async def _run_stateful(
        self, tool: Tool, context: CallContext, arguments: object
    ) -> ToolResult:
        """Run a call to a tool with a memo, unless a stop cut it off."""
        if self._journal.stops.has_cut_off(context.run_id, context.call_id):
            return await self._return_result(context, arguments)
        return await tool.run(context, arguments)

    async def _run_child(
        self, tool: Tool, context: CallContext, arguments: TaskArguments | MergeArguments
    ) -> ToolResult:
        if merged := find_recorded_merge(context.run, call=context.place):
            context.run.evidence.add_merge(merged)
        if context.place not in self._started_runs:
            return await self._return_result(context, arguments)
        if self._is_in_background(context):
            arguments = replace(arguments, background=True)
        if self._is_left(context):
            work = asyncio.ensure_future(tool.run(context, arguments))
            work.add_done_callback(read_failure)
            self.left.add(work)
            return await self._return_result(context, arguments)
        result = await tool.run(context, arguments)
        recorded = await self._return_result(context, arguments)
        return result if "run" in recorded.detail else recorded

    def _is_left(self, context: CallContext) -> bool:
        """Return whether a stop cut off a call without the next process knowing.

        The run then went on, and ended the call's child when it ended itself.
        """
        stops = self._journal.stops
        is_cut_off = stops.is_cut_off(context.run_id, context.call_id)
        return stops.has_cut_off(context.run_id, context.call_id) and not is_cut_off

    def _is_in_background(self, context: CallContext) -> bool:
        """Return whether a call's child worked in the background, detached or not."""
        event = self._results.get((context.run_id, context.call_id))
        return event is not None and bool(event.result.detail.get("background"))

    async def _return_result(self, context: CallContext, arguments: object) -> ToolResult:
        """Return the recorded result, or wait for the run to be stopped if there is none."""
        event = self._results.get((context.run_id, context.call_id))
        if event is None or self._journal.stops.is_cut_off(context.run_id, context.call_id):
            await self._journal.park()
        return event.result

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        event = self._decisions.get((request.run_id, request.call_id))
        if event is None:
            await self._journal.park()
        return ApprovalDecision(event.allowed, event.approver_reason)

    def judge(
        self, call: ToolCallBlock, tool: Tool, arguments: Mapping[str, Any], brief: Brief
    ) -> PermissionVerdict:
        event = self._decisions.get((brief.run_id, call.id))
        if event is None:
            return PermissionVerdict("allow")
        return PermissionVerdict(event.verdict, event.policy_reason, event.rule, event.command_part)

    def filter_workspace(self, workspace: Workspace, tool: str, brief: Brief) -> Workspace:
        return workspace


class RecordedHooks(Hooks):
    """Hooks that give the recorded notes and arguments.

    `reach_next` waits until a run's next event is due, and returns it.
    """

    def __init__(self, events: Sequence[StoredEvent]) -> None:
        self.reach_next: Callable[[str], Awaitable[StoredEvent]]
        self._calls: dict[tuple[str, str], ToolCallStarted] = {}
        self._contexts: dict[tuple[str, str], str] = {}
        self._prompt_notes: dict[str, str] = {}
        self._compaction_notes: dict[str, list[str]] = {}
        self._compacted: set[str] = set()
        self._unwatched = set(_find_unwatched(events))
        self._lost = {
            event.run
            for event in events
            if isinstance(event, RunFinished) and event.report.unknown_changes == WORKERS_ENDED
        }
        self._message_hooks = RecordedMessageHooks(events)
        for event in events:
            if isinstance(event, ToolCallStarted):
                self._calls[event.run, event.call.id] = event
            elif isinstance(event, ToolCallFinished):
                # If the call acted, its recorded result has the context.
                context = event.result.context if event.refused else ""
                self._contexts[event.run, event.call_id] = context
            elif isinstance(event, Compacted) and event.cause != "user":
                self._compaction_notes.setdefault(event.run, []).append("")
                self._compacted.add(event.run)
            elif isinstance(event, TurnStarted):
                self._compacted.discard(event.run)
            elif isinstance(event, NoteInjected) and event.origin == "hook":
                self._add_note(event)

    def _add_note(self, event: NoteInjected) -> None:
        if self._message_hooks.has_note(event):
            return
        if event.run in self._compacted:
            self._compaction_notes[event.run][-1] = event.text
        elif not event.turn:
            self._prompt_notes[event.run] = event.text

    async def on_prompt(self, brief: Brief) -> str:
        return self._prompt_notes.get(brief.run_id, "")

    async def on_message(self, brief: Brief, text: str) -> MessageHookDecision | None:
        return self._message_hooks.decide(brief.run_id)

    async def on_run_start(self, brief: Brief) -> str:
        return await self.on_prompt(brief)

    async def before_compaction(self, brief: Brief) -> str:
        return await self.on_prompt(brief)

    async def after_compaction(self, brief: Brief) -> str:
        notes = self._compaction_notes.get(brief.run_id)
        return notes.pop(0) if notes else ""

    async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
        key = brief.run_id, call.id
        started = self._calls.get(key)
        if started is None:
            return None
        is_changed = started.call.arguments != call.arguments
        arguments = started.call.arguments if is_changed else None
        return ToolHookDecision(arguments=arguments, context=self._contexts.get(key, ""))

    async def after_tool(
        self, brief: Brief, call: ToolCallBlock, result: ToolResult
    ) -> ToolResult | None:
        if (brief.run_id, call.id) not in self._unwatched:
            return None
        return replace(
            result, unknown_changes=join_reasons(result.unknown_changes, HOOKS_UNWATCHED)
        )

    async def before_finish(self, brief: Brief, text: str) -> str:
        event = await self.reach_next(brief.run_id)
        if isinstance(event, NoteInjected) and event.origin == "hook":
            return event.text
        return ""

    async def explain_changes(self, brief: Brief) -> str:
        """Return the reasons in the run's report that no call's result gave."""
        reasons = [HOOKS_UNWATCHED] if (brief.run_id, "") in self._unwatched else []
        if brief.run_id in self._lost:
            reasons.append(WORKERS_ENDED)
        return join_reasons(*reasons)


def _find_unwatched(events: Iterable[StoredEvent]) -> Iterator[tuple[str, str]]:
    """Yield runs and call ids whose hooks may have changed files; "" means the whole run."""
    for event in events:
        if isinstance(event, ToolCallFinished):
            unknown, call_id = event.result.unknown_changes, event.call_id
        elif isinstance(event, RunFinished):
            unknown, call_id = event.report.unknown_changes, ""
        else:
            continue
        if HOOKS_UNWATCHED in unknown.split("; "):
            yield event.run, call_id


class RecordedOutputChecks(OutputChecks):
    """Output checks that refuse values where the record does."""

    def __init__(self, events: Sequence[StoredEvent]) -> None:
        super().__init__()
        self._refusals: dict[str, list[OutputRefusal]] = {}
        for event in events:
            if isinstance(event, NoteInjected) and event.refused is not None:
                refusal = OutputRefusal(event.text, event.refused)
                self._refusals.setdefault(event.run, []).append(refusal)

    async def find_refusal(self, run_id: str, values: dict[str, Any]) -> OutputRefusal | None:
        refusals = self._refusals.get(run_id)
        return refusals.pop(0) if refusals else None


class RecordedTeams(Teams):
    """Teams with the recorded names, conversations and numbers of unread messages."""

    def __init__(self, events: Sequence[StoredEvent]) -> None:
        super().__init__()
        self._recorded = RecordedRuns()
        for event in events:
            self._recorded.apply(event)
        self._briefs = {event.run: event.brief for event in events if isinstance(event, RunStarted)}
        self._unread = {
            event.run: event.report.unread_messages
            for event in events
            if isinstance(event, RunFinished)
        }

    def find_brief(self, run_id: str) -> Brief | None:
        return self._briefs.get(run_id)

    def list_history(self, run_id: str) -> tuple[Message, ...]:
        """Return the recorded messages, as a replay may start a child's runs in another order."""
        return self._recorded.list_next_history(run_id)

    def count_unread(self, parent: str) -> dict[str, int]:
        return self._unread.get(parent, {})


class RecordedInbox(Inbox):
    """A replayed run's inbox, which delivers messages in the recorded order.

    A run killed during a model call had read messages, which its next process sends again before
    later ones. `later` are ids of messages that the run does not read yet.
    """

    def __init__(self, recorder: Recorder, list_next: Callable[[], list[str]]) -> None:
        super().__init__(recorder)
        self._list_next = list_next
        self.later: set[str] = set()

    async def take_unread(self, folder: str) -> list[MessageDelivered]:
        kept = {each: self._unread.pop(each) for each in self.later if each in self._unread}
        delivered = await super().take_unread(folder)
        self._unread |= kept
        return delivered

    def _sort(self, messages: Iterable[InboxMessage]) -> list[InboxMessage]:
        order = {message_id: place for place, message_id in enumerate(self._list_next())}
        return sorted(super()._sort(messages), key=lambda each: order.get(each.id, len(order)))


class RecordedMessageHooks:
    """What hooks said about each of the user's messages.

    A run reads its messages together: the events of their delivery are followed by the texts that
    hooks added, oldest first.
    """

    def __init__(self, events: Sequence[StoredEvent]) -> None:
        self._denials: dict[str, list[str]] = {}
        self._contexts: dict[str, list[str]] = {}
        self._notes: set[int] = set()
        last: dict[str, StoredEvent] = {}
        for event in events:
            if isinstance(event, MessageDelivered) and event.origin == "user":
                denial = event.text if event.text == REFUSED_MESSAGE else ""
                self._denials.setdefault(event.run, []).append(denial)
            elif isinstance(event, NoteInjected) and event.origin == "hook":
                before = last.get(event.run)
                if isinstance(before, MessageDelivered) or id(before) in self._notes:
                    self._notes.add(id(event))
                    self._contexts.setdefault(event.run, []).append(event.text)
            last[event.run] = event

    def has_note(self, event: NoteInjected) -> bool:
        return id(event) in self._notes

    def decide(self, run_id: str) -> MessageHookDecision | None:
        denials = self._denials.get(run_id)
        if not denials:
            return None
        denial = denials.pop(0)
        contexts = self._contexts.get(run_id)
        return MessageHookDecision(denial=denial, context=contexts.pop(0) if contexts else "")


class RecordedBackground(BackgroundWork):
    """A replayed run's background work.

    The children run again. The run gets their notifications where the record has them.
    """

    def __init__(
        self,
        run: RunContext,
        own: Sequence[StoredEvent],
        journal: RecordedEvents,
        gate: RecordedGate,
    ) -> None:
        super().__init__(run.background.worker, run.inbox, run.recorder, run.control)
        self._run = run
        self._journal = journal
        self._gate = gate
        self._interrupts: list[tuple[str, ...]] = []
        self._kept_open: set[int] = set()
        self._asked_again: set[int] = set()
        self._warnings: dict[int, str] = {}
        self._command_results: list[ToolResult] = []
        self._notified: set[str] = set()
        self._stopped_report: Report | None = None
        for event in own:
            self._add(event)

    def _add(self, event: StoredEvent) -> None:
        if isinstance(event, RunWaiting) and event.is_interrupted:
            self._interrupts.append(event.runs)
        elif isinstance(event, RunWaiting | MessageDelivered):
            if event.turn not in self._asked_again:
                self._kept_open.add(event.turn)
        elif isinstance(event, NoteInjected) and event.text == EMPTY_ANSWER:
            self._asked_again.add(event.turn)  # so a later message does not make it go on
        elif isinstance(event, NoteInjected) and event.text.startswith(STILL_RUNNING):
            self._warnings[event.turn] = event.text
            self._kept_open.add(event.turn)
        elif isinstance(event, MessageSent):
            self._notified.add(event.message.id)
            if event.result:
                self._command_results.append(event.result)
        elif isinstance(event, RunFinished) and event.report.stopped_commands:
            self._stopped_report = event.report

    def start_next_run(self, brief: Brief) -> None:
        run = self._run
        run.meter.add_usage(Usage(), 0.0, children=1)
        grant = run.services.meters.open(brief.run_id, brief.budget, run.meter)
        _, turn, position = split_run_id(brief.run_id)
        context = CallContext(run, None, position, turn)
        ChildRun(context, brief, grant).work_in_background()

    def list_open(self) -> tuple[str, ...]:
        return self._interrupts.pop(0) if self._interrupts else ()

    @property
    def keeps_run_open(self) -> bool:
        """True if background work kept the recorded run going after this turn."""
        return self._run.turn.number in self._kept_open

    def add_child(
        self, work_id: str, handle: RunHandle, title: str, end: Awaitable[InboxMessage]
    ) -> None:
        """Send a notification once a child has ended and the record has reached that."""

        async def wait_for_end() -> InboxMessage:
            message = await end
            if message.id in self._notified:
                event = self._recorder.make_event(MessageSent, message=message)
                await self._journal.append(event)
            return message

        super().add_child(work_id, handle, title, wait_for_end())

    def _send(self, message: InboxMessage, result: ToolResult | None) -> None:
        """Do nothing: the run has received the message where the record has it."""

    def take_warning(self) -> str:
        return self._warnings.get(self._run.turn.number, "")

    async def wait_for_message(self) -> bool:
        """Wait for a message if the recorded run did. Return whether one is unread."""
        event = await self._gate.reach_next(self._run)
        if isinstance(event, RunWaiting):
            works = [child for child in self.children if not self.is_reported(child)]
            is_known = set(works) <= set(event.runs)
            await self._record_wait(event.runs if is_known else tuple(works))
            await self._inbox.wait_for_message()
        if isinstance(event, NoteInjected) and not is_about_limit(event):
            return self._inbox.has_unread  # the run is told that first
        return self._inbox.has_unread or self._journal.stops.is_ended_by_limit(self._run.run_id)

    async def stop(self, grace: float | None, reason: Reason) -> None:
        """Wait for the children, whose stops are in the record."""
        await self._recorder.record()
        await self._wait_until_ended()
        for result in self._command_results:
            self._run.evidence.add_files(result)
        if self._stopped_report:
            self.stopped_commands = self._stopped_report.stopped_commands
            self._run.evidence.add_report(self._stopped_report)


class RecordedGate(RequestGate):
    """A gate that holds a run back until the record has reached its next event."""

    def __init__(self, journal: RecordedEvents, events: Sequence[StoredEvent]) -> None:
        super().__init__()
        self._journal = journal
        self._messages = {
            event.message.id: event.message for event in events if isinstance(event, MessageSent)
        }

    async def reach_next(self, run: RunContext) -> StoredEvent:
        """Store what the run has done, wait until its next event is due, and return that event.

        The run then has the messages it reads next. If its stop comes first, waits for that.
        """
        await run.recorder.record()
        event = await self._journal.reach(run.run_id)
        for message_id in self._journal.list_delivered_next(run.run_id):
            message = self._messages.get(message_id)
            if message and not run.inbox.knows(message_id):
                self._journal.skip_message(message_id)
                run.inbox.restore(message)
        return event

    async def reach_next_of(self, run_id: str) -> StoredEvent:
        run = self._journal.stops.find_run(run_id)
        assert run is not None
        return await self.reach_next(run)

    async def stop_call(self, run_id: str) -> None:
        """Stop a run in a model call: raise its error, or wait for the stop from outside."""
        stops = self._journal.stops
        stops.repeat_failure(run_id)
        run = stops.find_run(run_id)
        assert run is not None
        await run.recorder.record()
        await self._journal.park()

    async def reserve(self, meter: Meter, plan: RequestPlan) -> LimitState | None:
        """Wait for a request's turn. Return the limit that refused it in the record."""
        assert isinstance(meter, RecordedMeter)
        stops = self._journal.stops
        run = stops.find_run(meter.run_id)
        assert run is not None
        event = await self.reach_next(run)
        meter.permit = None
        follows = self._journal.find_next_after_messages(run.run_id)
        if plan.is_summary:
            if isinstance(follows, RunFinished):
                if event is not follows:
                    await run.deliver_messages()
                return LimitState(Limit.TURNS, run.turn.number, run.turn.number)
        elif event is not follows and not isinstance(follows, TurnStarted | Compacted):
            # The request's process ended, and the next one stopped the run before repeating it, or
            # read more messages and lost its request as well.
            last = None
            while event is not follows and event is not last:
                await run.judge_messages()
                await run.deliver_messages()
                warn_near_limit(run)
                last, event = event, await self.reach_next(run)
            if limit := stops.lose_request(run.run_id):
                return limit
        else:
            meter.permit = stops.permit_request(run.run_id)
            meter.add_turns(1)
        await run.judge_messages()
        return None
