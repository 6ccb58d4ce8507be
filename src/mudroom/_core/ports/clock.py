"""Clock port: the time."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Source of the time; `mudroom.testing` has one that does not wait."""

    def now(self) -> float:
        """Return seconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go backwards; `sleep` and asyncio timeouts follow them."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...
