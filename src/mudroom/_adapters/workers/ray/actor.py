"""WorkerActor: a worker process on a node of a Ray cluster. Ray calls its methods."""

from __future__ import annotations

import asyncio
import importlib
import os
import platform
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import UnionType
from typing import Any, TypeAlias

import msgspec

from ...._peers import FrameDecoder, Mailbox, Outbox, Received
from ...._platform.imports import import_object
from ...._platform.own_process import collect_garbage_less_often, raise_open_file_limit
from ...._platform.time_limits import time_limit
from ..remote.connection import ToProcess
from .code_digest import compute_code_digest
from .driver_messages import Hello, HelloRequest
from .in_order import InOrder
from .lease import Lease
from .node_check import list_unloaded, list_unseen

POLL_SECONDS = 1.0
"""Seconds after which a call returns although there is nothing to send."""
MAX_DATA = 90_000
"""Bytes of one call or reply. Ray keeps larger values in its object store, this one does not."""


class ActorChannel(Mailbox[Received]):
    """The worker process's end of a connection whose bytes Ray calls carry.

    Arguments:
        received: union type of the messages that arrive here.
    """

    def __init__(self, received: UnionType, lease: Lease) -> None:
        super().__init__(FrameDecoder[Received](received).decode)
        self._lease = lease
        self._outbox = Outbox(self._keep)
        self._call = asyncio.Event()
        self.outgoing = bytearray()

    def send(self, message: msgspec.Struct) -> None:
        """Keep a message for the next reply."""
        self._outbox.add(message)

    def _keep(self, frame: bytes) -> None:
        self.outgoing += frame
        self._call.set()

    def end_call(self) -> None:
        """Have the call that waits return."""
        self._call.set()

    async def wait_for_outgoing(self) -> None:
        """Wait until there are bytes to send, another call comes, or POLL_SECONDS are over."""
        self._call.set()
        self._call = call = asyncio.Event()
        if not self.outgoing:
            with suppress(TimeoutError):
                async with time_limit(POLL_SECONDS):
                    await call.wait()

    def check_lease(self) -> None:
        """End the process if it may not work any more."""
        self._lease.check()

    def start_beats(self) -> None:
        """Do nothing: the replies to the calls of the driver show that the process works."""


ToWorkerChannel: TypeAlias = ActorChannel[ToProcess]


class WorkerActor:
    """A worker process. All methods run in the event loop that Ray makes for the actor.

    Arguments:
        program: "module:function" of the coroutine that executes runs on a channel.
        lease_seconds: see `Lease`.
    """

    def __init__(self, program: str, lease_seconds: float) -> None:
        self._program = program
        self._lease_seconds = lease_seconds
        self._channel: ToWorkerChannel | None = None
        self._lease: Lease | None = None
        self._serving: asyncio.Task[None] | None = None
        self._calls = InOrder()
        self._replies = 0
        self._failure = ""

    async def hello(self, encoded: bytes) -> bytes:
        """Return what this node is, and which files it does not see; then be ready for calls."""
        request = msgspec.msgpack.decode(encoded, type=HelloRequest)
        hello = Hello(
            pid=os.getpid(),
            host=platform.node(),
            node=importlib.import_module("ray").get_runtime_context().get_node_id(),
            python=platform.python_version(),
            code=compute_code_digest(),
            unseen=list_unseen(request.nonces),
            unloaded=list_unloaded(request.import_path, request.tools),
        )
        collect_garbage_less_often()
        raise_open_file_limit()
        program = self._load_program()
        # The lease starts last: an import can take longer than it lasts.
        self._lease = Lease(self._lease_seconds)
        self._lease.watch()
        self._channel = ToWorkerChannel(ToProcess, self._lease)
        self._serving = asyncio.create_task(self._serve(program(self._channel)))
        self._lease.add_reply(0)
        return msgspec.msgpack.encode(hello)

    async def exchange(self, number: int, received: int, data: bytes) -> tuple[int, bytes]:
        """Take bytes for the runs; return the number of the reply and bytes of the runs.

        Waits for such bytes, but not beyond the next call or POLL_SECONDS.

        Arguments:
            number: of the call, from 1. Calls may arrive in another order.
            received: number of the last reply that the driver has; 0 is that of `hello`.
        """
        assert self._lease and self._channel
        self._lease.check()
        self._lease.renew(received)
        self._channel.add(self._calls.add(number, data))
        await self._channel.wait_for_outgoing()
        if self._failure:
            raise RuntimeError(self._failure)
        reply = bytes(self._channel.outgoing[:MAX_DATA])
        del self._channel.outgoing[:MAX_DATA]
        self._replies += 1
        self._lease.add_reply(self._replies)
        return self._replies, reply

    async def stop(self) -> None:
        """End the process; its commands end with it. Works without the daemon of the node."""
        os._exit(0)

    def _load_program(self) -> Callable[[ToWorkerChannel], Coroutine[Any, Any, None]]:
        return import_object(self._program)

    async def _serve(self, program: Coroutine[Any, Any, None]) -> None:
        assert self._channel is not None
        try:
            await program
            self._failure = "the program has ended"
        except Exception as error:  # noqa: BLE001  the report of a run shows the error
            traceback.print_exc()
            self._failure = f"{type(error).__name__}: {error}"
        self._channel.end_call()
