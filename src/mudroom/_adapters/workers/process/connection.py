"""Connection to a worker process on this machine: it starts the program and has a socket pair."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from ...._platform.child_programs import end_program
from ...._platform.processes import Activity, kill_process, read_activity
from ...._platform.time_limits import time_limit
from ....errors import UsageError
from ..remote.connection import AnswerLimits, FirstMessage, FromProcess
from .channel import Channel, start_connected

_EXIT_SECONDS = 1.5
"""Longest time in which a process reads its last messages and exits by itself."""


class ProcessTransport:
    """The port WorkerTransport for processes on this machine.

    Arguments:
        command: command line of a worker process; the number of its socket is added.
        answer_limits: how long a process may be silent.
    """

    kind = "process"
    is_shared = False

    def __init__(self, command: Sequence[str], answer_limits: AnswerLimits | None = None) -> None:
        self._command = command
        self._answer_limits = answer_limits or AnswerLimits()

    def connect(self) -> ProcessConnection:
        """Return a connection to a new worker process."""
        return ProcessConnection(self._command, self._answer_limits)

    async def close(self) -> None:
        """Do nothing: the connections share nothing."""


class ProcessConnection:
    """The port WorkerConnection for a process on this machine.

    Arguments:
        command: command line of the worker process; the number of its socket is added.
        answer_limits: how long the process may be silent.

    Attributes:
        loss: why the process was killed, "" if it was not.
    """

    node = ""
    sees_folder = True
    is_draining = False
    other_runs = 0

    def __init__(self, command: Sequence[str], answer_limits: AnswerLimits | None = None) -> None:
        self.loss = ""
        self.answer_limits = answer_limits or AnswerLimits()
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

    @property
    def arrivals(self) -> int:
        """How many times bytes of the process have arrived."""
        return 0 if self._channel is None else self._channel.arrivals

    def read_activity(self) -> Activity | None:
        """Return what the process does, None before the start and after the end."""
        return None if self._process is None else read_activity(self._process.pid)

    def place_on(self, machine: str) -> None:
        """Have the process start on this machine, or fail to start: it starts only here."""
        self._machine = machine

    def drain(self) -> None:
        """Do nothing: a shared process counts its users elsewhere."""

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

    def kill(self, reason: str) -> None:
        """End the process at once, also if it is stopped. Its commands end with it."""
        self.loss = self.loss or reason
        if self._process is not None and self._process.returncode is None:
            kill_process(self._process.pid)

    async def wait_until_stopped(self) -> None:
        """Wait for the end of the process; one that does not end is killed."""
        await self.close()

    async def close(self) -> None:
        """End the process; it ends its commands first. One that hangs is killed."""
        with suppress(TimeoutError):
            async with time_limit(_EXIT_SECONDS):
                if self._channel is not None:
                    await self._channel.close(_EXIT_SECONDS)
                if self._process is not None:
                    await self._process.wait()
        if self._process is not None:
            await end_program(self._process)
        if self._channel is not None:
            await self._channel.close(0)
