"""WorkerActor: a worker process on a node of a Ray cluster, and its lease.

Ray calls its methods.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import msgspec

import mudroom
from mudroom.ports import Arrivals, RunLink

from .messages import Hello

LEASE_SECONDS = 8.0  # that a worker process works without a call from the Ray process
MARGIN_SECONDS = 0.5
"""Extra seconds that the Ray process waits, because a lease is only checked at intervals."""
_WATCH_SECONDS = 0.1
EXIT_CODE = 75

# Also counts while the machine sleeps or the process is stopped.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def read_clock() -> float:
    return time.clock_gettime(_CLOCK)


class Lease:
    """This process's lease: how long it may work without a call from the Ray process.

    The process numbers its replies and remembers the time of each. A call says which reply the
    other side has received; the lease then ends LEASE_SECONDS after the time of that reply. The
    other side counts from when the reply arrived, which is later. So whatever the network delays,
    the lease has ended when the other side says so; both clocks only need to run at the same speed.
    """

    def __init__(self, seconds: float, read_clock: Callable[[], float] = read_clock) -> None:
        self._seconds = seconds
        self._read_clock = read_clock
        self._replies: dict[int, float] = {}
        self._end = read_clock() + seconds

    def add_reply(self, number: int) -> None:
        """Record the time of a reply that is being sent."""
        self._replies[number] = self._read_clock()

    def renew(self, received: int) -> None:
        """Extend the lease: the other side has received the reply with this number."""
        if at := self._replies.get(received):
            self._end = max(self._end, at + self._seconds)
            self._replies = {
                number: sent for number, sent in self._replies.items() if number >= received
            }

    @property
    def has_ended(self) -> bool:
        return self._read_clock() >= self._end

    def check(self) -> None:
        """If the lease has ended, end this process at once and kill its commands."""
        if self.has_ended:
            os._exit(EXIT_CODE)

    def watch(self) -> None:
        """Check the lease in a thread, also while the event loop is busy."""
        threading.Thread(target=self._watch, name="lease", daemon=True).start()

    def _watch(self) -> None:
        while True:
            time.sleep(_WATCH_SECONDS)
            self.check()


POLL_SECONDS = 1.0  # after which a call returns even with nothing to send
MAX_DATA = 90_000
"""Most bytes of a call or reply; small enough to stay out of Ray's object store."""


class ActorEnd(Arrivals):
    """The port RunLink for an actor: Ray calls carry its bytes."""

    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self.check_lease = lease.check
        self._call = asyncio.Event()
        self.outgoing = bytearray()  # bytes for the next replies

    def send(self, data: bytes) -> None:
        self.outgoing += data
        self._call.set()

    def end_call(self) -> None:
        """Make the waiting call return."""
        self._call.set()

    async def wait_for_outgoing(self) -> None:
        """Wait until there are bytes to send, another call comes, or POLL_SECONDS have passed."""
        self._call.set()
        self._call = call = asyncio.Event()
        if not self.outgoing:
            end = asyncio.get_running_loop().call_later(POLL_SECONDS, call.set)
            await call.wait()
            end.cancel()

    def start_beats(self) -> None:
        """Do nothing: replies to the Ray process's calls show that this process works."""


class WorkerActor:
    """A worker process. All methods run in the event loop that Ray makes for the actor."""

    def __init__(self, program: str, lease_seconds: float) -> None:
        self._program = program
        self._lease_seconds = lease_seconds
        self._link: ActorEnd | None = None
        self._lease: Lease | None = None
        self._serving: asyncio.Task[None] | None = None
        self._calls = InOrder()
        self._replies = 0
        self._failure = ""

    async def hello(self) -> bytes:
        """Describe this process, and get ready for calls."""
        hello = Hello(
            pid=os.getpid(),
            host=platform.node(),
            node=import_module("ray").get_runtime_context().get_node_id(),
            python=platform.python_version(),
            code=compute_code_digest(),
        )
        program: Callable[[RunLink], Coroutine[Any, Any, None]] = resolve_name(self._program)
        # Start the lease last: an import can take longer than it lasts.
        self._lease = Lease(self._lease_seconds)
        self._lease.watch()
        self._link = ActorEnd(self._lease)
        self._serving = asyncio.create_task(self._serve(program(self._link)))
        self._lease.add_reply(0)
        return msgspec.msgpack.encode(hello)

    async def exchange(self, number: int, received: int, data: bytes) -> tuple[int, bytes]:
        """Take bytes for the runs; return the reply's number and bytes from the runs.

        Waits for bytes to return, but not beyond the next call or POLL_SECONDS.

        Arguments:
            number: of the call, from 1. Calls may arrive out of order.
            received: number of the last reply that the Ray process has; 0 is that of `hello`.
        """
        assert self._lease and self._link
        self._lease.check()
        self._lease.renew(received)
        if complete := self._calls.add(number, data):
            self._link.add(complete)
        await self._link.wait_for_outgoing()
        if self._failure and not self._link.outgoing:
            raise RuntimeError(self._failure)
        reply = bytes(self._link.outgoing[:MAX_DATA])
        del self._link.outgoing[:MAX_DATA]
        self._replies += 1
        self._lease.add_reply(self._replies)
        return self._replies, reply

    async def stop(self) -> None:
        """End the process and its commands. Works without the node's daemon."""
        os._exit(0)

    async def _serve(self, program: Coroutine[Any, Any, None]) -> None:
        assert self._link is not None
        try:
            await program
            self._failure = "the program has ended"
        except Exception as error:  # noqa: BLE001  the report of a run shows the error
            traceback.print_exc()
            self._failure = f"{type(error).__name__}: {error}"
        self._link.end_call()


class InOrder:
    """Pieces numbered from 1 that may arrive out of order."""

    def __init__(self) -> None:
        self.last = 0  # number of the last returned piece
        self._early: dict[int, bytes] = {}

    def add(self, number: int, piece: bytes) -> bytes:
        """Add a piece. Return the bytes now in order, b"" if an earlier piece is missing."""
        self._early[number] = piece
        complete = b""
        while (following := self._early.pop(self.last + 1, None)) is not None:
            self.last += 1
            complete += following
        return complete


@cache
def compute_code_digest() -> str:
    """Compute a text from the version of mudroom and a digest of its code and this package's."""
    digest = hashlib.sha256()
    for package in (Path(mudroom.__file__).parent, Path(__file__).parent):
        for path in sorted(package.rglob("*.py")):
            digest.update(path.relative_to(package.parent).as_posix().encode())
            digest.update(path.read_bytes())
    return f"{mudroom.__version__} ({digest.hexdigest()[:12]})"
