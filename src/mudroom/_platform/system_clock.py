"""Clock of this machine: implements the port Clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import cached_property


class SystemClock:
    """Real time, for one event loop."""

    def now(self) -> float:
        """Return the seconds since 1970."""
        return time.time()

    @cached_property
    def monotonic(self) -> Callable[[], float]:
        """Function that returns the seconds of the event loop's clock, as asyncio's timeouts."""
        return asyncio.get_running_loop().time

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
