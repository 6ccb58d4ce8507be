"""Completes futures a few at a time, so that the event loop never hangs."""

from __future__ import annotations

import asyncio
from collections import deque

# Futures completed per iteration of the event loop. Each wakes a run for 0.1 to 0.2 ms.
_MAX_WAKES = 32


class WakeQueue:
    """Completes futures of one event loop in order.

    Thousands of answers and stored events can arrive together. Timers, input and cancels get a turn
    in between.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[asyncio.Future[None], Exception | None]] = deque()
        self._woken = 0

    def wake(self, future: asyncio.Future[None], error: Exception | None = None) -> None:
        if self._woken == 0:
            asyncio.get_running_loop().call_soon(self._continue)
        if self._woken < _MAX_WAKES:
            self._set(future, error)
        else:
            self._waiting.append((future, error))

    def _set(self, future: asyncio.Future[None], error: Exception | None) -> None:
        self._woken += 1
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def _continue(self) -> None:
        self._woken = 0
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._continue)
        while self._waiting and self._woken < _MAX_WAKES:
            self._set(*self._waiting.popleft())
