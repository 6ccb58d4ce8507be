"""Recorded gate: requests of a replay start when the record has reached them."""

from __future__ import annotations

from collections.abc import Sequence

from .._core.budgets import Limit, LimitState
from .._core.events import Compacted, MessageSent, RunFinished, StoredEvent, TurnStarted
from .._engine.loop import warn_near_limit
from .._engine.meters.account import RequestPlan
from .._engine.meters.meter import Meter
from .._engine.meters.request_gate import RequestGate
from .._engine.run_context import RunContext
from .recorded_events import RecordedEvents
from .recorded_stops import RecordedMeter


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
