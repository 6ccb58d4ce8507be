"""Clock of this machine: implements the port Clock."""

from __future__ import annotations

import asyncio
import time


class SystemClock:
    """Real time."""

    def now(self) -> float:
        """Return the seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """Return the seconds of the event loop's clock, which asyncio's timeouts follow."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
