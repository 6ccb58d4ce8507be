"""Time for tests: a clock that moves only when slept on, and an event loop whose time jumps when nothing is left to do."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")
_GRACE = 0.003
_EPOCH = 1_700_000_000.0


class FakeClock:
    """Moves only by `sleep`, which returns at once, and by `advance`; for tests of one thing after the other.

    `slept` lists the sleeps in seconds.
    """

    def __init__(self, start: float = _EPOCH) -> None:
        self._start, self._passed = start, 0.0
        self.sleeps: list[float] = []

    def now(self) -> float:
        """Seconds since 1970."""
        return self._start + self._passed

    def monotonic(self) -> float:
        """Seconds passed since the clock was made."""
        return self._passed

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._passed += seconds

    async def sleep(self, seconds: float) -> None:
        """Let time pass, and others run."""
        self.sleeps.append(seconds)
        self.advance(max(0.0, seconds))
        await asyncio.sleep(0)


class LoopClock:
    """The time of the running event loop; with VirtualLoop, for tests of many things at once."""

    def now(self) -> float:
        """Seconds since 1970, as far as the loop knows."""
        return _EPOCH + self.monotonic()

    def monotonic(self) -> float:
        """The loop's time."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting until a timer is due, moves the time there."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or timeout == 0:
            return events
        if timeout is None:
            return super().select(None)
        if len(self.get_map()) > 1 and (events := super().select(_GRACE)):
            return events
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in which sleeps and timeouts take no time.

    Sockets to servers in the same loop work: time jumps only when they are silent. Threads do not hold the time back.
    """

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._jumping.now


def run_virtual(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end on a VirtualLoop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
