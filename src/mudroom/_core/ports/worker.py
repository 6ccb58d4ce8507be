"""Worker port: starts runs in this process, in other processes, or on a cluster.

Every value that crosses the port (Brief, Grant, InboxMessage, Report) can be serialised with
msgspec. A worker in another process needs these services from the session's process: appending to
the journal, reading a run's past events, approval requests, charges to the run's meter, and live
events for watchers.
"""

from __future__ import annotations

from typing import Protocol

from ..budgets import Grant
from ..runs import Brief, InboxMessage, Reason, Report


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


class Worker(Protocol):
    """Executes runs."""

    def start(self, brief: Brief, grant: Grant) -> RunHandle:
        """Start a run, or continue one that an earlier process left unfinished."""
        ...

    def find(self, run_id: str) -> RunHandle | None:
        """Return the handle of a running run, None for any other."""
        ...
