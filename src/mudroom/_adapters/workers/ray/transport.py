"""RayTransport: connections of a session to worker processes on the nodes of a Ray cluster."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from ...._peers import FrameDecoder, Mailbox, Outbox
from ...._platform.child_programs import end_program
from ...._platform.scratch_dirs import ScratchDir
from ...._platform.time_limits import time_limit
from ....errors import UsageError
from ..process.channel import Channel, start_connected
from ..remote.connection import FirstMessage, FromProcess
from ..remote.messages import WorkerConfig
from .actor_link import UNLOADABLE
from .code_digest import compute_code_digest
from .driver_messages import (
    ActorLost,
    ActorReady,
    AskLease,
    CloseActor,
    DriverConfig,
    DriverFailed,
    DriverReady,
    FromActor,
    FromLink,
    Hello,
    HelloRequest,
    LeaseState,
    OpenActor,
    ToActor,
    ToDriver,
    ToTransport,
)
from .lease import LEASE_SECONDS, MARGIN_SECONDS
from .node_check import NodeRequirements, check_node, show_folders

# Without -P, Python would import modules of the current folder first, which may be a stranger's.
_COMMAND = (sys.executable, "-P", "-m", "mudroom._adapters.workers.ray.driver")
_LEASE_REPLY_SECONDS = 1.0
"""Longest wait for the driver to tell the lease of an actor."""
_EXIT_SECONDS = 10.0
"""Seconds in which the driver process must end Ray."""
_FOLDER = "MUDROOM_RAY_FOLDER"
"""Variable by which the clean-up of orphans knows the processes of a cluster."""
_DRIVER_ENDED = "the process that is connected to Ray has ended"


class RayTransport:
    """The port WorkerTransport for actors of Ray. It has one driver process.

    Arguments:
        program: "module:function" of the coroutine that executes runs on a channel.
        environ: variables for the driver process; a cluster on this machine inherits them.
        requirements: what each node must have.
        lease_seconds: see `Lease`.

    Attributes:
        code: digest of the code that each node must have, too.
    """

    kind = "ray"
    is_shared = False

    def __init__(
        self,
        program: str,
        environ: Mapping[str, str],
        requirements: NodeRequirements,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._program = program
        self._environ = environ
        self._address = {**os.environ, **environ}.get("RAY_ADDRESS", "")
        self.requirements = requirements
        self.code = compute_code_digest()
        self.lease_seconds = lease_seconds
        self._scratch: ScratchDir | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._channel: Channel[ToTransport] | None = None
        self._dispatching: asyncio.Task[None] | None = None
        self._connections: dict[int, RayConnection] = {}
        self._count = 0
        self._starting = asyncio.Lock()
        self._is_closed = False

    def connect(self) -> RayConnection:
        """Return a connection to a new worker process."""
        self._count += 1
        return RayConnection(self, self._count)

    async def start(self) -> int:
        """Start the driver process and return the number of processors of the cluster.

        Returns 0 if it works already. Raises UsageError.
        """
        async with self._starting:
            if self._channel is not None:
                return 0
            if self._is_closed:
                raise UsageError("the session is closed", where="worker")
            config = self._make_config()
            process, channel = await start_connected(
                *_COMMAND,
                received=ToTransport,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env=self._list_variables(config),
            )
            try:
                processors = await _greet(channel, config)
            except BaseException:
                await end_program(process)
                raise
            self._process = process
            self._channel = channel
            self._dispatching = asyncio.create_task(self._dispatch(channel, process))
            return processors

    def _list_variables(self, config: DriverConfig) -> dict[str, str]:
        """Return the variables of the driver process."""
        # The clean-up of orphans looks for a path below the scratch directory.
        mark = {_FOLDER: f"{config.folder}/ray"} if config.folder else {}
        return {**os.environ, **self._environ, **mark}

    def _make_config(self) -> DriverConfig:
        if not self._address and self._scratch is None:
            # A short path: the names of sockets have at most 107 characters.
            self._scratch = ScratchDir("/tmp")
        return DriverConfig(
            address=self._address,
            folder=self._scratch.path if self._scratch else "",
            program=self._program,
            lease_seconds=self.lease_seconds,
        )

    async def open_actor(self, connection: RayConnection, hello: HelloRequest) -> None:
        """Have the driver create the actor of a connection. Raises UsageError."""
        await self.start()
        self._connections[connection.number] = connection
        self.send(OpenActor(connection.number, hello, connection.machine))

    def send(self, message: ToDriver) -> None:
        """Send a message to the driver process."""
        if self._channel is not None:
            self._channel.send(message)

    def forget(self, number: int) -> None:
        """Pass nothing more to a connection."""
        self._connections.pop(number, None)

    async def close(self) -> None:
        """End the driver process, and with it a cluster that it started."""
        self._is_closed = True
        try:
            if self._channel is not None:
                await self._channel.close()
            if self._dispatching is not None:
                await self._dispatching
            if self._process is not None:
                with suppress(TimeoutError):
                    async with time_limit(_EXIT_SECONDS):
                        await self._process.wait()
        finally:
            if self._process is not None:
                await end_program(self._process)
            if self._scratch is not None:
                await asyncio.to_thread(self._scratch.remove)

    async def _dispatch(
        self, channel: Channel[ToTransport], process: asyncio.subprocess.Process
    ) -> None:
        """Pass the messages of a driver to the connections, until it ends."""
        try:
            # What is not a message ends the driver: nothing after it can be read.
            with suppress(msgspec.DecodeError):
                while (message := await channel.receive()) is not None:
                    self._pass_on(message)
        finally:
            # A new driver may start while this one ends: its connections go on.
            connections = list(self._connections.values())
            self._channel = None
            try:
                await channel.close()
                if not self._is_closed:
                    await end_program(process)
            finally:
                for connection in connections:
                    connection.end(_DRIVER_ENDED)

    def _pass_on(self, message: ToTransport) -> None:
        if isinstance(message, DriverReady | DriverFailed):
            return
        if connection := self._connections.get(message.number):
            connection.handle(message)


class RayConnection:
    """The port WorkerConnection for an actor of Ray.

    Arguments:
        number: of the actor.

    Attributes:
        machine: see `place_on`.
    """

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
        self.sees_folder = True
        self._transport = transport
        self._arrived = Mailbox[FromProcess](FrameDecoder[FromProcess](FromProcess).decode)
        self._outbox = Outbox(self._write)
        self._stopped = asyncio.Event()
        self._hello: asyncio.Future[Hello] | None = None
        self._lease: asyncio.Future[float] | None = None

    def read_activity(self) -> None:
        """Return None: the lease notices an actor that does not answer."""

    def place_on(self, machine: str) -> None:
        """Have the actor start on this machine, or fail to start."""
        self.machine = machine

    def drain(self) -> None:
        """Do nothing: a shared actor counts its users elsewhere."""

    async def open(self, first: FirstMessage) -> None:
        """Start the actor and send it its first message. Raises UsageError if its node is not fit.

        If that fails or is cancelled, the actor is ended.
        """
        self._hello = asyncio.get_running_loop().create_future()
        try:
            hello = await self._start(self._hello)
            self.pid = hello.pid
            self.host = hello.host
            self.node = hello.node
            files_travel = self._transport.requirements.files_travel
            check_node(hello, self._transport.code, files_travel=files_travel)
        except BaseException as error:
            self._hello.cancel()
            if isinstance(error, UsageError):
                self.loss = self.loss or str(error)
            await self.close()
            raise
        self.sees_folder = not hello.unseen
        if isinstance(first, WorkerConfig):
            first = replace(first, has_own_files=not self.sees_folder)
        self.send(first)

    async def _start(self, answer: asyncio.Future[Hello]) -> Hello:
        requirements = self._transport.requirements
        async with show_folders(requirements.folders) as nonces:
            request = HelloRequest(nonces, requirements.import_path, requirements.tools)
            await self._transport.open_actor(self, request)
            return await answer

    def send(self, message: msgspec.Struct) -> None:
        """Send a message to the actor, together with all others of this step of the event loop."""
        if not self._arrived.has_ended:
            self._outbox.add(message)

    def _write(self, frame: bytes) -> None:
        if not self._arrived.has_ended:
            self._transport.send(ToActor(self.number, frame))

    async def receive_all(self) -> list[FromProcess]:
        """Return the messages that have arrived; none when the actor is lost or closed."""
        return await self._arrived.receive_all()

    async def read_lease(self) -> float | None:
        """Return the seconds for which the actor may work without a call; None if not known."""
        if self._lease is None or self._lease.done():
            self._lease = asyncio.get_running_loop().create_future()
            self._transport.send(AskLease(self.number))
        done, _ = await asyncio.wait((self._lease,), timeout=_LEASE_REPLY_SECONDS)
        return self._lease.result() if done else None

    def kill(self, reason: str) -> None:
        """Do nothing: the lease ends an actor that does not answer."""

    async def wait_until_stopped(self) -> None:
        """Wait until the actor has ended, or its lease is over.

        If it works, because a message of it could not be used, it is ended.
        """
        if not self._arrived.has_ended:
            self._transport.send(CloseActor(self.number))
            self._transport.forget(self.number)
            self.end(self.loss)
        await self._stopped.wait()

    async def close(self) -> None:
        """End the actor; its commands end with it."""
        self._transport.send(CloseActor(self.number))
        self._transport.forget(self.number)
        self._end()
        self._stopped.set()

    def handle(self, message: FromLink) -> None:
        """Handle a message of the driver."""
        if isinstance(message, FromActor):
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
        """Handle the end of the driver: the actor has no lease any more, but may not know it."""
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


async def _greet(channel: Channel[ToTransport], config: DriverConfig) -> int:
    """Send a driver its config and return the processors of its cluster. Raises UsageError."""
    try:
        channel.send(config)
        message = await channel.receive()
        if isinstance(message, DriverReady):
            return message.processors
        failed = message if isinstance(message, DriverFailed) else DriverFailed(_DRIVER_ENDED, "")
        raise UsageError(failed.message, where="worker", remedy=failed.remedy)
    except BaseException:
        await channel.close()
        raise
