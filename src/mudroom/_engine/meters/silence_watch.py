"""Silence watch: ends model calls that receive nothing, with one timer for all of a session."""

from __future__ import annotations

import asyncio
import math

_MIN_INTERVAL = 0.5
"""Seconds between two checks at least."""


class SilenceWatch:
    """Open model calls, each with the time at which it counts as silent.

    One timer per call would have to be moved with each chunk, which is slower.
    """

    def __init__(self) -> None:
        self._silent_at: dict[asyncio.Timeout, float] = {}
        self._check_at = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def extend(self, call: asyncio.Timeout, seconds: float) -> None:
        """Set or move the time at which a call counts as silent to `seconds` from now."""
        loop = self._loop
        if loop is None:
            # Kept, because finding the loop takes a system call.
            self._loop = loop = asyncio.get_running_loop()
        now = loop.time()
        self._silent_at[call] = now + seconds
        check_at = now + max(seconds, _MIN_INTERVAL)
        if check_at < self._check_at:
            self._check_later(loop, check_at)

    def close(self, call: asyncio.Timeout) -> None:
        """Remove a call that has ended."""
        del self._silent_at[call]

    def _check_later(self, loop: asyncio.AbstractEventLoop, check_at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._check_at = check_at
        self._timer = loop.call_at(check_at, self._check, loop)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._check_at = math.inf
        now = loop.time()
        for call, silent_at in self._silent_at.items():
            if now >= silent_at and not call.expired():
                call.reschedule(now)
        if self._silent_at:
            next_at = min(self._silent_at.values())
            self._check_later(loop, max(next_at, now + _MIN_INTERVAL))
