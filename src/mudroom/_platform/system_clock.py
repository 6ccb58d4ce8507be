"""Clock of this machine: implements the port Clock."""

from __future__ import annotations

import asyncio
import time


class SystemClock:
    """Real time, for one event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def now(self) -> float:
        """Return the seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """Return the seconds of the event loop's clock, which asyncio's timeouts follow."""
        loop = self._loop
        if loop is None:
            # Kept, because finding the loop takes a system call.
            self._loop = loop = asyncio.get_running_loop()
        return loop.time()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
