"""RemoteWorker: executes child runs in worker processes, root runs in this process."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from ..._core.budgets import Grant
from ..._core.events import MessageSent, RunFinished, StoredEvent
from ..._core.ports import RateLimiter, RunHandle
from ..._core.runs import Brief, InboxMessage, Reason, Report
from ..._engine.recorded_conversations import find_report
from ..._engine.session_context import SessionServices
from ...projections.past_events import PastEvents
from ..local import LocalWorker, TaskHandle
from ..past_report import charge_past_run, make_past_report
from .assigned_run import AssignedRun
from .connection import WorkerTransport
from .messages import Cancel, Detach, SendMessage, StopCommand, WorkerConfig, WrapUp
from .worker_handle import WorkerHandle, WorkerLost

MAX_STARTS = 3
"""Attempts to execute a run, each in another process; when the last one dies, the run is LOST."""
_UNKNOWN_CHANGES = "the worker processes of a child ended"


class RemoteRunHandle(TaskHandle):
    """The port RunHandle for a run in a worker process.

    Attributes:
        is_ending: the end of the run is recorded here; a request to stop it comes too late.
    """

    def __init__(self, run_id: str, services: SessionServices) -> None:
        super().__init__(run_id, services)
        self._process: WorkerHandle | None = None
        self._assigned: AssignedRun | None = None
        self._messages: list[InboxMessage] = []
        self._stop_requests: list[WrapUp | Cancel] = []
        self.is_ending = False

    @property
    def is_cancelled(self) -> bool:
        """True after a request to cancel the run."""
        return any(isinstance(request, Cancel) for request in self._stop_requests)

    def bind(self, process: WorkerHandle, assigned: AssignedRun) -> None:
        """Set the process that executes the run, and send it the earlier stop requests."""
        self._process = process
        self._assigned = assigned
        assigned.on_begin = self._repeat_messages
        for request in self._stop_requests:
            process.send(request)

    def unbind(self) -> None:
        """Note that the process was lost: the run waits for another one."""
        self._process = None

    def send(self, message: InboxMessage) -> bool:
        """Send a message to the run. Return False if it has not begun or is ending."""
        if self._process is None or self._assigned is None or self._stop_requests:
            return False
        if self._has_ended() or self.run_id not in self._assigned.live:
            return False
        self._messages.append(message)
        self._process.send(SendMessage(self.run_id, message))
        return True

    async def wait_until_stored(self, message_id: str) -> bool:
        """Wait until the journal has a message that was sent."""
        if self._assigned is None:
            return False
        return await self._assigned.wait_until_stored(self.run_id, message_id)

    def _repeat_messages(self) -> None:
        """Send the messages again that a lost process had not stored."""
        assert self._process is not None and self._assigned is not None
        events = self._assigned.recorded.get(self.run_id, [])
        stored = {event.message.id for event in events if isinstance(event, MessageSent)}
        for message in self._messages:
            if message.id not in stored:
                self._process.send(SendMessage(self.run_id, message))

    def wrap_up(self) -> bool:
        """Stop the current work and have the run summarise it. Return False if it is ending."""
        return self._request_stop(WrapUp(self.run_id))

    def cancel(self, reason: Reason = Reason.CANCELLED) -> bool:
        """Stop the run and all runs below it. Return False if that is done already."""
        if not self._request_stop(Cancel(self.run_id, reason)):
            return False
        self.stop_reason = reason
        if self._process is None and self.task is not None:
            self.task.cancel()  # no process has the run
        return True

    def detach(self, work_id: str = "") -> bool:
        """Have calls of the run return whose work goes on in the background."""
        return self._request_for_work(Detach(self.run_id, work_id))

    def find_current_call(self) -> tuple[str, float] | None:
        """Return the tool and the seconds of the call that works longest."""
        return self._assigned.find_current_call(self.run_id) if self._assigned else None

    def stop_command(self, work_id: str) -> bool:
        """Stop a background command of the run."""
        return self._request_for_work(StopCommand(self.run_id, work_id))

    def _request_for_work(self, request: Detach | StopCommand) -> bool:
        if self._process is None or self._has_ended():
            return False
        self._process.send(request)
        return True

    def _has_ended(self) -> bool:
        return self.is_ending or (self.task is not None and self.task.done())

    def _request_stop(self, request: WrapUp | Cancel) -> bool:
        """Send a request to stop; nothing may follow a Cancel, and no request is sent twice."""
        if self._has_ended() or any(
            isinstance(earlier, Cancel | type(request)) for earlier in self._stop_requests
        ):
            return False
        self._stop_requests.append(request)
        if self._process is not None:
            self._process.send(request)
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

    def wrap_up(self) -> bool:
        """Stop the current work and have the run summarise it."""
        return self._send(WrapUp(self.run_id))

    @property
    def is_interrupted(self) -> bool:
        """False: only the run of a prompt can be interrupted."""
        return False

    def interrupt(self) -> bool:
        """Return False: only the run of a prompt can be interrupted."""
        return False

    def cancel(self, reason: Reason = Reason.CANCELLED) -> bool:
        """Stop the run and all runs below it."""
        return self._send(Cancel(self.run_id, reason))

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
        assigned = self._process.find(self.run_id)
        if assigned is None or self.run_id not in assigned.live:
            return False
        self._process.send(message)
        return True


class RemoteWorker:
    """The port Worker for several worker processes.

    Children of root runs, and tasks of the session, run in worker processes; the runs below them
    stay in the process of their parent. Root runs stay in this process.

    Arguments:
        services: services of the session.
        config: facts from which a worker process builds its services.
        transport: starts the worker processes.
        processes: number of worker processes.
        get_rate_limiter: returns the rate limiter of a provider, by name.
    """

    def __init__(
        self,
        services: SessionServices,
        config: WorkerConfig,
        transport: WorkerTransport,
        processes: int,
        get_rate_limiter: Callable[[str], RateLimiter],
    ) -> None:
        self._services = services
        self._config = config
        self._transport = transport
        self._get_rate_limiter = get_rate_limiter
        self._local = LocalWorker(services, config.max_children, child_worker=self)
        self._slots: dict[int, asyncio.Semaphore] = defaultdict(
            partial(asyncio.Semaphore, config.max_children)
        )
        self._processes = [self._make_process() for _ in range(processes)]
        self._handles: dict[str, RemoteRunHandle] = {}

    @property
    def pids(self) -> tuple[int, ...]:
        """Ids of the worker processes that have started."""
        return tuple(process.pid for process in self._processes if process.pid is not None)

    def with_services(self, services: SessionServices) -> LocalWorker:
        """Return a worker of this process with other services."""
        return self._local.with_services(services)

    def find(self, run_id: str) -> RunHandle | None:
        """Return the handle of a run that has started and not ended."""
        if handle := self._handles.get(run_id) or self._local.find(run_id):
            return handle
        for process in self._processes:
            assigned = process.find(run_id)
            if assigned is not None and run_id in assigned.live:
                return DescendantHandle(run_id, process)
        return None

    def start(self, brief: Brief, grant: Grant) -> RunHandle:
        """Start a run; a child waits for a slot first."""
        past = self._services.past_events
        is_local = brief.depth == 0 or brief.is_compaction
        if is_local or find_report(past.get(brief.run_id, ())):
            return self._local.start(brief, grant)
        handle = RemoteRunHandle(brief.run_id, self._services)
        task = asyncio.create_task(self._execute(handle, brief, grant))
        handle.task = task
        self._handles[brief.run_id] = handle
        task.add_done_callback(lambda _: self._handles.pop(brief.run_id, None))
        return handle

    async def open(self) -> None:
        """Start all worker processes now. Raises UsageError if one cannot execute runs.

        Without this call a worker process starts with its first run.
        """
        openings = (process.open() for process in self._processes)
        try:
            outcomes = await asyncio.gather(*openings, return_exceptions=True)
            for outcome in outcomes:
                if outcome is not None:
                    raise outcome
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Cancel the runs that still work, wait for their end, and end all worker processes."""
        handles = list(self._handles.values())
        for handle in handles:
            handle.cancel()
        await asyncio.gather(*(handle.wait() for handle in handles))
        await self._local.close()
        await asyncio.gather(*(process.close() for process in self._processes))
        await self._transport.close()

    async def _execute(self, handle: RemoteRunHandle, brief: Brief, grant: Grant) -> Report[Any]:
        async with self._slots[brief.depth]:
            meter = self._services.meters.get(grant)
            assigned = AssignedRun(brief, meter, self._select_past_events(brief.run_id))
            try:
                return await self._execute_assigned(handle, assigned, brief, grant)
            finally:
                assigned.end()

    async def _execute_assigned(
        self, handle: RemoteRunHandle, assigned: AssignedRun, brief: Brief, grant: Grant
    ) -> Report[Any]:
        loss: str | None = None
        for _ in range(MAX_STARTS):
            process = self._choose_process()
            on_start = partial(handle.bind, process, assigned)
            try:
                return await process.run(assigned, brief, grant, on_start)
            except WorkerLost as lost:
                loss = str(lost)
                handle.unbind()
                assigned.live.clear()
                assigned.refund()
            except asyncio.CancelledError:
                if loss is None or not handle.is_cancelled:
                    raise  # it has not begun: the handle makes the report
            if handle.is_cancelled:
                handle.is_ending = True
                return await self._record_end(brief, assigned, handle.stop_reason)
        handle.is_ending = True
        error = f"could not be executed in {MAX_STARTS} worker processes"
        error = f"{error}; the last one: {loss}" if loss else error
        return await self._record_end(brief, assigned, Reason.LOST, error)

    def _select_past_events(self, run_id: str) -> dict[str, list[StoredEvent]]:
        past = self._services.past_events
        if run_id not in past:
            return {}
        return {run: list(past[run]) for run in (run_id, *past.walk_below(run_id))}

    def _choose_process(self) -> WorkerHandle:
        """Return the process with the fewest runs; a lost one is replaced first."""
        for position, process in enumerate(self._processes):
            if process.is_lost:
                self._processes[position] = self._make_process()
        return min(self._processes, key=lambda process: process.load)

    def _make_process(self) -> WorkerHandle:
        connection = self._transport.connect()
        return WorkerHandle(connection, self._config, self._services, self._get_rate_limiter)

    async def _record_end(
        self, brief: Brief, assigned: AssignedRun, reason: Reason, error: str = ""
    ) -> Report[Any]:
        """Record the end of a run that has lost its process, and return its report."""
        past = PastEvents(assigned.recorded)
        has_begun = bool(assigned.recorded.get(brief.run_id))
        report = make_past_report(self._services, past, brief.run_id, reason)
        report = replace(
            report,
            agent=brief.agent.name,
            model=brief.model,
            error=error,
            unknown_changes=report.unknown_changes or (_UNKNOWN_CHANGES if has_begun else ""),
        )
        # The charges of the lost processes were taken back; what the record has was spent.
        charge_past_run(assigned.meter, past, report)
        assigned.meter.add_turns(report.turns)
        if has_begun:
            now = self._services.clock.now()
            ended = RunFinished(at=now, run=brief.run_id, report=report)
            await self._services.journal.append(ended)
            self._services.teams.observe(ended)
        return report
