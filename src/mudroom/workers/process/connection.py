"""Connection to a worker process on this machine: it starts the program and has a socket pair."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from ..._platform.programs import end_program
from ...errors import UsageError
from ..remote.connection import FirstMessage, FromProcess
from .channel import Channel, start_connected

_EXIT_SECONDS = 2.0


class ProcessTransport:
    """The port WorkerTransport for processes on this machine.

    Arguments:
        command: command line of a worker process; the number of its socket is added.
    """

    kind = "process"
    is_shared = False

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command

    def connect(self) -> ProcessConnection:
        """Return a connection to a new worker process."""
        return ProcessConnection(self._command)

    async def close(self) -> None:
        """Do nothing: the connections share nothing."""


class ProcessConnection:
    """The port WorkerConnection for a process on this machine.

    Arguments:
        command: command line of the worker process; the number of its socket is added.
    """

    loss = ""
    node = ""
    sees_folder = True
    is_draining = False
    other_runs = 0

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._machine = ""
        self._channel: Channel[FromProcess] | None = None
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """Process id, None before the start."""
        return None if self._process is None else self._process.pid

    @property
    def host(self) -> str:
        """Name of this machine."""
        return platform.node()

    def place_on(self, machine: str) -> None:
        """Have the process start on this machine, or fail to start: it starts only here."""
        self._machine = machine

    def drain(self) -> None:
        """Do nothing: whoever shares the process counts who uses it."""

    async def open(self, first: FirstMessage) -> None:
        """Start the process and send it its first message. Raises UsageError on another machine."""
        if self._machine not in ("", self.host):
            raise UsageError(f"worker processes of this session are on {self.host}", where="worker")
        self._process, self._channel = await start_connected(*self._command, received=FromProcess)
        self._channel.send(first)

    def send(self, message: msgspec.Struct) -> None:
        """Send a message to the process, if it has started."""
        if self._channel is not None:
            self._channel.send(message)

    async def receive_all(self) -> list[FromProcess]:
        """Return the messages that have arrived; none when the process has closed its socket."""
        assert self._channel is not None
        return await self._channel.receive_all()

    async def read_lease(self) -> float | None:
        """Return None: the process ends when the socket is closed."""
        return None

    async def wait_until_stopped(self) -> None:
        """Wait for the end of the process; one that does not end is killed."""
        await self.close()

    async def close(self) -> None:
        """End the process; it ends its commands first."""
        if self._channel is not None:
            await self._channel.close()
        if self._process is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_EXIT_SECONDS):
                    await self._process.wait()
            await end_program(self._process)
