"""RemoteWorker: executes child runs in worker processes, and root runs in this process."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from ...._core.budgets import Grant
from ...._core.events import MessageSent, StoredEvent
from ...._core.ports import RateLimiter, RunHandle, WorkerTransport
from ...._core.runs import Brief, InboxMessage, Reason, Report
from ...._engine.recorded_conversations import PastEvents, find_report
from ...._engine.session_context import SessionServices
from ..local import LocalWorker, TaskHandle
from ..past_runs import WORKERS_ENDED, charge_past_run, make_past_report, record_past_end
from .assigned_run import AssignedRun, WorkerLost
from .fleet_control import FleetControl
from .messages import Cancel, Detach, SendMessage, StopCommand, WorkerConfig, WrapUp
from .pool import WorkerPool
from .tree_transfer import NEEDS_FOLDER, FilesNotReadyError, TravellingFiles, TreeTransfers
from .worker_handle import WorkerHandle

MAX_STARTS = 3
"""Attempts to execute a run, each in another process; if the last one dies, the run is LOST."""


class RemoteWorker:
    """The port Worker for several worker processes.

    Children of root runs and the session's tasks run in worker processes; runs below them stay in
    their parent's process. Root runs stay in this process. `is_hidden` tells, by absolute path,
    which files are not sent to other machines.
    """

    def __init__(
        self,
        services: SessionServices,
        config: WorkerConfig,
        transport: WorkerTransport,
        processes: int,
        get_rate_limiter: Callable[[str], RateLimiter],
        is_hidden: Callable[[str], bool] | None = None,
        *,
        can_send_files: bool = True,
    ) -> None:
        self._services = services
        self._config = config
        self._transport = transport
        self._get_rate_limiter = get_rate_limiter
        self._local = LocalWorker(services, config.max_children, child_worker=self)
        self._slots: dict[int, asyncio.Semaphore] = defaultdict(
            partial(asyncio.Semaphore, config.max_children)
        )
        self._transfers = TreeTransfers(services, config.isolated_bytes)
        self._files = TravellingFiles(
            services, config.server_agents, self._transfers, is_hidden, can_send=can_send_files
        )
        self._pool = WorkerPool(self._make_process, processes)
        self._handles: dict[str, RemoteRunHandle] = {}
        self._on_outcome = self._handle_outcome  # one bound method for thousands of runs
        services.watchers.on_change = self._pool.tell_watched
        self._control = FleetControl(
            config.home, config.session, transport.kind, self._pool, self._count_waiting
        )

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(process.pid for process in self._pool.processes if process.pid is not None)

    def with_services(self, services: SessionServices) -> LocalWorker:
        return self._local.with_services(services)

    def find(self, run_id: str) -> RunHandle | None:
        if handle := self._handles.get(run_id) or self._local.find(run_id):
            return handle
        for process in self._pool.processes:
            assigned = process.find(run_id)
            if assigned is not None and run_id in assigned.live:
                return DescendantHandle(run_id, process)
        return None

    def start(self, brief: Brief, grant: Grant) -> RunHandle:
        past = self._services.past_events
        is_local = brief.depth == 0 or brief.is_compaction
        if is_local or find_report(past.get(brief.run_id, ())):
            return self._local.start(brief, grant)
        handle = RemoteRunHandle(grant, self._services, self._on_outcome)
        self._handles[brief.run_id] = handle
        self._place(handle, self._begin(handle, brief, grant))
        return handle

    async def open(self) -> None:
        """Start all worker processes now rather than with their first runs. Raises UsageError."""
        try:
            await self._pool.open()
            self._control.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Cancel the remaining runs, wait for them, and end all worker processes."""
        handles = list(self._handles.values())
        for handle in handles:
            handle.cancel()
        await asyncio.gather(*(handle.wait() for handle in handles))
        await self._local.close()
        await self._control.close()
        await self._pool.close()
        await self._transport.close()
        await self._files.transfers.close()

    def _place(
        self, handle: RemoteRunHandle, work: Coroutine[Any, Any, Report[Any] | None]
    ) -> None:
        """Start a task to give a run to a process.

        The task ends once a process has the run: a session may have thousands of runs at once.
        """
        handle.placing = asyncio.create_task(work)
        handle.placing.add_done_callback(partial(self._handle_placed, handle))

    def _handle_placed(
        self, handle: RemoteRunHandle, placing: asyncio.Task[Report[Any] | None]
    ) -> None:
        if handle.placing is placing:  # otherwise the process was lost meanwhile
            handle.placing = None
        if placing.cancelled():
            self._end_run(handle, asyncio.CancelledError())
        elif ended := placing.exception() or placing.result():
            self._end_run(handle, ended)

    async def _begin(
        self, handle: RemoteRunHandle, brief: Brief, grant: Grant
    ) -> Report[Any] | None:
        self._control.start()
        meter = self._services.meters.get(grant)
        slots = self._slots[brief.depth]
        await slots.acquire()
        handle.slots = slots
        past = self._select_past_events(brief.run_id)
        handle.assigned = AssignedRun(
            brief, meter, past, handle.leave_process, self._services.clock.now
        )
        return await self._give(handle, handle.assigned)

    async def _give(self, handle: RemoteRunHandle, assigned: AssignedRun) -> Report[Any] | None:
        """Give a run to a process. Return its report if no process gets it."""
        while handle.starts < MAX_STARTS:
            handle.starts += 1
            handle.turns_before = assigned.count_turns()
            try:
                process = await self._choose_process(assigned)
                await process.send_run(assigned, handle.grant)
                handle.bind(process)
                return None
            except FilesNotReadyError as error:
                return await self._record_end(handle, assigned, error.reason, str(error))
            except WorkerLost as lost:
                if report := await self._handle_loss(handle, assigned, lost):
                    return report
            except asyncio.CancelledError:
                if handle.loss is None or not handle.is_cancelled:
                    raise  # not begun or continued: the handle makes the report
                return await self._record_end(handle, assigned, handle.stop_reason)
        error = f"could not be executed in {MAX_STARTS} worker processes"
        error = f"{error}; the last one: {handle.loss}" if handle.loss else error
        return await self._record_end(handle, assigned, Reason.LOST, error)

    def _handle_outcome(
        self, handle: RemoteRunHandle, assigned: AssignedRun, outcome: Report[Any] | BaseException
    ) -> None:
        if isinstance(outcome, WorkerLost):
            self._place(handle, self._give_again(handle, assigned, outcome))
        else:
            self._end_run(handle, outcome)

    async def _give_again(
        self, handle: RemoteRunHandle, assigned: AssignedRun, lost: WorkerLost
    ) -> Report[Any] | None:
        return await self._handle_loss(handle, assigned, lost) or await self._give(handle, assigned)

    def _end_run(self, handle: RemoteRunHandle, outcome: Report[Any] | BaseException) -> None:
        self._handles.pop(handle.run_id, None)
        try:
            if handle.assigned is not None:
                handle.assigned.end()
        finally:
            handle.end(outcome)

    async def _choose_process(self, assigned: AssignedRun) -> WorkerHandle:
        """Choose a process for a run, preferably on the machine that has its files.

        Raises FilesNotReadyError.
        """
        brief = assigned.brief
        past = assigned.recorded.get(brief.run_id, ())
        need = self._files.explain_need(brief, past) if self._pool.has_own_files else ""
        machine = self._files.find_machine(brief, past)
        process = await self._pool.choose(needs_folder=bool(need), machine=machine)
        if process is None:
            raise FilesNotReadyError(NEEDS_FOLDER.format(reason=need))
        return process

    async def _handle_loss(
        self, handle: RemoteRunHandle, assigned: AssignedRun, lost: WorkerLost
    ) -> Report[Any] | None:
        """Take back a run from a lost process. Return its report if it ends there."""
        handle.loss = str(lost)
        handle.process = None
        assigned.live.clear()
        assigned.refund()
        if report := find_report(assigned.recorded.get(assigned.run_id, ())):
            handle.is_ending = True
            charge_past_run(assigned.meter, PastEvents(assigned.recorded), report)
            assigned.meter.add_turns(report.turns)
            return report
        if handle.is_cancelled:
            return await self._record_end(handle, assigned, handle.stop_reason)
        if lost.has_hung and assigned.is_overdue:
            error = f"it was at work when its time was over: {lost}"
            return await self._record_end(handle, assigned, Reason.TIMEOUT, error)
        if not lost.is_suspect:
            handle.starts -= 1
        elif self._transport.is_shared and assigned.count_turns() > handle.turns_before:
            handle.starts = 0  # other sessions' runs may have been the cause
        return None

    def _select_past_events(self, run_id: str) -> dict[str, list[StoredEvent]]:
        past = self._services.past_events
        if run_id not in past:
            return {}
        return {run: list(past[run]) for run in (run_id, *past.walk_below(run_id))}

    def _count_waiting(self) -> int:
        return len(self._handles) - sum(process.load for process in self._pool.processes)

    def _make_process(self, number: int) -> WorkerHandle:
        connection = self._transport.connect()
        return WorkerHandle(
            number,
            connection,
            self._config,
            self._services,
            self._get_rate_limiter,
            self._files,
        )

    async def _record_end(
        self,
        handle: RemoteRunHandle,
        assigned: AssignedRun,
        reason: Reason,
        error: str = "",
    ) -> Report[Any]:
        """Record the end of a run without a process, and return its report."""
        handle.is_ending = True  # a cancel would interrupt recording the end
        brief = assigned.brief
        past = PastEvents(assigned.recorded)
        has_begun = bool(assigned.recorded.get(brief.run_id))
        report = make_past_report(self._services, past, brief.run_id, reason)
        report = replace(
            report,
            agent=brief.agent.name,
            model=brief.model,
            error=error,
            unknown_changes=report.unknown_changes or (WORKERS_ENDED if has_begun else ""),
        )
        # The lost processes' charges were refunded; the record holds what was really spent.
        charge_past_run(assigned.meter, past, report)
        assigned.meter.add_turns(report.turns)
        if has_begun:
            await record_past_end(self._services, past, report)
        return report


OnOutcome: TypeAlias = Callable[
    ["RemoteRunHandle", AssignedRun, "Report[Any] | BaseException"], None
]


class RemoteRunHandle(TaskHandle):
    """The port RunHandle for a run in a worker process.

    `assigned` and `slots` are None while the run waits for a slot of its depth. `process` is None
    until a process has the run; a lost process stays here until `placing` begins, the task that
    gives the run to a process or ends it. `starts` counts attempts to give it to a process,
    `turns_before` the turns finished before the last attempt. Once it `is_ending`, its end is being
    recorded here, and a request to stop it comes too late.
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
        return any(isinstance(request, Cancel) for request in self._stop_requests)

    def bind(self, process: WorkerHandle) -> None:
        assert self.assigned is not None
        self.process = process
        self.assigned.on_begin = self._repeat_messages if self._messages else None
        for request in self._stop_requests:
            process.stop(request)

    def leave_process(self, outcome: Report[Any] | BaseException) -> None:
        """Handle the run's report, its exception, or the loss of its process.

        The process has given it up. If the run was not sent yet, `send_run` notices the loss.
        """
        if self.process is not None and self.assigned is not None:
            self.process.forget(self.assigned)
            if isinstance(outcome, Report):
                self.assigned.meter.member.has_goal = outcome.reason is Reason.GOAL
            self._on_outcome(self, self.assigned, outcome)

    def end(self, outcome: Report[Any] | BaseException) -> None:
        if self.slots is not None:
            self.slots.release()
        if isinstance(outcome, asyncio.CancelledError):
            self.outcome.cancel()
        elif isinstance(outcome, BaseException):
            self.outcome.set_exception(outcome)
        else:
            self.outcome.set_result(outcome)

    def send(self, message: InboxMessage) -> bool:
        if self.process is None or self.assigned is None or self._stop_requests:
            return False
        if self._has_ended() or self.run_id not in self.assigned.live:
            return False
        self._messages += (message,)
        self.process.send(SendMessage(self.run_id, message))
        return True

    async def wait_until_stored(self, message_id: str) -> bool:
        if self.assigned is None:
            return False
        return await self.assigned.wait_until_stored(self.run_id, message_id)

    def _repeat_messages(self) -> None:
        """Resend messages that a lost process had not stored."""
        assert self.process is not None and self.assigned is not None
        events = self.assigned.recorded.get(self.run_id, [])
        stored = {event.message.id for event in events if isinstance(event, MessageSent)}
        for message in self._messages:
            if message.id not in stored:
                self.process.send(SendMessage(self.run_id, message))

    def wrap_up(self, reason: Reason = Reason.CANCELLED) -> bool:
        if not self._request_stop(WrapUp(self.run_id, reason)):
            return False
        self.stop_reason = reason
        if self.placing is not None and not self.starts:
            self.placing.cancel()  # still waiting for a slot, with nothing to summarise
        return True

    def cancel(self, reason: Reason = Reason.CANCELLED) -> bool:
        if not self._request_stop(Cancel(self.run_id, reason)):
            return False
        self.stop_reason = reason
        if self.process is None and self.placing is not None:
            self.placing.cancel()
        return True

    def detach(self, work_id: str = "") -> bool:
        return self._request_for_work(Detach(self.run_id, work_id))

    def find_current_call(self) -> tuple[str, float] | None:
        return self.assigned.find_current_call(self.run_id) if self.assigned else None

    def stop_command(self, work_id: str) -> bool:
        return self._request_for_work(StopCommand(self.run_id, work_id))

    def _request_for_work(self, request: Detach | StopCommand) -> bool:
        if self.process is None or self._has_ended():
            return False
        self.process.send(request)
        return True

    def _has_ended(self) -> bool:
        return self.is_ending or self.outcome.done()

    def _request_stop(self, request: WrapUp | Cancel) -> bool:
        """Send a request to stop, never twice; nothing may follow a Cancel."""
        if self._has_ended() or any(
            isinstance(earlier, Cancel | type(request)) for earlier in self._stop_requests
        ):
            return False
        self._stop_requests += (request,)
        if self.process is not None:
            self.process.stop(request)
        return True


class DescendantHandle:
    """Handle of a run with its parent in a worker process. Only the parent gets the report."""

    def __init__(self, run_id: str, process: WorkerHandle) -> None:
        self.run_id = run_id
        self._process = process

    def send(self, message: InboxMessage) -> bool:
        return self._send(SendMessage(self.run_id, message))

    async def wait_until_stored(self, message_id: str) -> bool:
        assigned = self._process.find(self.run_id)
        if assigned is None:
            return False
        return await assigned.wait_until_stored(self.run_id, message_id)

    def wrap_up(self, reason: Reason = Reason.CANCELLED) -> bool:
        return self._send(WrapUp(self.run_id, reason))

    @property
    def is_interrupted(self) -> bool:
        return False

    def interrupt(self) -> bool:
        # Only a prompt's run can be interrupted.
        return False

    def cancel(self, reason: Reason = Reason.CANCELLED) -> bool:
        return self._send(Cancel(self.run_id, reason))

    def detach(self, work_id: str = "") -> bool:
        return self._send(Detach(self.run_id, work_id))

    def find_current_call(self) -> tuple[str, float] | None:
        assigned = self._process.find(self.run_id)
        return assigned.find_current_call(self.run_id) if assigned else None

    def stop_command(self, work_id: str) -> bool:
        return self._send(StopCommand(self.run_id, work_id))

    async def wait(self) -> bool:
        await self.report()
        return True

    def release(self) -> None:
        """Do nothing: the parent waits in the worker process."""

    async def report(self) -> Report[Any]:
        raise RuntimeError(f"run {self.run_id} reports to its parent in a worker process")

    def _send(self, message: msgspec.Struct) -> bool:
        assigned = self._process.find(self.run_id)
        if assigned is None or self.run_id not in assigned.live:
            return False
        if isinstance(message, WrapUp | Cancel):
            self._process.stop(message)
        else:
            self._process.send(message)
        return True
