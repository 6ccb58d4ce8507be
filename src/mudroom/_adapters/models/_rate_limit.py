"""A rate limiter that adapts to a provider's refusals.

While no limit is known, every request is sent at once. The exception is the burst hold: if many
more requests are in flight than the provider has ever accepted at once, the rest of the burst waits
until the first ones are answered, or would have been refused by now. No hold begins while the last
response's headers show that the provider has room. Some providers count per model, so the room may
be another model's; refusals then decide, as they do without headers.

A refusal (HTTP 429, 529) switches to limited mode: requests are sent one at a time, at a rate that
follows the provider's refusals and acceptances:

    rate (requests/s)
     |           refused at this rate:            refused again: x 0.7,
     |           it becomes the refused rate      a new refused rate
     |                    v                             v
     |        free       |..............................|............. refused rate
     |       (no limit)  |                      ________|    _____
     |                   |              _______/ +1 % per step, near the refused rate (>= 90 %)
     |                   |           __/
     |                   |        __/  x 1.3 per step, up to 90 % of the refused rate
     |                   |  1/s _/
     +-------------------+------+--------------------------------------> time
                     refused    opens again after the wait that the provider asked for

- The first refusal sets 1 request/s. As no rate has been refused yet, steps are x 1.5.
- The rate rises by one step only when the provider accepts a request that was sent after the last
  change of the rate, and when enough time has passed that a refusal would have arrived
  (`_slowest_refusal`; at least 1 s near the refused rate).
- Refusals of requests sent before the last change of the rate do not lower it again.
- Above 125 % of the refused rate, that rate is considered outdated and steps are x 1.5 again.
  Beyond 5,000 requests/s the limiter leaves limited mode.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from ..._core.ports import Clock, RateLimited, RequestSlot
from ..._platform.wake_queue import WakeQueue

MAX_WAIT = 300.0  # seconds; the longest a request may wait for a closed limiter
_ALWAYS_ALLOWED_UNANSWERED = 8  # up to this many requests in flight, no burst is held back
# Length of a burst hold, as a multiple of the fastest response time so far.
_BURST_HOLD_FACTOR = 0.6
_MAX_BURST_HOLD = 1.0  # seconds
# Seconds; replaces the fastest response time until a response has arrived.
_ASSUMED_RESPONSE_TIME = 0.5
# Seconds between steps near the last refused rate.
_MIN_STEP_TIME_NEAR_REFUSED_RATE = 1.0
# Rates are in requests per second.
_START_RATE = 1.0
_MIN_RATE = 0.1
_MAX_RATE = 5_000.0
# Seconds added to the wait the provider asks for, because clocks are rounded.
_CLOCK_MARGIN = 0.005
_REQUESTS_LEFT = ("anthropic-ratelimit-requests-remaining", "x-ratelimit-remaining-requests")
# Response headers with the rest of each limit.
_TOKENS_LEFT = (
    "anthropic-ratelimit-tokens-remaining",
    "anthropic-ratelimit-input-tokens-remaining",
    "x-ratelimit-remaining-tokens",
)
# Bytes of request body per token. Most text has four, so this is a high estimate.
_BYTES_PER_TOKEN = 3
_MAX_DIGITS = 12  # longer numbers in a header are ignored


class AdaptiveRateLimiter:
    """The port RateLimiter within one process; the rules are in the module docstring."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue = asyncio.Lock()
        # All times are seconds of the monotonic clock. A rate of 0 means no limit.
        self._rate = 0.0
        self._refused_rate = 0.0
        self._rate_changed_at = 0.0
        self._closed_until = 0.0
        self._next_send_at = 0.0
        self._unanswered = 0
        self._largest_accepted_burst = 0
        self._room = 0
        self._burst_held_since: float | None = None
        self._is_holding = False
        self._held: list[asyncio.Future[None]] = []
        self._wakes = WakeQueue()
        self._fastest_response = _ASSUMED_RESPONSE_TIME
        self._slowest_refusal = 0.0

    def acquire_now(self) -> RequestSlot | None:
        if self._is_holding or self._is_burst:
            return None
        self._burst_held_since = None
        return None if self._rate or self._queue.locked() else self._take_slot()

    async def acquire(self) -> RequestSlot:
        """Wait until a request may be sent. Pass its slot to `release`. Raises RateLimited."""
        if slot := self.acquire_now():
            return slot
        await self._wait_for_burst()
        if self._rate or self._queue.locked():
            async with self._queue:
                while (wait := self._compute_wait()) > 0:
                    if wait > MAX_WAIT:
                        raise RateLimited(wait)
                    await self._clock.sleep(wait)
        return self._take_slot()

    def _take_slot(self) -> RequestSlot:
        self._unanswered += 1
        self._room -= 1
        now = self._clock.monotonic()
        if self._rate:
            self._next_send_at = now + 1 / self._rate
        return RequestSlot(now, self._unanswered)

    def record_accepted(self, slot: RequestSlot, room: int | None = None) -> None:
        now = self._clock.monotonic()
        self.release(slot)
        if room is not None:
            # The provider may not have counted requests that are still under way.
            self._room = room - self._unanswered
        self._largest_accepted_burst = max(self._largest_accepted_burst, slot.unanswered_when_sent)
        self._fastest_response = min(self._fastest_response, now - slot.sent_at)
        if not self._rate or slot.sent_at < self._rate_changed_at:
            return
        is_near = self._refused_rate > 0 and self._rate >= 0.9 * self._refused_rate
        step_time = self._slowest_refusal
        if is_near:
            step_time = max(step_time, _MIN_STEP_TIME_NEAR_REFUSED_RATE)
        if now >= self._rate_changed_at + step_time:
            self._rate_changed_at = now
            self._raise_rate(is_near=is_near)

    def record_refused(self, slot: RequestSlot, retry_after: float) -> None:
        now = self._clock.monotonic()
        self.release(slot)
        self._closed_until = max(self._closed_until, now + retry_after + _CLOCK_MARGIN)
        self._largest_accepted_burst = 0
        self._room = 0
        self._slowest_refusal = max(self._slowest_refusal, now - slot.sent_at)
        if self._rate and slot.sent_at < self._rate_changed_at:
            return
        self._rate_changed_at = now
        self._refused_rate = self._rate
        self._rate = max(_MIN_RATE, self._rate * 0.7) if self._rate else _START_RATE

    def _raise_rate(self, *, is_near: bool) -> None:
        if self._rate > 1.25 * self._refused_rate:
            self._rate *= 1.5
            self._refused_rate = 0.0
        elif is_near:
            self._rate *= 1.01
        else:
            self._rate = min(1.3 * self._rate, 0.9 * self._refused_rate)
        if self._rate > _MAX_RATE:
            self._rate = 0.0
            self._refused_rate = 0.0

    def release(self, slot: RequestSlot) -> None:
        if not slot.is_answered:
            slot.is_answered = True
            self._unanswered -= 1

    @property
    def _is_burst(self) -> bool:
        if self._room > 0:
            return False
        accepted = max(_ALWAYS_ALLOWED_UNANSWERED, 2 * self._largest_accepted_burst)
        return self._unanswered >= accepted

    async def _wait_for_burst(self) -> None:
        while True:
            if self._is_holding:
                # One request waits for the time and wakes all others. In a queue, each of hundreds
                # would cost an iteration of the event loop, which also has to handle the first
                # answers.
                waiter = asyncio.get_running_loop().create_future()
                self._held.append(waiter)
                await waiter
            elif (wait := self._compute_hold()) > 0:
                await self._hold(wait)
            else:
                return

    async def _hold(self, seconds: float) -> None:
        self._is_holding = True
        try:
            await self._clock.sleep(seconds)
        finally:
            self._is_holding = False
            held = self._held
            self._held = []
            for waiter in held:
                self._wakes.wake(waiter)

    def _compute_hold(self) -> float:
        if self._rate or not self._is_burst:
            return 0.0
        now = self._clock.monotonic()
        if self._burst_held_since is None:
            self._burst_held_since = now
        hold = min(_BURST_HOLD_FACTOR * self._fastest_response, _MAX_BURST_HOLD)
        return self._burst_held_since + hold - now

    def _compute_wait(self) -> float:
        if not self._rate:
            return 0.0
        return max(self._closed_until, self._next_send_at) - self._clock.monotonic()


def read_room(headers: Mapping[str, str], request_size: int) -> int | None:
    """Read how many more requests of this size the provider accepts at once; None if unknown."""
    requests = _read_numbers(headers, _REQUESTS_LEFT)
    if not requests:
        return None
    tokens_per_request = request_size // _BYTES_PER_TOKEN + 1
    tokens = _read_numbers(headers, _TOKENS_LEFT)
    return min([*requests, *(number // tokens_per_request for number in tokens)])


def _read_numbers(headers: Mapping[str, str], names: Iterable[str]) -> list[int]:
    texts = [headers.get(name, "") for name in names]
    return [
        int(text)
        for text in texts
        if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
    ]
