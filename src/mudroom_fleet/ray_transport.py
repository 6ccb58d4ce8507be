"""RayTransport: a session's connections to worker processes on the nodes of a Ray cluster."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from mudroom.errors import UsageError
from mudroom.ports import Arrivals, MessageStream, ProgramLink, ScratchDir

from .actor import LEASE_SECONDS, MARGIN_SECONDS, compute_code_digest
from .actor_link import UNLOADABLE
from .messages import (
    ActorLost,
    ActorReady,
    AskLease,
    ClosePart,
    FromLink,
    Hello,
    LeaseState,
    OpenPart,
    PartBytes,
    RayConfig,
    RayFailed,
    RayReady,
    ToRay,
    ToTransport,
)

# Without -P, Python would first import modules from the current folder, possibly a stranger's.
_COMMAND = (sys.executable, "-P", "-m", "mudroom_fleet.ray_process")
_LEASE_REPLY_SECONDS = 1.0  # longest wait for the Ray process to report an actor's lease
_EXIT_SECONDS = 10.0  # within which the Ray process must end Ray
_FOLDER = "MUDROOM_RAY_FOLDER"
"""Variable that lets the clean-up of orphans recognise a cluster's processes."""
_RAY_ENDED = "the process that is connected to Ray has ended"


class RayTransport:
    """The port WorkerTransport for Ray actors. It has one Ray process.

    Arguments:
        program: what a worker process executes; see `WorkerTransport`.
        environ: variables for the Ray process; a cluster on this machine inherits them.
    """

    kind = "ray"
    is_far = True
    is_shared = False

    def __init__(
        self,
        program: str,
        environ: Mapping[str, str],
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._program = program
        self._environ = environ
        self._address = {**os.environ, **environ}.get("RAY_ADDRESS", "")
        self.code = compute_code_digest()
        self.lease_seconds = lease_seconds
        self._scratch: ScratchDir | None = None
        self._ray_process: ProgramLink | None = None
        self._stream: MessageStream[ToTransport] | None = None
        self._dispatching: asyncio.Task[None] | None = None
        self._connections: dict[int, RayConnection] = {}
        self._count = 0
        self._starting = asyncio.Lock()
        self._is_closed = False

    def connect(self) -> RayConnection:
        self._count += 1
        return RayConnection(self, self._count)

    async def start(self) -> int:
        """Start the Ray process; return the cluster's processors, 0 if it already runs."""
        async with self._starting:
            if self._stream is not None:
                return 0
            if self._is_closed:
                raise UsageError("the session is closed", where="worker")
            config = self._make_config()
            process = await ProgramLink.start(
                *_COMMAND,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env=self._list_variables(config),
            )
            stream = MessageStream[ToTransport](process, ToTransport)
            try:
                processors = await _greet(stream, config)
            except BaseException:
                await process.finish(0)
                raise
            self._ray_process = process
            self._stream = stream
            self._dispatching = asyncio.create_task(self._dispatch(process, stream))
            return processors

    def _list_variables(self, config: RayConfig) -> dict[str, str]:
        # The clean-up of orphans looks for a path below the scratch directory.
        mark = {_FOLDER: f"{config.folder}/ray"} if config.folder else {}
        return {**os.environ, **self._environ, **mark}

    def _make_config(self) -> RayConfig:
        if not self._address and self._scratch is None:
            # A short path: the names of sockets have at most 107 characters.
            self._scratch = ScratchDir("/tmp")
        return RayConfig(
            address=self._address,
            folder=self._scratch.path if self._scratch else "",
            program=self._program,
            lease_seconds=self.lease_seconds,
        )

    async def open_actor(self, connection: RayConnection) -> None:
        await self.start()
        self._connections[connection.number] = connection
        self.send(OpenPart(connection.number, connection.machine))

    def send(self, message: ToRay) -> None:
        if self._stream is not None:
            self._stream.send(message)

    def forget(self, number: int) -> None:
        self._connections.pop(number, None)

    async def close(self) -> None:
        """End the Ray process, and with it a cluster it started."""
        self._is_closed = True
        try:
            if self._stream is not None:
                self._stream.flush()
            if self._ray_process is not None:
                await self._ray_process.finish(_EXIT_SECONDS)
            if self._dispatching is not None:
                await self._dispatching
        finally:
            if self._scratch is not None:
                await asyncio.to_thread(self._scratch.remove)

    async def _dispatch(self, process: ProgramLink, stream: MessageStream[ToTransport]) -> None:
        try:
            # Bytes that are not a message end the Ray process: nothing after them can be read.
            with suppress(msgspec.DecodeError):
                while (message := await stream.receive()) is not None:
                    self._pass_on(message)
        finally:
            # A new Ray process may start while this one ends; its connections continue.
            connections = list(self._connections.values())
            self._stream = None
            try:
                if not self._is_closed:
                    await process.finish(0)
            finally:
                for connection in connections:
                    connection.end(_RAY_ENDED)

    def _pass_on(self, message: ToTransport) -> None:
        if isinstance(message, RayReady | RayFailed):
            return
        if connection := self._connections.get(message.number):
            connection.handle(message)


class RayConnection:
    """The port WorkerConnection for a Ray actor."""

    answer_limits = None
    arrivals = 0
    is_draining = False
    other_runs = 0

    def __init__(self, transport: RayTransport, number: int) -> None:
        self.number = number
        self.pid: int | None = None
        self.host = ""
        self.node = ""
        self.loss = ""
        self.machine = ""
        self._transport = transport
        self._arrived = Arrivals()
        self._stopped = asyncio.Event()
        self._hello: asyncio.Future[Hello] | None = None
        self._lease: asyncio.Future[float] | None = None

    def read_activity(self) -> None:
        """Return None: the lease takes care of an actor that does not answer."""

    def place_on(self, machine: str) -> None:
        """Have the actor start on this machine, or fail to start."""
        self.machine = machine

    def note_runs(self, count: int) -> None:
        """Do nothing: the process has no other runs to compare them with."""

    def drain(self) -> None:
        """Do nothing: the users of a shared actor are counted elsewhere."""

    async def open(self) -> None:
        """Start the actor; end it if that fails, is cancelled, or the node's versions differ."""
        self._hello = asyncio.get_running_loop().create_future()
        try:
            await self._transport.open_actor(self)
            hello = await self._hello
            self.pid = hello.pid
            self.host = hello.host
            self.node = hello.node
            check_versions(hello, self._transport.code)
        except BaseException as error:
            self._hello.cancel()
            if isinstance(error, UsageError):
                self.loss = self.loss or str(error)
            await self.close()
            raise

    def send(self, data: bytes) -> None:
        if not self._arrived.has_ended:
            self._transport.send(PartBytes(self.number, data))

    async def receive(self) -> bytes:
        return await self._arrived.receive()

    async def read_lease(self) -> float | None:
        """Read how many seconds the actor may work without a call; None if unknown."""
        if self._lease is None or self._lease.done():
            self._lease = asyncio.get_running_loop().create_future()
            self._transport.send(AskLease(self.number))
        done, _ = await asyncio.wait((self._lease,), timeout=_LEASE_REPLY_SECONDS)
        return self._lease.result() if done else None

    def kill(self, reason: str) -> None:
        """Do nothing: the lease ends an actor that does not answer."""

    async def wait_until_stopped(self) -> None:
        """Wait until the actor or its lease has ended.

        If it still works, because bytes from it were unusable, it is ended.
        """
        if not self._arrived.has_ended:
            self._transport.send(ClosePart(self.number))
            self._transport.forget(self.number)
            self.end(self.loss)
        await self._stopped.wait()

    async def close(self) -> None:
        """End the actor and its commands."""
        self._transport.send(ClosePart(self.number))
        self._transport.forget(self.number)
        self._end()
        self._stopped.set()

    def handle(self, message: FromLink) -> None:
        if isinstance(message, PartBytes):
            self._arrived.add(message.data)
        elif isinstance(message, ActorReady):
            if self._hello and not self._hello.done():
                self._hello.set_result(message.hello)
        elif isinstance(message, LeaseState):
            if self._lease and not self._lease.done():
                self._lease.set_result(message.seconds)
        elif isinstance(message, ActorLost):
            self.loss = message.reason
            self._end()
        else:
            self._transport.forget(self.number)
            self._stopped.set()

    def end(self, reason: str) -> None:
        # The Ray process has ended, so nothing renews the actor's lease.
        if not self._arrived.has_ended:
            self.loss = reason
            self._end()
        delay = self._transport.lease_seconds + MARGIN_SECONDS
        asyncio.get_running_loop().call_later(delay, self._stopped.set)

    def _end(self) -> None:
        self._arrived.end()
        if self._hello and not self._hello.done():
            remedy = "Look for the cause with `ray status`, then start the session again."
            if UNLOADABLE in self.loss:
                remedy = "All nodes need the same version of mudroom, and its extra `ray`."
            self._hello.set_exception(
                UsageError(f"no worker process: {self.loss}", where="worker", remedy=remedy)
            )


def check_versions(hello: Hello, code: str) -> None:
    python = platform.python_version()
    if hello.code != code or _get_minor(hello.python) != _get_minor(python):
        raise UsageError(
            f"the node {hello.host} has mudroom {hello.code} and Python {hello.python}; here are "
            f"{code} and Python {python}",
            where="worker",
            remedy="Install the same version of mudroom and Python on all nodes.",
        )


def _get_minor(version: str) -> str:
    return version.rpartition(".")[0]


async def _greet(stream: MessageStream[ToTransport], config: RayConfig) -> int:
    stream.send(config)
    message = await stream.receive()
    if isinstance(message, RayReady):
        return message.processors
    failed = message if isinstance(message, RayFailed) else RayFailed(_RAY_ENDED, "")
    raise UsageError(failed.message, where="worker", remedy=failed.remedy)
