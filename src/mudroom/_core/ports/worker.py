"""Worker port: starts runs, in this process, in other processes, or in a cluster.

All values that cross the port can be serialised with msgspec: Brief, Grant, InboxMessage and
Report. A worker in another process needs these services of the session's process: append to the
journal, past events of a run, approval requests, charges to the run's meter, and live events for
the watchers.
"""

from __future__ import annotations

from typing import Protocol

from ..budgets import Grant
from ..runs import Brief, InboxMessage, Reason, Report


class RunHandle(Protocol):
    """Handle with which a caller controls one run."""

    @property
    def run_id(self) -> str:
        """Id of the run."""
        ...

    @property
    def is_interrupted(self) -> bool:
        """True while the run waits for the next message of the user, after an interrupt."""
        ...

    def send(self, message: InboxMessage) -> bool:
        """Send a message to the run, for its next request.

        The journal stores it before the run reads it, but perhaps after this call has returned;
        see `wait_until_stored`. Returns False, and stores nothing, if the run has not begun or is
        ending.
        """
        ...

    async def wait_until_stored(self, message_id: str) -> bool:
        """Wait until the journal has a message that was sent.

        Return False if the run ends without it. Raises JournalError.
        """
        ...

    def wrap_up(self, reason: Reason = Reason.CANCELLED) -> bool:
        """Stop the current work and have the run summarise it. Return False if it is ending.

        Arguments:
            reason: that of its report: the limit of a run above, or CANCELLED.
        """
        ...

    def interrupt(self) -> bool:
        """Stop the current turn or wait of a prompt; its background work continues.

        The run waits for the next message of the user, without a request. Return False, and change
        nothing, if it is not the run of a prompt, has no background work, or does not work.
        """
        ...

    def cancel(self, reason: Reason = Reason.CANCELLED) -> bool:
        """Stop the run and all runs below it. Return False if it was cancelled or has ended.

        Arguments:
            reason: reason of their reports: TIMEOUT if the time limit of a run above stops them.
        """
        ...

    def detach(self, work_id: str = "") -> bool:
        """Have calls of the run return while their work continues in the background.

        A notification reports the end of the work. Return False if no such call waits.

        Arguments:
            work_id: a child; "" for all children that calls of the run wait for.
        """
        ...

    def find_current_call(self) -> tuple[str, float] | None:
        """Return the tool and the seconds of the call that works longest, None if none works."""
        ...

    def stop_command(self, work_id: str) -> bool:
        """Stop a background command of the run. Return False if no such command works.

        Arguments:
            work_id: the place of its call: run, turn and position.
        """
        ...

    async def wait(self) -> bool:
        """Wait for the end of the run, or for `release`; return whether the run has ended.

        The run continues if the waiting task is cancelled.
        """
        ...

    def release(self) -> None:
        """End `wait`. The run continues."""
        ...

    async def report(self) -> Report:
        """Wait for the end of the run and return its report.

        While the run is interrupted, return a report with `is_interrupted` at once.

        If the waiting task is cancelled, the run is cancelled, too; CancelledError is raised after
        its end.

        Raises JournalError, and faults of adapters in a root run.
        """
        ...


class WorkerProcesses(Protocol):
    """Worker processes that several sessions of a program share: `mudroom.Workers`."""

    @property
    def worker(self) -> str:
        """Where they are, as the option `worker` of a session has it, such as "process:2"."""
        ...

    @property
    def pids(self) -> tuple[int, ...]:
        """Ids of the processes that have started, each on its machine."""
        ...


class Worker(Protocol):
    """Executor of runs."""

    def start(self, brief: Brief, grant: Grant) -> RunHandle:
        """Start a run. It continues if an earlier process left it unfinished."""
        ...

    def find(self, run_id: str) -> RunHandle | None:
        """Return the handle of a run that has started and not ended, None for any other."""
        ...
