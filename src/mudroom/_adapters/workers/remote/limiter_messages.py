"""Messages of a worker process about the rate limiters, which the session's process has."""

from __future__ import annotations

from msgspec import Struct


class AcquireSlot(Struct, frozen=True, tag=True):
    """Ask for a slot of a provider's rate limiter.

    The reply is a `CallReply`: 0.0, or the seconds for which the limiter stays closed.
    """

    id: int
    provider: str


class RecordAccepted(Struct, frozen=True, tag=True):
    """The provider accepted a request; a refusal may follow.

    Arguments:
        id: that of the `AcquireSlot`.
        room: see `RateLimiter.record_accepted`.
    """

    id: int
    room: int | None = None


class RecordRefused(Struct, frozen=True, tag=True):
    """The provider refused a request and wants none for `retry_after` seconds."""

    id: int
    retry_after: float


class ReleaseSlot(Struct, frozen=True, tag=True):
    """End a request, or give up the wait for its slot."""

    id: int


LimiterMessage = AcquireSlot | RecordAccepted | RecordRefused | ReleaseSlot
