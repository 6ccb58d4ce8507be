"""Waits of a replay: for the ends of children, and for the record to reach a request."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from .._core.budgets import Limit, LimitState
from .._core.events import (
    Compacted,
    MessageDelivered,
    MessageSent,
    NoteInjected,
    RunFinished,
    RunWaiting,
    StoredEvent,
    TurnStarted,
)
from .._core.messages import Usage
from .._core.ports import RunHandle
from .._core.runs import Brief, InboxMessage, Reason, Report, split_run_id
from .._core.tools import ToolResult
from .._engine.background import STILL_RUNNING, BackgroundWork
from .._engine.call_context import CallContext
from .._engine.children.child_run import ChildRun
from .._engine.loop import EMPTY_ANSWER, warn_near_limit
from .._engine.meters.account import RequestPlan
from .._engine.meters.meter import Meter
from .._engine.meters.request_gate import RequestGate
from .._engine.run_context import RunContext
from .recorded_events import RecordedEvents
from .recorded_stops import RecordedMeter, is_about_limit


class RecordedBackground(BackgroundWork):
    """Background work of one run of a replay.

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
            self._asked_again.add(event.turn)  # so it does not go on for a later message
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
        """Start a run of a named child that a message begins."""
        run = self._run
        run.meter.add_usage(Usage(), 0.0, children=1)
        grant = run.services.meters.open(brief.run_id, brief.budget, run.meter)
        _, turn, position = split_run_id(brief.run_id)
        context = CallContext(run, None, position, turn)
        ChildRun(context, brief, grant).work_in_background()

    def list_open(self) -> tuple[str, ...]:
        """Return the ids of the work at the recorded interrupt."""
        return self._interrupts.pop(0) if self._interrupts else ()

    @property
    def keeps_run_open(self) -> bool:
        """True if the recorded run went on after this turn because of background work."""
        return self._run.turn in self._kept_open

    def add_child(
        self, work_id: str, handle: RunHandle, title: str, end: Awaitable[InboxMessage]
    ) -> None:
        """Send a notification when a child has ended, and the record has reached it."""

        async def wait_for_end() -> InboxMessage:
            message = await end
            if message.id in self._notified:
                event = self._recorder.make_event(MessageSent, message=message)
                await self._journal.append(event)
            return message

        super().add_child(work_id, handle, title, wait_for_end())

    def _send(self, message: InboxMessage, result: ToolResult | None) -> None:
        """Do nothing: the run has got the message where the record has it."""

    def take_warning(self) -> str:
        """Return the recorded note about commands in this turn."""
        return self._warnings.get(self._run.turn, "")

    async def wait_for_message(self) -> bool:
        """Wait for a message if the recorded run did. Return whether there is an unread one."""
        event = await self._gate.reach_next(self._run)
        if isinstance(event, RunWaiting):
            works = [child for child in self.children if not self.is_reported(child)]
            is_known = set(works) <= set(event.runs)
            await self._record_wait(event.runs if is_known else tuple(works))
            await self._inbox.wait_for_message()
        if isinstance(event, NoteInjected) and not is_about_limit(event):
            return self._inbox.has_unread  # what the run is told first
        return self._inbox.has_unread or self._journal.stops.is_ended_by_limit(self._run.run_id)

    async def stop(self, grace: float | None, reason: Reason) -> None:
        """Wait for the children: the record has their stops."""
        await self._recorder.record()
        await self._wait_until_ended()
        for result in self._command_results:
            self._run.evidence.add_files(result)
        if self._stopped_report:
            self.stopped_commands = self._stopped_report.stopped_commands
            self._run.evidence.add_report(self._stopped_report)


class RecordedGate(RequestGate):
    """Gate that holds a run back until the record has reached its next event.

    Arguments:
        events: the recorded ones.
    """

    def __init__(self, journal: RecordedEvents, events: Sequence[StoredEvent]) -> None:
        super().__init__()
        self._journal = journal
        self._messages = {
            event.message.id: event.message for event in events if isinstance(event, MessageSent)
        }

    async def reach_next(self, run: RunContext) -> StoredEvent:
        """Store what the run has done, wait until its next event is due, and return that.

        The run has the messages then that it reads next. Waits for the stop of the run if that
        comes first.
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
        """Wait until the next event of a run is due, and return it."""
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
        """Wait for the turn of a request. Return the limit that refused it in the record."""
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
                return LimitState(Limit.TURNS, run.turn, run.turn)
        elif event is not follows and not isinstance(follows, TurnStarted | Compacted):
            # The process of the request ended, and the next one stopped the run before it.
            await run.deliver_messages()
            warn_near_limit(run)
            await self.reach_next(run)
        else:
            meter.permit = stops.permit_request(run.run_id)
            meter.add_turns(1)
        await run.judge_messages()
        return None
