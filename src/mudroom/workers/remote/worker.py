"""RemoteWorker: executes child runs in worker processes, root runs in this process."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from msgspec.structs import replace

from ..._core.budgets import Grant
from ..._core.events import StoredEvent
from ..._core.ports import RateLimiter, RunHandle
from ..._core.runs import Brief, Reason, Report
from ..._engine.recorded_conversations import find_report
from ..._engine.session_context import SessionServices
from ...projections.past_events import PastEvents
from ..local import LocalWorker
from ..past_end import WORKERS_ENDED, record_past_end
from ..past_report import charge_past_run, make_past_report
from .assigned_run import AssignedRun
from .connection import WorkerLost, WorkerTransport
from .fleet_control import FleetControl
from .messages import WorkerConfig
from .own_files import NEEDS_FOLDER, FilesNotReadyError, TravellingFiles
from .pool import WorkerPool
from .run_handles import DescendantHandle, RemoteRunHandle
from .tree_transfer import TreeTransfers
from .worker_handle import WorkerHandle

MAX_STARTS = 3
"""Attempts to execute a run, each in another process; when the last one dies, the run is LOST."""


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
        is_hidden: tells which files are not sent to other machines, by absolute path.
    """

    def __init__(
        self,
        services: SessionServices,
        config: WorkerConfig,
        transport: WorkerTransport,
        processes: int,
        get_rate_limiter: Callable[[str], RateLimiter],
        is_hidden: Callable[[str], bool] | None = None,
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
        self._files = TravellingFiles(services, config.server_agents, self._transfers, is_hidden)
        self._pool = WorkerPool(self._make_process, processes)
        self._handles: dict[str, RemoteRunHandle] = {}
        self._on_outcome = self._handle_outcome  # one object for thousands of runs
        services.watchers.on_change = self._pool.tell_watched
        self._control = FleetControl(
            config.home, config.session, transport.kind, self._pool, self._count_waiting
        )

    @property
    def pids(self) -> tuple[int, ...]:
        """Ids of the worker processes that have started."""
        return tuple(process.pid for process in self._pool.processes if process.pid is not None)

    def with_services(self, services: SessionServices) -> LocalWorker:
        """Return a worker of this process with other services."""
        return self._local.with_services(services)

    def find(self, run_id: str) -> RunHandle | None:
        """Return the handle of a run that has started and not ended."""
        if handle := self._handles.get(run_id) or self._local.find(run_id):
            return handle
        for process in self._pool.processes:
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
        handle = RemoteRunHandle(grant, self._services, self._on_outcome)
        self._handles[brief.run_id] = handle
        self._place(handle, self._begin(handle, brief, grant))
        return handle

    async def open(self) -> None:
        """Start all worker processes now. Raises UsageError if one cannot execute runs.

        Without this call a worker process starts with its first run.
        """
        try:
            await self._pool.open()
            self._control.start()
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
        await self._control.close()
        await self._pool.close()
        await self._transport.close()
        await self._files.transfers.close()

    def _place(
        self, handle: RemoteRunHandle, work: Coroutine[Any, Any, Report[Any] | None]
    ) -> None:
        """Start a task that gives a run to a process.

        Sessions have thousands of runs at once. So the task ends when a process has the run.
        """
        handle.placing = asyncio.create_task(work)
        handle.placing.add_done_callback(partial(self._handle_placed, handle))

    def _handle_placed(
        self, handle: RemoteRunHandle, placing: asyncio.Task[Report[Any] | None]
    ) -> None:
        if handle.placing is placing:  # else the process was lost meanwhile
            handle.placing = None
        if placing.cancelled():
            self._end_run(handle, asyncio.CancelledError())
        elif ended := placing.exception() or placing.result():
            self._end_run(handle, ended)

    async def _begin(
        self, handle: RemoteRunHandle, brief: Brief, grant: Grant
    ) -> Report[Any] | None:
        """Wait for a slot and give a run to a process. Return its report if none gets it."""
        self._control.start()
        meter = self._services.meters.get(grant)
        slots = self._slots[brief.depth]
        await slots.acquire()
        handle.slots = slots
        past = self._select_past_events(brief.run_id)
        handle.assigned = AssignedRun(brief, meter, past, handle.leave_process)
        return await self._give(handle, handle.assigned)

    async def _give(self, handle: RemoteRunHandle, assigned: AssignedRun) -> Report[Any] | None:
        """Give a run to a process. Return its report if none gets it."""
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
                    raise  # it has not begun or continued: the handle makes the report
                return await self._record_end(handle, assigned, handle.stop_reason)
        error = f"could not be executed in {MAX_STARTS} worker processes"
        error = f"{error}; the last one: {handle.loss}" if handle.loss else error
        return await self._record_end(handle, assigned, Reason.LOST, error)

    def _handle_outcome(
        self, handle: RemoteRunHandle, assigned: AssignedRun, outcome: Report[Any] | BaseException
    ) -> None:
        """Handle the report of a run, its exception, or the loss of its process."""
        if isinstance(outcome, WorkerLost):
            self._place(handle, self._give_again(handle, assigned, outcome))
        else:
            self._end_run(handle, outcome)

    async def _give_again(
        self, handle: RemoteRunHandle, assigned: AssignedRun, lost: WorkerLost
    ) -> Report[Any] | None:
        """Give a run whose process was lost to another one. Return its report if none gets it."""
        return await self._handle_loss(handle, assigned, lost) or await self._give(handle, assigned)

    def _end_run(self, handle: RemoteRunHandle, outcome: Report[Any] | BaseException) -> None:
        """End a run with a report or an exception."""
        self._handles.pop(handle.run_id, None)
        try:
            if handle.assigned is not None:
                handle.assigned.end()
        finally:
            handle.end(outcome)

    async def _choose_process(self, assigned: AssignedRun) -> WorkerHandle:
        """Return the process for a run. One on the machine that has files of the run comes first.

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
        """Take a run back from a lost process. Return its report if it does not go on."""
        handle.loss = str(lost)
        handle.unbind()
        assigned.live.clear()
        assigned.refund()
        if report := find_report(assigned.recorded.get(assigned.run_id, ())):
            handle.is_ending = True
            return _accept_report(assigned, report)
        if handle.is_cancelled:
            return await self._record_end(handle, assigned, handle.stop_reason)
        if lost.has_hung and assigned.is_overdue:
            error = f"it was at work when its time was over: {lost}"
            return await self._record_end(handle, assigned, Reason.TIMEOUT, error)
        if not lost.is_suspect:
            handle.starts -= 1
        elif self._transport.is_shared and assigned.count_turns() > handle.turns_before:
            handle.starts = 0  # runs of other sessions may have been the cause
        return None

    def _select_past_events(self, run_id: str) -> dict[str, list[StoredEvent]]:
        past = self._services.past_events
        if run_id not in past:
            return {}
        return {run: list(past[run]) for run in (run_id, *past.walk_below(run_id))}

    def _count_waiting(self) -> int:
        """Return the number of children that have no worker process yet."""
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
        """Record the end of a run that has no process, and return its report."""
        handle.is_ending = True  # a cancel would stop the record of the end
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
        # The charges of the lost processes were taken back; what the record has was spent.
        charge_past_run(assigned.meter, past, report)
        assigned.meter.add_turns(report.turns)
        if has_begun:
            await record_past_end(self._services, past, report)
        return report


def _accept_report(assigned: AssignedRun, report: Report[Any]) -> Report[Any]:
    """Charge a run that had ended when its process was lost, and return its recorded report."""
    charge_past_run(assigned.meter, PastEvents(assigned.recorded), report)
    assigned.meter.add_turns(report.turns)
    return report
