"""One gate a provider: lets requests through at once until the provider objects, and then as fast as it admits them."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from .._core.ports import Clock

_FREE = 8
"""Requests without an answer that need no proof that the provider bears them."""
_HOLD, _LONGEST_HOLD = 0.6, 1.0
"""How long a burst beyond what is proven waits for its first requests, as a refusal takes its time to come: in times of the
quickest answer so far, and in seconds at most."""
_UNKNOWN = 0.5
"""Seconds that the quickest answer is taken to need while there is none."""
_PROBE = 1.0
"""Seconds between two steps of a rate that is near the one last refused."""
_SLOWEST, _FASTEST = 0.1, 5_000.0
_AFTER = 0.005
"""Seconds added to the provider's own wait, against rounding of clocks."""


class RateLimited(Exception):
    """The gate stays closed for longer than anybody should wait: for so many `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"closed for {seconds:.0f} s")
        self.seconds = seconds


class Permit(Struct, eq=False):
    """One request that went through: when, and how many then had no answer, itself too; whether it has got one."""

    sent_at: float
    unanswered_when_sent: int
    is_answered: bool = False


class RateLimiter:
    """Where all requests to one provider wait their turn.

    With no limit in sight everything passes at once, but for a burst many times larger than any the provider has borne so far:
    its first requests go ahead, the rest waits until they are answered or would have been refused by now. A refusal (429, 529)
    closes the gate for everybody for as long as the provider asked; then one request at a time goes through, at a rate that
    grows quickly up to what was admitted before, slowly beyond, and is cut at the next refusal. It grows only by answers to
    requests sent since it last changed, and not before a refusal of these could have come.

    Arguments:
        clock: time. patience: most seconds to wait at a closed gate.
    """

    def __init__(self, clock: Clock, max_wait: float = 300.0) -> None:
        self._clock, self.patience = clock, max_wait
        self._turn = asyncio.Lock()
        self._flying = self._unanswered = self._proven = 0
        self._held: float | None = None
        self._opens = self._next = self._changed = 0.0
        self._quickest, self._slow = _UNKNOWN, 0.0
        self._rate = self._ceiling = 0.0

    async def acquire(self) -> Permit:
        """Wait for the gate; a pass, to be given back with the request's outcome. Pairs with `leave`. Raises Closed."""
        if self._rate or self._turn.locked() or self._crowded:
            async with self._turn:
                while (wait := self._wait()) > 0:
                    if wait > self.patience:
                        raise RateLimited(wait)
                    await self._clock.sleep(wait)
        else:
            self._held = None
        self._flying += 1
        self._unanswered += 1
        now = self._clock.monotonic()
        if self._rate:
            self._next = now + 1 / self._rate
        return Permit(now, self._unanswered)

    def release(self, request: Permit) -> None:
        """The request is over, however it ended."""
        self._answered(request)
        self._flying -= 1

    def record_accepted(self, request: Permit) -> None:
        """The provider took the request."""
        now = self._clock.monotonic()
        self._answered(request)
        self._proven = max(self._proven, request.unanswered_when_sent)
        self._quickest = min(self._quickest, now - request.sent_at)
        near = self._ceiling > 0 and self._rate >= 0.9 * self._ceiling
        if (
            self._rate
            and request.sent_at >= self._changed
            and now >= self._changed + max(self._slow, near and _PROBE)
        ):
            self._changed = now
            self._grow(near=near)

    def _grow(self, *, near: bool) -> None:
        if self._rate > 1.25 * self._ceiling:
            self._rate, self._ceiling = 1.5 * self._rate, 0.0
        else:
            self._rate = 1.01 * self._rate if near else min(1.3 * self._rate, 0.9 * self._ceiling)
        if self._rate > _FASTEST:
            self._rate = self._ceiling = 0.0

    def record_refused(self, request: Permit, wait: float) -> None:
        """The provider refused it and wants nothing for `wait` seconds."""
        now = self._clock.monotonic()
        self._answered(request)
        self._opens = max(self._opens, now + wait + _AFTER)
        self._proven = 0
        self._slow = max(self._slow, now - request.sent_at)
        if self._rate and request.sent_at < self._changed:
            return
        self._changed = now
        self._rate, self._ceiling = (
            (max(_SLOWEST, self._rate * 0.7), self._rate) if self._rate else (1.0, 0.0)
        )

    def _answered(self, request: Permit) -> None:
        if not request.is_answered:
            request.is_answered = True
            self._unanswered -= 1

    @property
    def _crowded(self) -> bool:
        """Whether more are without an answer than the provider is known to bear."""
        return self._unanswered >= max(_FREE, 2 * self._proven)

    def _wait(self) -> float:
        """Seconds until the next request may pass."""
        now = self._clock.monotonic()
        if self._rate:
            return max(self._opens, self._next) - now
        if not self._crowded:
            return 0.0
        if self._held is None:
            self._held = now
        return self._held + min(_HOLD * self._quickest, _LONGEST_HOLD) - now
