"""The port Clock, with this machine's real time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_MAX_BEHIND = 60.0
"""Seconds by which the time may be behind the machine's before it follows: after a suspend."""


class SystemClock:
    """Real time, for one event loop.

    `now` moves with the monotonic clock. A machine whose clock is set, or stepped by its time
    service, would otherwise make the times between two events longer or shorter than what passed,
    and durations are computed from them: the age of a resumed run, what screens and traces show.

    Arguments:
        start: `now` minus `monotonic`, as another process of this machine counts them, so that the
            events of both have the same time; None takes it from the machine's clock.
    """

    def __init__(self, start: float | None = None) -> None:
        self._start = start
        self._time: Callable[[], float] | None = None

    @property
    def start(self) -> float:
        """The seconds between 1970 and the zero of the monotonic clock."""
        if self._start is None:
            self._start = time.time() - self.monotonic()
        return self._start

    def now(self) -> float:
        # Called for every event: so the two parts are read here, without a call for each.
        start = self.start if self._start is None else self._start
        now = start + (self._time() if self._time else self.monotonic())
        real = time.time()
        if real - now > _MAX_BEHIND:  # the monotonic clock stands still while a machine sleeps
            self._start = real - self.monotonic()
            return real
        return now

    def monotonic(self) -> float:
        """Return the event loop's time, which asyncio's timeouts follow."""
        if self._time is None:
            # Kept, because finding the loop takes a system call. The usual loop's own method only
            # calls time.monotonic.
            loop = asyncio.get_running_loop()
            is_usual = type(loop).time is asyncio.BaseEventLoop.time
            self._time = time.monotonic if is_usual else loop.time
        return self._time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
