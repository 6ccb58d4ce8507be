"""What carries the messages between the session's process and a worker process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from ...._platform.processes import Activity
from .messages import ToSession, ToWorker, WorkerConfig
from .shared_messages import FromShared, ShareProcess, ToShared

FirstMessage: TypeAlias = WorkerConfig | ShareProcess
ToProcess: TypeAlias = WorkerConfig | ToWorker | ToShared
"""What a worker process receives."""
FromProcess: TypeAlias = ToSession | FromShared
"""What a worker process sends."""
ReceivedMessage = TypeVar("ReceivedMessage", covariant=True)


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


class WorkerLost(Exception):
    """The worker process ended while it executed a run, or could not execute it. It says why.

    Arguments:
        is_suspect: false if other runs of the process were more likely the cause.
        has_hung: true if it was killed because it did not answer.
    """

    def __init__(self, reason: str, *, is_suspect: bool = True, has_hung: bool = False) -> None:
        super().__init__(reason)
        self.is_suspect = is_suspect
        self.has_hung = has_hung


class MessageChannel(Protocol[ReceivedMessage]):
    """The worker process's end of a connection."""

    def send(self, message: msgspec.Struct) -> None:
        """Send a message. Messages arrive in the order of the calls; none is sent after a close."""
        ...

    async def receive(self) -> ReceivedMessage | None:
        """Return the next message, None when the connection has ended."""
        ...

    async def receive_all(self) -> Sequence[ReceivedMessage]:
        """Return the messages that have arrived, at least one; none after the connection's end."""
        ...

    def check_lease(self) -> None:
        """End the process at once if it may not work any more."""
        ...

    def start_beats(self) -> None:
        """Show the other end from now on that this process still works."""
        ...


class WorkerConnection(Protocol):
    """A worker process, and the end of its connection that the session's process has."""

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
    def sees_folder(self) -> bool:
        """True if the process sees the folder of the session; known after `open`."""
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

    def drain(self) -> None:
        """Give the process no further runs, those of others included."""
        ...

    async def open(self, first: FirstMessage) -> None:
        """Start the worker process and send it its first message.

        Raises UsageError if it cannot execute runs.
        """
        ...

    def send(self, message: msgspec.Struct) -> None:
        """Send a message. Messages arrive in the order of the calls; none is sent after a close."""
        ...

    async def receive_all(self) -> Sequence[FromProcess]:
        """Return the messages that have arrived, at least one; none after the connection's end."""
        ...

    async def read_lease(self) -> float | None:
        """Return the seconds for which the process may work without a call; None for no lease."""
        ...

    def kill(self, reason: str) -> None:
        """End a worker process that does not answer: its connection ends then, with this loss."""
        ...

    async def wait_until_stopped(self) -> None:
        """Wait until the worker process does nothing more; its connection has ended before."""
        ...

    async def close(self) -> None:
        """End the worker process; it ends its commands first."""
        ...


class WorkerTransport(Protocol):
    """The way to start worker processes."""

    @property
    def kind(self) -> str:
        """Name of the way, as the option `worker` has it."""
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
