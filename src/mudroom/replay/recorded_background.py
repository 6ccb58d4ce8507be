"""Background work of a replay: a run waits, and gets its messages, in the recorded turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from .._core.events import MessageSent, NoteInjected, RunFinished, RunWaiting, StoredEvent
from .._core.messages import Usage
from .._core.run_ids import split_run_id
from .._core.runs import Brief, InboxMessage, Reason
from .._core.tools import ToolResult
from .._engine.call_context import CallContext
from .._engine.children.child_run import ChildRun
from .._engine.inbox.background import STILL_RUNNING, BackgroundWork
from .._engine.run_context import RunContext
from .recorded_events import RecordedEvents, wait_for_stop
from .recorded_outcomes import RecordedHooks
from .recorded_stops import RecordedStops


class RecordedBackground(BackgroundWork):
    """Background work of one run of a replay.

    The children run again. Their notifications are compared with the recorded ones; the run gets
    the recorded ones, in the recorded turns.

    Arguments:
        remove_times: takes a text, returns it without measured times.
    """

    def __init__(
        self,
        run: RunContext,
        events: Sequence[StoredEvent],
        journal: RecordedEvents,
        hooks: RecordedHooks,
        stops: RecordedStops,
        remove_times: Callable[[str], str],
    ) -> None:
        super().__init__(run.background.worker, run.inbox, run.recorder, run.control)
        self._run = run
        self._journal = journal
        self._hooks = hooks
        self._stops = stops
        self._remove_times = remove_times
        own = [event for event in events if event.run == run.run_id]
        self._waits = {
            event.turn: event.runs
            for event in own
            if isinstance(event, RunWaiting) and not event.is_interrupted
        }
        self._interrupts = [
            event.runs for event in own if isinstance(event, RunWaiting) and event.is_interrupted
        ]
        self._warnings = {
            event.turn: event.text
            for event in own
            if isinstance(event, NoteInjected) and event.text.startswith(STILL_RUNNING)
        }
        self._command_results = [
            event.result for event in own if isinstance(event, MessageSent) and event.result
        ]
        self._recorded_report = next(
            (event.report for event in own if isinstance(event, RunFinished)), None
        )
        self._texts = {
            event.message.id: event.message.text for event in own if isinstance(event, MessageSent)
        }

    def start_next_runs(self, briefs: Iterable[Brief]) -> None:
        """Start the runs of named children that messages began; the record has their order."""
        run = self._run
        for brief in briefs:
            run.meter.add_usage(Usage(), 0.0, children=1)
            grant = run.services.meters.open(brief.run_id, brief.budget, run.meter)
            _, turn, position = split_run_id(brief.run_id)
            context = CallContext(run, None, position, turn)
            ChildRun(context, brief, grant).work_in_background()

    def list_open(self) -> tuple[str, ...]:
        """Return the ids of the work at the recorded interrupt."""
        return self._interrupts.pop(0)

    @property
    def keeps_run_open(self) -> bool:
        """True if the recorded run went on after this turn because of background work."""
        turn = self._run.turn
        has_messages = self._hooks.has_messages(self._run.run_id, turn)
        return turn in self._waits or turn in self._warnings or has_messages

    def _send(self, message: InboxMessage, result: ToolResult | None) -> None:
        """Compare a notification with the recorded one. The hooks send the recorded one."""
        recorded = self._texts.get(message.id)
        if recorded is None:
            return  # The recorded run ended before this notification.
        if self._remove_times(recorded) != self._remove_times(message.text):
            text = f"a notification differs.\nrecorded: {recorded}\nnow:      {message.text}"
            self._journal.diverge(text, f"run {self._run.run_id}")

    def take_warning(self) -> str:
        """Return the recorded note about commands in this turn."""
        return self._warnings.get(self._run.turn, "")

    async def wait_for_message(self) -> bool:
        """Send the messages of this turn. If the run waited for none, wait until it is stopped."""
        run = self._run
        if runs := self._waits.get(run.turn):
            await self._record_wait(runs)
        self._hooks.send_messages(run.run_id, run.turn)
        if runs and not run.inbox.has_unread:
            await wait_for_stop()
        return run.inbox.has_unread

    async def wait_for_next_prompt(self) -> None:
        """Send the messages of this turn, or stop the run as the record did."""
        self._stops.stop_interrupted(self._run.run_id)
        self._hooks.send_messages(self._run.run_id, self._run.turn)

    async def stop(self, grace: float | None, reason: Reason) -> None:
        """Wait for the children: the record has their stops. Then send the last messages."""
        await self._wait_until_ended()
        self._hooks.send_messages(self._run.run_id, self._run.turn)
        for result in self._command_results:
            self._run.evidence.add_files(result)
        if self._recorded_report and self._recorded_report.stopped_commands:
            self.stopped_commands = self._recorded_report.stopped_commands
            self._run.evidence.add_report(self._recorded_report)
