"""Silence watch: ends model calls that receive nothing, with one timer for all of a session."""

from __future__ import annotations

import asyncio
import math

_MIN_INTERVAL = 0.5
"""Seconds between two checks at least."""


class WatchedCall:
    """An open model call. As a context manager it raises TimeoutError when the call is silent.

    It works like `asyncio.timeout`, but without a timer and two coroutines of its own.

    Attributes:
        silent_at: time of the event loop at which the call counts as silent.
    """

    def __init__(self, watch: SilenceWatch, task: asyncio.Task[object] | None) -> None:
        self.silent_at = math.inf
        self._watch = watch
        self._task = task
        self._cancels_before = task.cancelling() if task else 0
        self._is_ended = False

    def __enter__(self) -> WatchedCall:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._watch.close(self)
        if not self._is_ended or self._task is None:
            return
        is_only_cancel = self._task.uncancel() <= self._cancels_before
        if is_only_cancel and kind is asyncio.CancelledError:
            raise TimeoutError("the model fell silent") from None

    def extend(self, seconds: float) -> None:
        """Set or move the time at which the call counts as silent to `seconds` from now."""
        self.silent_at = self._watch.compute_deadline(seconds)

    def end(self) -> None:
        """End the call: it is silent."""
        if self._task is not None and not self._is_ended:
            self._is_ended = True
            self._task.cancel()


class SilenceWatch:
    """Open model calls.

    One timer per call would have to be moved with each chunk, which is slower.
    """

    def __init__(self) -> None:
        self._calls: set[WatchedCall] = set()
        self._check_at = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch_call(self, seconds: float) -> WatchedCall:
        """Return a context manager for a call of the current task.

        Arguments:
            seconds: time until it counts as silent.
        """
        if self._loop is None:
            # Kept, because finding the loop takes a system call.
            self._loop = asyncio.get_running_loop()
        call = WatchedCall(self, asyncio.current_task(self._loop))
        self._calls.add(call)
        call.extend(seconds)
        return call

    def compute_deadline(self, seconds: float) -> float:
        """Return the time of the event loop after some seconds, at which a check is planned."""
        loop = self._loop
        assert loop is not None
        silent_at = loop.time() + seconds
        if silent_at < self._check_at:
            self._check_later(loop, silent_at)
        return silent_at

    def close(self, call: WatchedCall) -> None:
        """Remove a call that has ended."""
        self._calls.discard(call)

    def _check_later(self, loop: asyncio.AbstractEventLoop, silent_at: float) -> None:
        check_at = max(silent_at, loop.time() + _MIN_INTERVAL)
        if check_at >= self._check_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._check_at = check_at
        self._timer = loop.call_at(check_at, self._check, loop)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._check_at = math.inf
        now = loop.time()
        for call in self._calls:
            if now >= call.silent_at:
                call.end()
        if self._calls:
            self._check_later(loop, min(call.silent_at for call in self._calls))
