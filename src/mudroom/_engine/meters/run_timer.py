"""RunTimer: the age of a run and its deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from operator import attrgetter

from ..._core.budgets import Limit, LimitState
from ..._core.events import MessageSent, RunResumed, RunWaiting, StoredEvent
from ..._core.ports import Clock
from .meter import Meter


class RunTimer:
    """Age of a run in seconds, without waiting for approvals, and the deadline of the run.

    Attributes:
        deadline: timeout of the run while it takes turns; each pause moves it later.
    """

    def __init__(self, clock: Clock, meter: Meter) -> None:
        self._clock = clock
        self._meter = meter
        self._started_at = clock.monotonic()
        self._paused_at: float | None = None
        self._pauses = 0
        self.deadline: asyncio.Timeout | None = None
        meter.on_pause = self._set_paused

    @property
    def age(self) -> float:
        """Seconds since the run started, without pauses."""
        now = self._clock.monotonic() if self._paused_at is None else self._paused_at
        return now - self._started_at

    @property
    def time_left(self) -> float | None:
        """Seconds until the time limit, None if there is no limit."""
        limit = self._meter.budget.seconds
        return None if limit is None else max(0.0, limit - self.age)

    @property
    def limit(self) -> LimitState | None:
        """The time limit and the age, None if there is no limit."""
        maximum = self._meter.budget.seconds
        return None if maximum is None else LimitState(Limit.SECONDS, maximum, round(self.age, 3))

    def add_past(self, seconds: float) -> None:
        """Add the seconds that the run worked before a resume."""
        self._started_at -= seconds

    def _set_paused(self, paused: bool) -> None:
        self._pauses += 1 if paused else -1
        if paused and self._pauses == 1:
            self._paused_at = self._clock.monotonic()
        elif not self._pauses and self._paused_at is not None:
            self._started_at += self._clock.monotonic() - self._paused_at
            self._paused_at = None
        left = self.time_left
        deadline = self.deadline
        if left is None or deadline is None or deadline.expired():
            return
        loop = asyncio.get_running_loop()
        deadline.reschedule(None if self._pauses else loop.time() + left)


def sum_worked_seconds(events: Iterable[StoredEvent], descendants: Iterable[StoredEvent]) -> float:
    """Return the seconds in which a process executed the run or a descendant.

    The time in which the run was interrupted does not count.
    """
    all_events = [*events, *descendants]
    run_id = all_events[0].run
    seconds = 0.0
    last = all_events[0].at
    is_interrupted = False
    all_events.sort(key=attrgetter("at"))
    for event in all_events:
        if not (is_interrupted or (type(event) is RunResumed and event.run == run_id)):
            seconds += event.at - last
        last = event.at
        if type(event) is RunWaiting and event.run == run_id:
            is_interrupted = event.is_interrupted
        elif type(event) is MessageSent and event.run == run_id and event.message.sender == "user":
            is_interrupted = False
    return seconds
