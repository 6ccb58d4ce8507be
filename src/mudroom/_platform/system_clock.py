"""The port Clock, with this machine's real time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class SystemClock:
    """Real time, for one event loop."""

    def __init__(self) -> None:
        self._time: Callable[[], float] | None = None

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        """Return the event loop's time, which asyncio's timeouts follow."""
        if self._time is None:
            # Kept, because finding the loop takes a system call.
            self._time = asyncio.get_running_loop().time
        return self._time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
