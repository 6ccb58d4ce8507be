"""Worker port: starts runs in this process, in other processes, or on a cluster.

Every value that crosses the port (Brief, Grant, InboxMessage, Report) can be serialised with
msgspec. A worker in another process needs these services from the session's process: appending to
the journal, reading a run's past events, approval requests, charges to the run's meter, and live
events for watchers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from ..budgets import Grant
from ..runs import Brief, InboxMessage, Reason, Report

if TYPE_CHECKING:
    from ..._platform.processes import Activity


class RunHandle(Protocol):
    """Controls one running run for its caller."""

    @property
    def run_id(self) -> str:
        """The id of the run."""
        ...

    @property
    def is_interrupted(self) -> bool:
        """True while the run, interrupted by the user, waits for the next message."""
        ...

    def send(self, message: InboxMessage) -> bool:
        """Send a message to the run, for its next request.

        The message is stored before the run reads it, though perhaps after this call has returned,
        see `wait_until_stored`. Return False, and store nothing, if the run has not begun or is
        ending.
        """
        ...

    async def wait_until_stored(self, message_id: str) -> bool:
        """Wait until a sent message is in the journal.

        Return False if the run ends before that. Raises JournalError.
        """
        ...

    def wrap_up(self, reason: Reason = Reason.CANCELLED) -> bool:
        """Stop the current work and have the run summarise it; False if it is already ending.

        Arguments:
            reason: reason for its report: the limit of a run above, or CANCELLED.
        """
        ...

    def interrupt(self) -> bool:
        """Stop the current turn or wait of a prompt; its background work continues.

        The run then waits for the user's next message without sending requests. Return False, and
        change nothing, if it is no prompt's run, has no background work, or is not working.
        """
        ...

    def cancel(self, reason: Reason = Reason.CANCELLED) -> bool:
        """Stop the run and all runs below it; False if it was already cancelled or has ended.

        Arguments:
            reason: reason for their reports: TIMEOUT if the time limit of a run above stops them.
        """
        ...

    def detach(self, work_id: str = "") -> bool:
        """Let calls return while their work continues in the background.

        A notification reports the end of the work. Return False if no such call is waiting.

        Arguments:
            work_id: a child; "" for all children the run's calls are waiting for.
        """
        ...

    def find_current_call(self) -> tuple[str, float] | None:
        """Return the tool and age in seconds of the longest running call; None if there is none."""
        ...

    def stop_command(self, work_id: str) -> bool:
        """Stop a background command of the run; False if no such command is running.

        Arguments:
            work_id: id of its call: run, turn and position.
        """
        ...

    async def wait(self) -> bool:
        """Wait for the end of the run or for `release`; return whether the run has ended.

        Cancelling the waiting task does not cancel the run.
        """
        ...

    def release(self) -> None:
        """Make `wait` return while the run continues."""
        ...

    async def report(self) -> Report:
        """Wait for the end of the run and return its report.

        While the run is interrupted, this returns a report with `is_interrupted` at once.
        Cancelling the waiting task cancels the run, and CancelledError is raised after its end.

        Raises JournalError and, for a root run, errors of adapters.
        """
        ...


class Worker(Protocol):
    """Executes runs."""

    def start(self, brief: Brief, grant: Grant) -> RunHandle:
        """Start a run, or continue one that an earlier process left unfinished."""
        ...

    def find(self, run_id: str) -> RunHandle | None:
        """Return the handle of a running run, None for any other."""
        ...


# How a session reaches processes that execute its runs. It exchanges frames of messages with them
# that only these two understand. What lies between carries bytes: a socket, the calls of a cluster.


class AnswerLimits(Struct, frozen=True):
    """How long a worker process may be silent before it is killed.

    A process that works says so twice a second, whatever its runs do. Silence means that it is
    stopped, that a tool holds the interpreter, or that it no longer reads its messages.

    Arguments:
        start: seconds until a new process sends its first byte; it imports modules of the caller.
        silence: seconds without a byte from a process that has started.
        stop: the same while a run must end, because it was cancelled or has used up its time.
            Time spent waiting for a processor is not counted: on a loaded machine, a working
            process may be silent for longer.
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
        """True if the process, shared with others, gets no more runs."""
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
        """Number of times bytes of the process have arrived."""
        ...

    def read_activity(self) -> Activity | None:
        """Return what the process does at this moment, None if that is not known."""
        ...

    def place_on(self, machine: str) -> None:
        """Have the process start on a machine, or fail to start.

        Arguments:
            machine: its host name.
        """
        ...

    def note_runs(self, count: int) -> None:
        """Note how many runs of the session the process has.

        Arguments:
            count: their number.
        """
        ...

    def drain(self) -> None:
        """Give the process no further runs, those of others included."""
        ...

    async def open(self) -> None:
        """Start the process. Raises UsageError if it cannot start; then it is closed."""
        ...

    async def read_lease(self) -> float | None:
        """Return how many seconds the process may work without a call; None without a lease."""
        ...

    def kill(self, reason: str) -> None:
        """End a process that does not answer; its connection ends then.

        Arguments:
            reason: what `loss` is then.
        """
        ...

    async def wait_until_stopped(self) -> None:
        """Wait until the process does nothing more; its connection has ended before."""
        ...

    async def close(self) -> None:
        """End the process; it ends its commands first."""
        ...


class WorkerTransport(Protocol):
    """Starts worker processes and connects to them.

    A worker process executes a program, "module:function": a coroutine that gets a `RunLink` and
    works until the link ends.
    """

    @property
    def kind(self) -> str:
        """The kind of transport, as in the option `worker`."""
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


class WorkerProcesses(Protocol):
    """Worker processes shared by several sessions of a program: `mudroom.Workers`."""

    @property
    def worker(self) -> str:
        """Where they run, in the form of the session option `worker`, such as "process:2"."""
        ...

    @property
    def pids(self) -> tuple[int, ...]:
        """Ids of the started processes, each valid on its own machine."""
        ...
