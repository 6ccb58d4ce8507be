"""Lease of a worker process: how long it may work without a call of the driver.

The worker process numbers its replies and keeps the time of each. A call says which reply the other
side has; the lease then ends LEASE_SECONDS after the time of that reply. The other side counts from
the later moment at which the reply arrived. So whatever the network delays, the lease has ended
when the other side says so; both sides only need clocks that run at the same speed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

LEASE_SECONDS = 8.0
"""Seconds that a worker process works without a call of the driver."""
MARGIN_SECONDS = 0.5
"""Seconds that the driver waits longer: the watch of a lease looks at intervals."""
_WATCH_SECONDS = 0.1
EXIT_CODE = 75

# It also counts while the machine sleeps, and goes on while the process is stopped.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def read_clock() -> float:
    """Return seconds of a clock that no one sets."""
    return time.clock_gettime(_CLOCK)


class Lease:
    """Lease of this process.

    Arguments:
        seconds: the time from a reply to the end of the lease.
        read_clock: returns the present time in seconds.
    """

    def __init__(self, seconds: float, read_clock: Callable[[], float] = read_clock) -> None:
        self._seconds = seconds
        self._read_clock = read_clock
        self._replies: dict[int, float] = {}
        self._end = read_clock() + seconds

    def add_reply(self, number: int) -> None:
        """Note the time of a reply that is sent now."""
        self._replies[number] = self._read_clock()

    def renew(self, received: int) -> None:
        """Extend the lease: the other side has received the reply of this number."""
        if at := self._replies.get(received):
            self._end = max(self._end, at + self._seconds)
            self._replies = {
                number: sent for number, sent in self._replies.items() if number >= received
            }

    @property
    def has_ended(self) -> bool:
        """True if this process must not work any more."""
        return self._read_clock() >= self._end

    def check(self) -> None:
        """End this process at once if the lease has ended; its commands are killed then."""
        if self.has_ended:
            os._exit(EXIT_CODE)

    def watch(self) -> None:
        """Check the lease in a thread, also while the event loop is busy."""
        threading.Thread(target=self._watch, name="lease", daemon=True).start()

    def _watch(self) -> None:
        while True:
            time.sleep(_WATCH_SECONDS)
            self.check()
