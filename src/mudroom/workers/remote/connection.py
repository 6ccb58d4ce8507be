"""What carries the messages between the session's process and a worker process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from .messages import ToSession, ToWorker, WorkerConfig
from .shared_messages import FromShared, ShareProcess, ToShared

FirstMessage: TypeAlias = WorkerConfig | ShareProcess
ToProcess: TypeAlias = WorkerConfig | ToWorker | ToShared
"""What a worker process receives."""
FromProcess: TypeAlias = ToSession | FromShared
"""What a worker process sends."""
ReceivedMessage = TypeVar("ReceivedMessage", covariant=True)


class WorkerLost(Exception):
    """The worker process ended while it executed a run, or could not execute it. It says why."""


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
