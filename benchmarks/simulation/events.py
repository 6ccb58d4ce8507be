"""Parts of a discrete event simulation: a clock, servers with a queue, and a rate limit.

Times are seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

Action = Callable[[], None]


class Clock:
    """The simulated time and the actions that are due."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Action]] = []
        self._numbers = count()

    def call_at(self, time: float, action: Action) -> None:
        """Call an action at a time; actions of the same time in the order of the calls."""
        heappush(self._due, (time, next(self._numbers), action))

    def run(self) -> None:
        """Call all actions in the order of time, until none is left."""
        due = self._due
        while due:
            self.now, _, action = heappop(due)
            action()


class Server:
    """A server that works on one job at a time, in the order of arrival."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free_at = 0.0
        self.busy = 0.0

    def work(self, seconds: float, then: Action) -> None:
        """Work on a job that takes so long, then call an action."""
        start = max(self._clock.now, self._free_at)
        self._free_at = start + seconds
        self.busy += seconds
        self._clock.call_at(self._free_at, then)


class GroupServer:
    """A server that takes all waiting jobs at once, as a journal commits events in groups.

    Arguments:
        group: seconds for each group. job: further seconds for each job in it.
    """

    def __init__(self, clock: Clock, group: float, job: float) -> None:
        self._clock = clock
        self._group = group
        self._job = job
        self._waiting: list[Action] = []
        self._is_busy = False
        self.busy = 0.0

    def work(self, then: Action) -> None:
        """Store a job in the next group, then call an action."""
        self._waiting.append(then)
        if not self._is_busy:
            self._start()

    def _start(self) -> None:
        group, self._waiting = self._waiting, []
        self._is_busy = True
        seconds = self._group + self._job * len(group)
        self.busy += seconds

        def end() -> None:
            self._is_busy = False
            for then in group:
                then()
            if self._waiting and not self._is_busy:
                self._start()

        self._clock.call_at(self._clock.now + seconds, end)


class RateLimit:
    """The limit of a provider: requests start at least `1 / rate` seconds apart.

    Arguments:
        rate: requests per second; 0 for no limit.
    """

    def __init__(self, clock: Clock, rate: float) -> None:
        self._clock = clock
        self._interval = 1 / rate if rate else 0.0
        self._next = 0.0
        self.busy = 0.0

    def enter(self, then: Action) -> None:
        """Call an action when the limit allows another request."""
        if not self._interval:
            then()
            return
        start = max(self._clock.now, self._next)
        self._next = start + self._interval
        self.busy += self._interval
        self._clock.call_at(start, then)
