"""WorkerActor: a worker process on a node of a Ray cluster. Ray calls its methods."""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import traceback
from collections.abc import Callable, Coroutine
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

import mudroom
from mudroom.ports import Arrivals, RunLink

from .driver_messages import Hello
from .lease import Lease

POLL_SECONDS = 1.0
"""Seconds after which a call returns although there is nothing to send."""
MAX_DATA = 90_000
"""Bytes of one call or reply. Ray keeps larger values in its object store, this one does not."""


class ActorEnd(Arrivals):
    """The port RunLink for an actor: calls of Ray carry its bytes.

    Attributes:
        outgoing: bytes for the next replies.
    """

    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self.check_lease = lease.check
        self._call = asyncio.Event()
        self.outgoing = bytearray()

    def send(self, data: bytes) -> None:
        """Keep bytes for the next reply."""
        self.outgoing += data
        self._call.set()

    def end_call(self) -> None:
        """Have the call that waits return."""
        self._call.set()

    async def wait_for_outgoing(self) -> None:
        """Wait until there are bytes to send, another call comes, or POLL_SECONDS are over."""
        self._call.set()
        self._call = call = asyncio.Event()
        if not self.outgoing:
            end = asyncio.get_running_loop().call_later(POLL_SECONDS, call.set)
            await call.wait()
            end.cancel()

    def start_beats(self) -> None:
        """Do nothing: the replies to the calls of the driver show that the process works."""


class WorkerActor:
    """A worker process. All methods run in the event loop that Ray makes for the actor.

    Arguments:
        program: what the process executes; see `WorkerTransport`.
        lease_seconds: see `Lease`.
    """

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
        """Return what this process is, and be ready for calls."""
        hello = Hello(
            pid=os.getpid(),
            host=platform.node(),
            node=import_module("ray").get_runtime_context().get_node_id(),
            python=platform.python_version(),
            code=compute_code_digest(),
        )
        program = self._load_program()
        # The lease starts last: an import can take longer than it lasts.
        self._lease = Lease(self._lease_seconds)
        self._lease.watch()
        self._link = ActorEnd(self._lease)
        self._serving = asyncio.create_task(self._serve(program(self._link)))
        self._lease.add_reply(0)
        return msgspec.msgpack.encode(hello)

    async def exchange(self, number: int, received: int, data: bytes) -> tuple[int, bytes]:
        """Take bytes for the runs; return the number of the reply and bytes of the runs.

        Waits for such bytes, but not beyond the next call or POLL_SECONDS.

        Arguments:
            number: of the call, from 1. Calls may arrive in another order.
            received: number of the last reply that the driver has; 0 is that of `hello`.
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
        """End the process; its commands end with it. Works without the daemon of the node."""
        os._exit(0)

    def _load_program(self) -> Callable[[RunLink], Coroutine[Any, Any, None]]:
        module, _, name = self._program.partition(":")
        return getattr(import_module(module), name)

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
    """Pieces with the numbers 1, 2, 3 and so on that may arrive in another order.

    Attributes:
        last: number of the last piece that has been returned.
    """

    def __init__(self) -> None:
        self.last = 0
        self._early: dict[int, bytes] = {}

    def add(self, number: int, piece: bytes) -> bytes:
        """Add a piece. Return the bytes that are in order now, b"" if an earlier one is missing."""
        self._early[number] = piece
        complete = b""
        while (following := self._early.pop(self.last + 1, None)) is not None:
            self.last += 1
            complete += following
        return complete


@cache
def compute_code_digest() -> str:
    """Return the version of mudroom and a digest of its code, and of this package."""
    digest = hashlib.sha256()
    for package in (Path(mudroom.__file__).parent, Path(__file__).parent):
        for path in sorted(package.rglob("*.py")):
            digest.update(path.relative_to(package.parent).as_posix().encode())
            digest.update(path.read_bytes())
    return f"{mudroom.__version__} ({digest.hexdigest()[:12]})"
