"""RayTransport: connections of a session to worker processes on the nodes of a Ray cluster."""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from ..._platform.private_files import make_private_folder, write_private_file
from ..._platform.programs import end_program
from ..._platform.scratch_dirs import ScratchDir
from ...errors import UsageError
from ..process.channel import Channel, start_connected
from ..remote.frames import FrameDecoder, encode_frame
from ..remote.messages import ToSession, WorkerConfig
from .code_digest import compute_code_digest
from .driver_messages import (
    ActorLost,
    ActorReady,
    ActorStopped,
    CloseActor,
    DriverConfig,
    DriverFailed,
    DriverReady,
    FromActor,
    Hello,
    HelloRequest,
    OpenActor,
    ToActor,
    ToTransport,
)
from .lease import LEASE_SECONDS, MARGIN_SECONDS

_COMMAND = (sys.executable, "-m", "mudroom.workers.ray.driver")
_EXIT_SECONDS = 10.0
"""Seconds in which the driver process must end Ray."""
_FOLDER = "MUDROOM_RAY_FOLDER"
"""Variable by which the clean-up of orphans knows the processes of a cluster."""
_DRIVER_ENDED = "the process that is connected to Ray has ended"
_UNREADABLE = "it sent bytes that are not a message"


class RayTransport:
    """The port WorkerTransport for actors of Ray. It has one driver process.

    Arguments:
        program: "module:function" of the coroutine that executes runs on a channel.
        environ: variables for the driver process; a cluster on this machine inherits them.
        folders: that each node must see; a file in each of them proves it.
        lease_seconds: see `Lease`.
    """

    def __init__(
        self,
        program: str,
        environ: Mapping[str, str],
        folders: Sequence[str],
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._program = program
        self._environ = environ
        self._address = {**os.environ, **environ}.get("RAY_ADDRESS", "")
        self._folders = folders
        self._code = compute_code_digest()
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
        return RayConnection(self, self._count, self._folders, self._code)

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
        self.send(OpenActor(connection.number, hello))

    def send(self, message: OpenActor | ToActor | CloseActor) -> None:
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
                    async with asyncio.timeout(_EXIT_SECONDS):
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
        connection = self._connections.get(message.number)
        if connection is None:
            return
        try:
            connection.handle(message)
        except msgspec.DecodeError:
            self.send(CloseActor(message.number))
            self.forget(message.number)
            connection.end(_UNREADABLE)


class RayConnection:
    """The port WorkerConnection for an actor of Ray.

    Arguments:
        number: of the actor. folders: see RayTransport. code: see `compute_code_digest`.
    """

    def __init__(
        self, transport: RayTransport, number: int, folders: Sequence[str], code: str
    ) -> None:
        self.number = number
        self.pid: int | None = None
        self.loss = ""
        self._transport = transport
        self._folders = folders
        self._code = code
        self._decoder = FrameDecoder[ToSession](ToSession)
        self._messages: deque[ToSession] = deque()
        self._arrival = asyncio.Event()
        self._has_ended = False
        self._stopped = asyncio.Event()
        self._hello: asyncio.Future[Hello] | None = None

    async def open(self, config: WorkerConfig) -> None:
        """Start the actor and send it its config. Raises UsageError if its node is not fit.

        If that fails or is cancelled, the actor is ended.
        """
        self._hello = asyncio.get_running_loop().create_future()
        try:
            hello = await self._start(self._hello)
            self.pid = hello.pid
            _check_node(hello, self._code)
        except BaseException as error:
            self._hello.cancel()
            if isinstance(error, UsageError):
                self.loss = self.loss or str(error)
            await self.close()
            raise
        self.send(config)

    async def _start(self, answer: asyncio.Future[Hello]) -> Hello:
        nonces = await asyncio.to_thread(_write_nonces, self._folders)
        try:
            await self._transport.open_actor(self, HelloRequest(nonces))
            return await answer
        finally:
            await asyncio.to_thread(_remove_files, nonces)

    def send(self, message: msgspec.Struct) -> None:
        """Send a message to the actor."""
        if not self._has_ended:
            self._transport.send(ToActor(self.number, encode_frame(message)))

    async def receive(self) -> ToSession | None:
        """Return the next message, None when the actor is lost or closed."""
        while not self._messages:
            if self._has_ended:
                return None
            self._arrival.clear()
            await self._arrival.wait()
        return self._messages.popleft()

    async def wait_until_stopped(self) -> None:
        """Wait until the actor has ended, or its lease is over."""
        await self._stopped.wait()

    async def close(self) -> None:
        """End the actor; its commands end with it."""
        self._transport.send(CloseActor(self.number))
        self._transport.forget(self.number)
        self._end()
        self._stopped.set()

    def handle(self, message: ActorReady | FromActor | ActorLost | ActorStopped) -> None:
        """Handle a message of the driver."""
        if isinstance(message, FromActor):
            self._messages.extend(self._decoder.decode(message.data))
            if self._messages:
                self._arrival.set()
        elif isinstance(message, ActorReady):
            if self._hello and not self._hello.done():
                self._hello.set_result(message.hello)
        elif isinstance(message, ActorLost):
            self.loss = message.reason
            self._end()
        else:
            self._transport.forget(self.number)
            self._stopped.set()

    def end(self, reason: str) -> None:
        """Handle the end of the driver: the actor has no lease any more, but may not know it."""
        if not self._has_ended:
            self.loss = reason
            self._end()
        delay = self._transport.lease_seconds + MARGIN_SECONDS
        asyncio.get_running_loop().call_later(delay, self._stopped.set)

    def _end(self) -> None:
        self._has_ended = True
        self._arrival.set()
        if self._hello and not self._hello.done():
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


def _check_node(hello: Hello, code: str) -> None:
    """Raise UsageError if a node has other versions, or does not see the files."""
    python = platform.python_version()
    if hello.code != code or _get_minor(hello.python) != _get_minor(python):
        raise UsageError(
            f"the node {hello.host} has mudroom {hello.code} and Python {hello.python}; here are "
            f"{code} and Python {python}",
            where="worker",
            remedy="Install the same version of mudroom and Python on all nodes.",
        )
    if hello.unseen:
        folders = ", ".join(os.path.dirname(path) for path in hello.unseen)
        raise UsageError(
            f"the node {hello.host} does not see {folders} of this machine",
            where="worker",
            remedy='Mount it at the same path on all nodes, or use worker="process".',
        )


def _get_minor(version: str) -> str:
    """Return the version without its last number."""
    return version.rpartition(".")[0]


def _write_nonces(folders: Sequence[str]) -> dict[str, str]:
    """Write a file into each folder and return their texts by path. Raises UsageError."""
    nonces: dict[str, str] = {}
    try:
        for folder in folders:
            make_private_folder(Path(folder))
            nonce = secrets.token_hex(16)
            path = Path(folder, f".mudroom-check-{nonce[:8]}")
            write_private_file(path, nonce.encode())
            nonces[str(path)] = nonce
    except OSError as error:
        _remove_files(nonces)
        raise UsageError(
            f"cannot write the file that shows whether the nodes see a folder: {error}",
            where="worker",
            remedy='Make the folder writable, or use worker="process".',
        ) from error
    return nonces


def _remove_files(paths: Mapping[str, str]) -> None:
    for path in paths:
        with suppress(OSError):
            os.remove(path)
