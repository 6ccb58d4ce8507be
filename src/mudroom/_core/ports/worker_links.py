"""Ports between a session and processes that execute its runs: how they start and are reached.

The session's process and a worker process exchange frames of messages that only they understand.
What lies between them carries bytes: a socket on this machine, or the calls of a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..._platform.processes import Activity


@dataclass(frozen=True)
class AnswerLimits:
    """How long a worker process may be silent before it is killed.

    A process that works says so twice a second, whatever its runs do. Silence means that it is
    stopped, that a tool holds the interpreter, or that it no longer reads its messages.

    Arguments:
        start: seconds until a new process sends its first byte; it imports modules of the caller.
        silence: seconds without a byte from a process that has started.
        stop: the same while a run must end, because it was cancelled or has used up its time.
            Time in which the process waits for a processor is not counted: on a loaded machine a
            process that works may be silent for longer.
    """

    start: float = 60.0
    silence: float = 8.0
    stop: float = 1.25


class ByteLink(Protocol):
    """One end of a connection between two programs."""

    def send(self, data: bytes) -> None:
        """Send bytes. They arrive in the order of the calls; none are sent after a close."""
        ...

    async def receive(self) -> bytes:
        """Return the bytes that have arrived, at least one; none after the connection's end."""
        ...


class RunLink(ByteLink, Protocol):
    """A worker process's end of the connection to the session's process."""

    def check_lease(self) -> None:
        """End the process at once if it may not work any more."""
        ...

    def start_beats(self) -> None:
        """Show the other end from now on that this process still works."""
        ...


class WorkerConnection(ByteLink, Protocol):
    """A worker process, and the session's end of the connection to it."""

    @property
    def pid(self) -> int | None:
        """Process id on its machine, None before the start."""
        ...

    @property
    def host(self) -> str:
        """Name of its machine, "" before the start."""
        ...

    @property
    def node(self) -> str:
        """Id of its node in a cluster, "" if there is none."""
        ...

    @property
    def loss(self) -> str:
        """Why the connection has ended, in words for the report of a run; "" if not known."""
        ...

    @property
    def is_draining(self) -> bool:
        """True if the process, which others use, too, gets no further runs."""
        ...

    @property
    def other_runs(self) -> int:
        """Number of runs of others in the process."""
        ...

    @property
    def answer_limits(self) -> AnswerLimits | None:
        """How long the process may be silent; None if the connection itself notices silence."""
        ...

    @property
    def arrivals(self) -> int:
        """How many times bytes of the process have arrived."""
        ...

    def read_activity(self) -> Activity | None:
        """Return what the process does at this moment, None if that is not known."""
        ...

    def place_on(self, machine: str) -> None:
        """Have the process start on this machine, or fail to start."""
        ...

    def note_runs(self, count: int) -> None:
        """Note how many runs of the session the process has."""
        ...

    def drain(self) -> None:
        """Give the process no further runs, those of others included."""
        ...

    async def open(self) -> None:
        """Start the process. Raises UsageError if it cannot start; then it is closed."""
        ...

    async def read_lease(self) -> float | None:
        """Return the seconds for which the process may work without a call; None for no lease."""
        ...

    def kill(self, reason: str) -> None:
        """End a process that does not answer: its connection ends then, with this loss."""
        ...

    async def wait_until_stopped(self) -> None:
        """Wait until the process does nothing more; its connection has ended before."""
        ...

    async def close(self) -> None:
        """End the process; it ends its commands first."""
        ...


class WorkerTransport(Protocol):
    """The way to start worker processes.

    A worker process executes a program, "module:function": a coroutine that gets a `RunLink` and
    works until the link ends.
    """

    @property
    def kind(self) -> str:
        """Name of the way, as the option `worker` has it."""
        ...

    @property
    def is_far(self) -> bool:
        """True if processes may be on other machines.

        Secrets are not sent there, and the session finds out what a process sees of its files.
        """
        ...

    @property
    def is_shared(self) -> bool:
        """True if other sessions use the processes: their runs may be the cause of a loss."""
        ...

    def connect(self) -> WorkerConnection:
        """Return a connection to a new worker process, not started."""
        ...

    async def close(self) -> None:
        """Close what the connections share; all of them are closed before."""
        ...
