"""Clock port: the time."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """The time."""

    def now(self) -> float:
        """Return seconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back; `sleep` and asyncio's timeouts follow this clock."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds."""
        ...
