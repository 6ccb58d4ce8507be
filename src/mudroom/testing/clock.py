"""Time for tests: a clock that moves only on sleep, and an event loop with virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

from typing_extensions import TypeVarTuple

from .._platform.time_limits import SystemClock

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
SOCKET_GRACE = 0.003
"""Seconds of real time to wait for other processes' sockets before virtual time jumps."""

_THREAD_GRACE = 10.0  # seconds of real time to wait for threads before virtual time jumps

_DELIVERY_LIMIT = 1.0  # seconds of real time to wait for the probe of the loopback device

_EPOCH = 1_700_000_000.0


class FakeClock:
    """Clock for sequential tests, moved only by `advance` and by `sleep`, which does not wait.

    `sleeps` lists the requested sleeps in seconds.
    """

    def __init__(self, start: float = _EPOCH) -> None:
        self._start = start
        self._elapsed = 0.0
        self.sleeps: list[float] = []

    def now(self) -> float:
        """Return seconds since 1970."""
        return self._start + self._elapsed

    def monotonic(self) -> float:
        """Return seconds since the clock was created."""
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self._elapsed += seconds

    async def sleep(self, seconds: float) -> None:
        """Move the clock forward and let other tasks run."""
        self.sleeps.append(seconds)
        self.advance(max(0.0, seconds))
        await asyncio.sleep(0)


class LoopClock(SystemClock):
    """Clock of the running event loop. With VirtualLoop, for tests with concurrent tasks."""

    def now(self) -> float:
        """Return the loop's time as seconds since 1970."""
        return _EPOCH + self.monotonic()


class LoopbackProbe:
    """TCP connection to itself that shows when the kernel has delivered what was sent before.

    The kernel delivers loopback packets in order, but milliseconds late on a busy machine.
    """

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self._sender = socket.create_connection(server.getsockname())
            self._receiver, _ = server.accept()
        self._sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._receiver.settimeout(_DELIVERY_LIMIT)

    def wait(self) -> None:
        """Send a byte and wait until it arrives, for at most a second of real time."""
        self._sender.send(b".")
        with contextlib.suppress(TimeoutError):
            self._receiver.recv(1)

    def close(self) -> None:
        """Close the connection."""
        self._sender.close()
        self._receiver.close()


class _JumpingSelector(selectors.DefaultSelector):
    """Selector that moves virtual time forward where a real one waits for the next timer."""

    now = 0.0
    threads = 0
    probe: LoopbackProbe | None = None
    grace = SOCKET_GRACE

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or timeout == 0:
            return events
        if timeout is None:
            return super().select(None)
        has_sockets = len(self.get_map()) > 1
        if has_sockets:
            self.probe = self.probe or LoopbackProbe()
            self.probe.wait()
        grace = self.grace if has_sockets else 0.0
        if events := super().select(_THREAD_GRACE if self.threads else grace):
            return events
        self.now += max(0.0, timeout)
        return []

    def close(self) -> None:
        if self.probe:
            self.probe.close()
        super().close()


class VirtualLoop(asyncio.SelectorEventLoop):
    """Event loop in which sleeps and timeouts take no real time.

    Sockets to servers in the same loop work: time jumps only while no data arrives.
    Time stands still while threads work, for at most ten seconds of real time.

    Arguments:
        probe: waits for the delivery of sent data; None: a `LoopbackProbe` where needed.
        grace: seconds of real time for other processes to answer before time jumps. 0 is right, and
            faster, if both ends of every socket are in this loop.
    """

    def __init__(self, probe: LoopbackProbe | None = None, *, grace: float = SOCKET_GRACE) -> None:
        self._jumping = _JumpingSelector()
        self._jumping.probe = probe
        self._jumping.grace = grace
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return virtual seconds since the loop was created."""
        return self._jumping.now

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*_Ts], _T], *args: *_Ts
    ) -> asyncio.Future[_T]:
        """Call a function in a thread."""
        future = super().run_in_executor(executor, func, *args)
        self._jumping.threads += 1
        future.add_done_callback(self._count_finished_thread)
        return future

    def _count_finished_thread(self, _: object) -> None:
        self._jumping.threads -= 1


def run_virtual(work: Coroutine[Any, Any, _T], *, grace: float = SOCKET_GRACE) -> _T:
    """Run a coroutine to its end on a new VirtualLoop; `grace` as there."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(grace=grace)) as runner:
        return runner.run(work)
