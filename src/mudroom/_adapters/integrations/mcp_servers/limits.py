"""Limits on one server: the duration of a call, and the number of starts."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from ...._platform.time_limits import time_limit_at

# A server that has to be started more often than this within START_WINDOW has failed.
MAX_STARTS = 3
START_WINDOW = 60.0
"""Seconds."""

log = logging.getLogger("mudroom")


class OpenCall:
    """The time limits of a call: its whole duration, and the time without a sign of life."""

    def __init__(self, seconds: float, idle_seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._idle_seconds = idle_seconds
        self._last = self._loop.time() + seconds
        self._paused_at: list[float] = []
        self.timeout = time_limit_at(self._compute_deadline())

    def _compute_deadline(self) -> float:
        return min(self._last, self._loop.time() + self._idle_seconds)

    def extend(self) -> None:
        """Restart the time without a sign of life."""
        if not self.timeout.expired() and not self._paused_at:
            self.timeout.reschedule(self._compute_deadline())

    def pause(self, is_paused: bool) -> None:
        """Stop the time limits while the user answers a question, or resume them."""
        if is_paused:
            # A list, since a call may have several open questions: the clock runs again after the
            # last.
            self._paused_at.append(self._loop.time())
            if not self.timeout.expired():
                self.timeout.reschedule(None)
        else:
            began = self._paused_at.pop()
            if not self._paused_at:
                self._last += self._loop.time() - began
                self.extend()

    def describe_timeout(self) -> str:
        """Say which limit was reached."""
        if self._loop.time() >= self._last:
            return f"the call took more than {self._seconds:g} s"
        return f"it sent nothing for {self._idle_seconds:g} s"


class PastStarts:
    """What is known from earlier starts of a server.

    Attributes:
        times: times of the last starts.
        reported: the last reason that was logged.
        protocol: revision of the last connection, "" if unknown.
        is_era_wrong: true if the server refused that revision.
    """

    def __init__(self, protocol: str, *, logs_failures: bool) -> None:
        self.times: deque[float] = deque(maxlen=MAX_STARTS)
        self.reported = ""
        self._logs_failures = logs_failures
        self.protocol = protocol
        self.is_era_wrong = False

    def report(self, server: str, reason: str) -> None:
        """Log a new reason why the server cannot be used."""
        if self._logs_failures and reason != self.reported:
            self.reported = reason
            log.warning("server %s cannot be used: %s", server, reason)
