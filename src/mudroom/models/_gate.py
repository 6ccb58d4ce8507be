"""One gate a provider: lets requests through at once until the provider objects, and then as fast as it admits them."""

from __future__ import annotations

import asyncio

from .._core.ports import Clock

_FREE = 8
"""Requests in flight that need no proof that the provider bears them."""
_RAMP = 500, 0.1
"""A burst beyond what is proven: so many requests in so many seconds, most of them late, because a refusal takes its time to come."""
_SLOWEST, _FASTEST = 0.1, 5_000.0
_AFTER = 0.005
"""Seconds added to the provider's own wait, against rounding of clocks."""


class Closed(Exception):
    """The gate stays closed for longer than anybody should wait: for so many `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"closed for {seconds:.0f} s")
        self.seconds = seconds


class Gate:
    """Where all requests to one provider wait their turn.

    With no limit in sight everything passes at once, but for a burst many times larger than any the provider has
    borne so far: it is spread over some 0.1 s, so that a refusal can still stop most of it. A refusal (429, 529)
    closes the gate for everybody for as long as the provider asked; then one request at a time goes through at a rate
    that grows quickly up to what was admitted before, slowly beyond, and is cut at the next refusal.

    Arguments:
        clock: time. patience: most seconds to wait at a closed gate.
    """

    def __init__(self, clock: Clock, patience: float = 300.0) -> None:
        self._clock, self.patience = clock, patience
        self._turn = asyncio.Lock()
        self._flying = self._proven = self._burst = 0
        self._burst_began = self._opens = self._next = self._cut = 0.0
        self._rate = self._ceiling = 0.0

    async def enter(self) -> float:
        """Wait for the gate; the moment the request goes out, to be given back with its outcome. Pairs with `leave`. Raises Closed."""
        if self._rate or self._turn.locked() or self._flying >= max(_FREE, 2 * self._proven):
            async with self._turn:
                if not self._burst:
                    self._burst_began = self._clock.monotonic()
                self._burst += 1
                while (wait := self._wait()) > 0:
                    if wait > self.patience:
                        raise Closed(wait)
                    await self._clock.sleep(wait)
        else:
            self._burst = 0
        self._flying += 1
        now = self._clock.monotonic()
        if self._rate:
            self._next = now + 1 / self._rate
        return now

    def leave(self) -> None:
        """The request is over, however it ended."""
        self._flying -= 1
        if not self._flying:
            self._burst = 0

    def admitted(self, sent: float) -> None:
        """The provider took the request that went out at `sent`."""
        self._proven = max(self._proven, self._flying)
        if not self._rate or sent < self._cut:
            return
        if not self._ceiling:
            self._rate *= 1.5
        elif self._rate < 0.9 * self._ceiling:
            self._rate = min(1.3 * self._rate, 0.9 * self._ceiling)
        else:
            self._rate *= 1.01
        if self._rate > _FASTEST:
            self._rate = self._ceiling = 0.0

    def limited(self, sent: float, wait: float) -> None:
        """The provider refused it and wants nothing for `wait` seconds."""
        now = self._clock.monotonic()
        self._opens = max(self._opens, now + wait + _AFTER)
        self._proven = 0
        if self._rate and sent < self._cut:
            return
        self._cut = now
        self._rate, self._ceiling = (max(_SLOWEST, self._rate * 0.7), self._rate) if self._rate else (1.0, 0.0)

    def _wait(self) -> float:
        """Seconds until the next request may pass."""
        now = self._clock.monotonic()
        if self._rate:
            return max(self._opens, self._next) - now
        if self._flying < max(_FREE, 2 * self._proven):
            return 0.0
        most, seconds = _RAMP
        return self._burst_began + seconds * (self._burst / most) ** (1 / 6) - now
