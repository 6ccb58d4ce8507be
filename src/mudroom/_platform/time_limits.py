"""The real clock, and time limits of blocks: `asyncio.timeout`, also in a task being cancelled.

Until Python 3.11.2, which Debian 12 has, a timeout that expires in a cancelled task raises
CancelledError instead of TimeoutError (github.com/python/cpython/issues/102780). Clean-up after a
cancel then ends at its first time limit: processes that had to be killed survive it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from types import TracebackType


# asyncio.Timeout is final for checkers only.
class PatchedTimeout(asyncio.Timeout):  # pyright: ignore[reportGeneralTypeIssues]
    """Timeout that raises TimeoutError although its task was cancelled before it was entered."""

    async def __aenter__(self) -> asyncio.Timeout:
        self._own_task = asyncio.current_task()
        self._cancels_before = self._own_task.cancelling() if self._own_task else 0
        return await super().__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await super().__aexit__(kind, error, traceback)
        is_over = self.expired() and kind is asyncio.CancelledError
        if is_over and self._own_task and self._own_task.cancelling() <= self._cancels_before:
            raise TimeoutError from error


IS_FIXED = sys.version_info >= (3, 11, 3)
_kind: type[asyncio.Timeout] = asyncio.Timeout if IS_FIXED else PatchedTimeout


def time_limit(seconds: float | None) -> asyncio.Timeout:
    """Return a context manager that raises TimeoutError after some seconds.

    `asyncio.timeout` raises CancelledError instead in a task that is being cancelled, until Python
    3.11.2.

    Arguments:
        seconds: from now; None for no limit.

    Example:
        try:
            async with time_limit(0.01):
                await asyncio.sleep(1)
        except TimeoutError:
            print("it took too long")
    """
    return _kind(None if seconds is None else asyncio.get_running_loop().time() + seconds)


def time_limit_at(when: float | None) -> asyncio.Timeout:
    return _kind(when)


_MAX_BEHIND = 60.0
"""Seconds the time may lag behind the machine's, as after a suspend, before it catches up."""


class SystemClock:
    """Real time, for one event loop.

    `now` moves with the monotonic clock. A machine whose clock is set, or stepped by its time
    service, would otherwise make the times between two events longer or shorter than what passed,
    and durations are computed from them: the age of a resumed run, what screens and traces show.

    `start` is `now` minus `monotonic` in another process on this machine, so that both processes'
    events share the same time; None takes it from the machine's clock.
    """

    def __init__(self, start: float | None = None) -> None:
        self._start = start
        self._time: Callable[[], float] | None = None

    @property
    def start(self) -> float:
        if self._start is None:
            self._start = time.time() - self.monotonic()
        return self._start

    def now(self) -> float:
        # Called for every event, so read the two parts here without a call for each.
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
