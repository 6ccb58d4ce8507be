"""Providers' rate limits for all worker processes: the session's process has the limiters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ...._core.ports import RateLimited, RateLimiter, RequestSlot
from ...._peers import Peer, encode
from .messages import (
    AcquireSlot,
    CallReply,
    ErrorInfo,
    LimiterMessage,
    RecordAccepted,
    RecordRefused,
    ReleaseSlot,
)
from .remote_services import SessionLink

_NO_SECONDS = encode(0.0)


class RemoteRateLimiter:
    def __init__(self, link: SessionLink, provider: str) -> None:
        self._link = link
        self._provider = provider

    def acquire_now(self) -> RequestSlot | None:
        # The session's process has the limiter.
        return None

    async def acquire(self) -> RequestSlot:
        # If the caller is cancelled while a slot is on its way, that must also be released.
        reply = await self._link.ask(
            lambda number: AcquireSlot(number, self._provider), ReleaseSlot
        )
        if seconds := msgspec.msgpack.decode(reply.result, type=float):
            raise RateLimited(seconds)
        return RequestSlot(0.0, 0, number=reply.id)

    def record_accepted(self, slot: RequestSlot, room: int | None = None) -> None:
        self._link.send(RecordAccepted(slot.number, room))

    def record_refused(self, slot: RequestSlot, retry_after: float) -> None:
        self._link.send(RecordRefused(slot.number, retry_after))

    def release(self, slot: RequestSlot) -> None:
        if not slot.is_answered:
            slot.is_answered = True
            self._link.send(ReleaseSlot(slot.number))


class LimitedRequests:
    """A worker process's requests that have a slot of a rate limiter or wait for one.

    The waiting ones are among the requests of `peer`.
    """

    def __init__(
        self,
        get_limiter: Callable[[str], RateLimiter],
        send: Callable[[CallReply], None],
        peer: Peer[Any, Any],
    ) -> None:
        self._get_limiter = get_limiter
        self._send = send
        self._peer = peer
        self._slots: dict[int, tuple[RateLimiter, RequestSlot]] = {}

    def handle(self, message: LimiterMessage) -> None:
        if isinstance(message, AcquireSlot):
            self._acquire(message)
        elif held := self._slots.get(message.id):
            self._record(*held, message)
        elif isinstance(message, ReleaseSlot):
            self._peer.cancel(message.id)

    def close(self) -> None:
        """Release all slots: the worker process has ended, and none of its requests wait."""
        for limiter, slot in self._slots.values():
            limiter.release(slot)
        self._slots.clear()

    def _acquire(self, message: AcquireSlot) -> None:
        limiter = self._get_limiter(message.provider)
        if slot := limiter.acquire_now():
            self._slots[message.id] = limiter, slot
            self._send(CallReply(message.id, _NO_SECONDS))
            return
        work = self._wait_for_slot(message, limiter)
        self._peer.serve(
            message.id,
            work,
            lambda error: self._send(CallReply(message.id, error=ErrorInfo.of(error))),
        )

    async def _wait_for_slot(self, message: AcquireSlot, limiter: RateLimiter) -> None:
        seconds = 0.0
        try:
            self._slots[message.id] = limiter, await limiter.acquire()
        except RateLimited as limited:
            seconds = limited.seconds
        self._send(CallReply(message.id, encode(seconds)))

    def _record(
        self,
        limiter: RateLimiter,
        slot: RequestSlot,
        message: RecordAccepted | RecordRefused | ReleaseSlot,
    ) -> None:
        if isinstance(message, RecordRefused):
            limiter.record_refused(slot, message.retry_after)
        elif isinstance(message, RecordAccepted):
            limiter.record_accepted(slot, message.room)
        else:
            limiter.release(slot)
            del self._slots[message.id]
