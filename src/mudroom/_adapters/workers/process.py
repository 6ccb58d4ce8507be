"""Connects to a worker process on this machine: starts the program with a socket pair."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from ..._core.ports import AnswerLimits
from ..._peers import ProgramLink
from ..._platform.processes import Activity, read_activity
from ...errors import UsageError

_EXIT_SECONDS = 1.5
"""Longest time for a process to read its last messages and exit by itself."""


class ProcessTransport:
    """The port WorkerTransport for processes on this machine.

    The command line of a worker process ends with the number of its socket.
    """

    kind = "process"
    is_far = False
    is_shared = False

    def __init__(self, command: Sequence[str], answer_limits: AnswerLimits | None = None) -> None:
        self._command = command
        self._answer_limits = answer_limits or AnswerLimits()

    def connect(self) -> ProcessConnection:
        return ProcessConnection(self._command, self._answer_limits)

    async def close(self) -> None: ...


class ProcessConnection:
    """The port WorkerConnection for a process on this machine.

    `loss` explains why the process was killed; "" if it was not.
    """

    node = ""
    is_draining = False
    other_runs = 0

    def __init__(self, command: Sequence[str], answer_limits: AnswerLimits | None = None) -> None:
        self.loss = ""
        self.answer_limits = answer_limits or AnswerLimits()
        self._command = command
        self._machine = ""
        self._link: ProgramLink | None = None

    @property
    def pid(self) -> int | None:
        return None if self._link is None else self._link.pid

    @property
    def host(self) -> str:
        return platform.node()

    @property
    def arrivals(self) -> int:
        return 0 if self._link is None else self._link.arrivals

    def read_activity(self) -> Activity | None:
        return None if self._link is None else read_activity(self._link.pid)

    def place_on(self, machine: str) -> None:
        """Have the process start here, or fail to start if this is another machine."""
        self._machine = machine

    def note_runs(self, count: int) -> None: ...  # it has no others to compare

    def drain(self) -> None: ...  # only shared processes count their users

    async def open(self) -> None:
        if self._machine not in ("", self.host):
            raise UsageError(f"worker processes of this session are on {self.host}", where="worker")
        self._link = await ProgramLink.start(*self._command)

    def send(self, data: bytes) -> None:
        if self._link is not None:
            self._link.send(data)

    async def receive(self) -> bytes:
        assert self._link is not None
        return await self._link.receive()

    async def read_lease(self) -> float | None:
        return None  # the process ends when the socket closes

    def kill(self, reason: str) -> None:
        """Kill the process at once, even if it is stopped. Its commands end with it."""
        self.loss = self.loss or reason
        if self._link is not None:
            self._link.kill()

    async def wait_until_stopped(self) -> None:
        """Wait for the process to end, and kill it if it does not."""
        await self.close()

    async def close(self) -> None:
        if self._link is not None:
            await self._link.finish(_EXIT_SECONDS)
