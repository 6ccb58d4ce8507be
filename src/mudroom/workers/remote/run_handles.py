"""Handles of runs in worker processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from ..._core.budgets import Grant
from ..._core.events import MessageSent
from ..._core.runs import InboxMessage, Reason, Report
from ..._engine.session_context import SessionServices
from ..local import TaskHandle
from .assigned_run import AssignedRun
from .messages import Cancel, Detach, SendMessage, StopCommand, WrapUp
from .worker_handle import WorkerHandle

OnOutcome: TypeAlias = Callable[
    ["RemoteRunHandle", AssignedRun, "Report[Any] | BaseException"], None
]


class RemoteRunHandle(TaskHandle):
    """The port RunHandle for a run in a worker process.

    Arguments:
        on_outcome: called when a process has ended the run, or was lost.

    Attributes:
        assigned: state of the run, None while it waits for a slot.
        slots: slots of its depth, of which the run has one; None while it waits for one.
        process: the process that has the run; None before one has it. A lost one stays here until
            `placing` begins.
        placing: task that gives the run to a process, or ends it; None if that is done.
        loss: why the last process of the run was lost; None if none was.
        starts: number of processes that it was to be given to.
        turns_before: turns that it had finished before the last start.
        is_ending: the end of the run is recorded here; a request to stop it comes too late.
    """

    __slots__ = (
        "_messages",
        "_on_outcome",
        "_stop_requests",
        "assigned",
        "is_ending",
        "loss",
        "placing",
        "process",
        "slots",
        "starts",
        "turns_before",
    )

    def __init__(self, grant: Grant, services: SessionServices, on_outcome: OnOutcome) -> None:
        super().__init__(grant, services)
        self._on_outcome = on_outcome
        self.outcome = asyncio.get_running_loop().create_future()
        self.placing: asyncio.Task[Report | None] | None = None
        self.process: WorkerHandle | None = None
        self.assigned: AssignedRun | None = None
        self.slots: asyncio.Semaphore | None = None
        self.loss: str | None = None
        self.starts = 0
        self.turns_before = 0
        self._messages: tuple[InboxMessage, ...] = ()
        self._stop_requests: tuple[WrapUp | Cancel, ...] = ()
        self.is_ending = False

    @property
    def is_cancelled(self) -> bool:
        """True after a request to cancel the run."""
        return any(isinstance(request, Cancel) for request in self._stop_requests)

    def bind(self, process: WorkerHandle) -> None:
        """Set the process that executes the run, and send it the earlier stop requests."""
        assert self.assigned is not None
        self.process = process
        self.assigned.on_begin = self._repeat_messages if self._messages else None
        for request in self._stop_requests:
            process.stop(request)

    def leave_process(self, outcome: Report[Any] | BaseException) -> None:
        """Handle the report of the run, its exception, or the loss of its process.

        The process does not have it any more. If it was not sent yet, `send_run` notices the loss.
        """
        if self.process is not None and self.assigned is not None:
            self.process.forget(self.assigned)
            if isinstance(outcome, Report):
                self.assigned.meter.member.has_goal = outcome.reason is Reason.GOAL
            self._on_outcome(self, self.assigned, outcome)

    def end(self, outcome: Report[Any] | BaseException) -> None:
        """Free the slot of the run, and set its report or its exception."""
        if self.slots is not None:
            self.slots.release()
        if isinstance(outcome, asyncio.CancelledError):
            self.outcome.cancel()
        elif isinstance(outcome, BaseException):
            self.outcome.set_exception(outcome)
        else:
            self.outcome.set_result(outcome)

    def unbind(self) -> None:
        """Note that the process was lost: the run waits for another one."""
        self.process = None

    def send(self, message: InboxMessage) -> bool:
        """Send a message to the run. Return False if it has not begun or is ending."""
        if self.process is None or self.assigned is None or self._stop_requests:
            return False
        if self._has_ended() or self.run_id not in self.assigned.live:
            return False
        self._messages += (message,)
        self.process.send(SendMessage(self.run_id, message))
        return True

    async def wait_until_stored(self, message_id: str) -> bool:
        """Wait until the journal has a message that was sent."""
        if self.assigned is None:
            return False
        return await self.assigned.wait_until_stored(self.run_id, message_id)

    def _repeat_messages(self) -> None:
        """Send the messages again that a lost process had not stored."""
        assert self.process is not None and self.assigned is not None
        events = self.assigned.recorded.get(self.run_id, [])
        stored = {event.message.id for event in events if isinstance(event, MessageSent)}
        for message in self._messages:
            if message.id not in stored:
                self.process.send(SendMessage(self.run_id, message))

    def wrap_up(self, reason: Reason = Reason.CANCELLED) -> bool:
        """Stop the current work and have the run summarise it. Return False if it is ending."""
        if not self._request_stop(WrapUp(self.run_id, reason)):
            return False
        self.stop_reason = reason
        if self.placing is not None and not self.starts:
            self.placing.cancel()  # it waits for a slot, and has nothing to summarise
        return True

    def cancel(self, reason: Reason = Reason.CANCELLED) -> bool:
        """Stop the run and all runs below it. Return False if that is done already."""
        if not self._request_stop(Cancel(self.run_id, reason)):
            return False
        self.stop_reason = reason
        if self.process is None and self.placing is not None:
            self.placing.cancel()
        return True

    def detach(self, work_id: str = "") -> bool:
        """Have calls of the run return whose work goes on in the background."""
        return self._request_for_work(Detach(self.run_id, work_id))

    def find_current_call(self) -> tuple[str, float] | None:
        """Return the tool and the seconds of the call that works longest."""
        return self.assigned.find_current_call(self.run_id) if self.assigned else None

    def stop_command(self, work_id: str) -> bool:
        """Stop a background command of the run."""
        return self._request_for_work(StopCommand(self.run_id, work_id))

    def _request_for_work(self, request: Detach | StopCommand) -> bool:
        if self.process is None or self._has_ended():
            return False
        self.process.send(request)
        return True

    def _has_ended(self) -> bool:
        return self.is_ending or self.outcome.done()

    def _request_stop(self, request: WrapUp | Cancel) -> bool:
        """Send a request to stop; nothing may follow a Cancel, and no request is sent twice."""
        if self._has_ended() or any(
            isinstance(earlier, Cancel | type(request)) for earlier in self._stop_requests
        ):
            return False
        self._stop_requests += (request,)
        if self.process is not None:
            self.process.stop(request)
        return True


class DescendantHandle:
    """Handle of a run whose parent is in a worker process. Only the parent gets the report."""

    def __init__(self, run_id: str, process: WorkerHandle) -> None:
        self.run_id = run_id
        self._process = process

    def send(self, message: InboxMessage) -> bool:
        """Send a message to the run."""
        return self._send(SendMessage(self.run_id, message))

    async def wait_until_stored(self, message_id: str) -> bool:
        """Wait until the journal has a message that was sent."""
        assigned = self._process.find(self.run_id)
        if assigned is None:
            return False
        return await assigned.wait_until_stored(self.run_id, message_id)

    def wrap_up(self, reason: Reason = Reason.CANCELLED) -> bool:
        """Stop the current work and have the run summarise it."""
        return self._stop(WrapUp(self.run_id, reason))

    @property
    def is_interrupted(self) -> bool:
        """False: only the run of a prompt can be interrupted."""
        return False

    def interrupt(self) -> bool:
        """Return False: only the run of a prompt can be interrupted."""
        return False

    def cancel(self, reason: Reason = Reason.CANCELLED) -> bool:
        """Stop the run and all runs below it."""
        return self._stop(Cancel(self.run_id, reason))

    def detach(self, work_id: str = "") -> bool:
        """Have calls of the run return whose work goes on in the background."""
        return self._send(Detach(self.run_id, work_id))

    def find_current_call(self) -> tuple[str, float] | None:
        """Return the tool and the seconds of the call that works longest."""
        assigned = self._process.find(self.run_id)
        return assigned.find_current_call(self.run_id) if assigned else None

    def stop_command(self, work_id: str) -> bool:
        """Stop a background command of the run."""
        return self._send(StopCommand(self.run_id, work_id))

    async def wait(self) -> bool:
        """Raise RuntimeError, as `report` does."""
        await self.report()
        return True

    def release(self) -> None:
        """Do nothing: the parent waits in the worker process."""

    async def report(self) -> Report[Any]:
        """Raise RuntimeError: the report goes to the parent run, in the worker process."""
        raise RuntimeError(f"run {self.run_id} reports to its parent in a worker process")

    def _send(self, message: msgspec.Struct) -> bool:
        if not self._is_live():
            return False
        self._process.send(message)
        return True

    def _stop(self, request: WrapUp | Cancel) -> bool:
        if not self._is_live():
            return False
        self._process.stop(request)
        return True

    def _is_live(self) -> bool:
        assigned = self._process.find(self.run_id)
        return assigned is not None and self.run_id in assigned.live
