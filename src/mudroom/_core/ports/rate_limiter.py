"""RateLimiter port: the pace of requests to one provider."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


class RateLimited(Exception):
    """The limiter stays closed for `seconds`, longer than a request may wait."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"closed for {seconds:.0f} s")
        self.seconds = seconds


class RequestSlot(Struct, eq=False):
    """Permission to send one request.

    Arguments:
        sent_at: when it was granted, on the monotonic clock.
        unanswered_when_sent: number of requests in flight at that time, including this one.
        is_answered: true once the request has ended.
        number: id of the slot between processes, 0 within one process.
    """

    sent_at: float
    unanswered_when_sent: int
    is_answered: bool = False
    number: int = 0


class RateLimiter(Protocol):
    """A queue that all requests to one provider pass through."""

    def acquire_now(self) -> RequestSlot | None:
        """Return a slot if a request may be sent at once, else None."""
        ...

    async def acquire(self) -> RequestSlot:
        """Wait until a request may be sent, and return its slot.

        Pass each slot to `release` exactly once. Raises RateLimited.
        """
        ...

    def record_accepted(self, slot: RequestSlot, room: int | None = None) -> None:
        """Record that the provider accepted a request.

        Arguments:
            room: how many more requests the provider says it will accept; None if it does not say.
        """
        ...

    def record_refused(self, slot: RequestSlot, retry_after: float) -> None:
        """Record that the provider refused a request and wants none for `retry_after` seconds."""
        ...

    def release(self, slot: RequestSlot) -> None:
        """Mark a request as ended, with or without a response."""
        ...
