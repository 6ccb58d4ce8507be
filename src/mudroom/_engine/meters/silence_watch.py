"""Silence watch: ends model calls that receive nothing, with one timer for all of a session."""

from __future__ import annotations

import asyncio

_CHECK_INTERVAL = 0.5
"""Seconds between two checks while calls are open."""


class SilenceWatch:
    """Open model calls, each with the time at which it counts as silent.

    One timer per call would have to be moved with each chunk, which is slower.
    """

    def __init__(self) -> None:
        self._silent_at: dict[asyncio.Timeout, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def extend(self, call: asyncio.Timeout, seconds: float) -> None:
        """Set or move the time at which a call counts as silent to `seconds` from now."""
        loop = self._loop
        if loop is None:
            # Kept, because finding the loop takes a system call.
            self._loop = loop = asyncio.get_running_loop()
        self._silent_at[call] = loop.time() + seconds
        if self._timer is None:
            self._timer = loop.call_later(_CHECK_INTERVAL, self._check, loop)

    def close(self, call: asyncio.Timeout) -> None:
        """Remove a call that has ended."""
        del self._silent_at[call]

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for call, silent_at in self._silent_at.items():
            if now >= silent_at and not call.expired():
                call.reschedule(now)
        if self._silent_at:
            self._timer = loop.call_later(_CHECK_INTERVAL, self._check, loop)
