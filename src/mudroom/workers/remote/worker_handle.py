"""One worker process, seen from the session's process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from ..._core.budgets import Grant
from ..._core.events import StoredEvent
from ..._core.ports import RateLimiter
from ..._core.run_ids import find_parent_id
from ..._core.runs import Brief, Report
from ..._engine.session_context import SessionServices
from ...errors import UsageError
from .assigned_run import AssignedRun
from .connection import WorkerConnection
from .frames import encode
from .messages import (
    AddChild,
    CallReply,
    CallSession,
    Charge,
    EndAdmission,
    Pause,
    RequestAdmission,
    RunReply,
    ShowEvent,
    StartRun,
    ToSession,
    WorkerConfig,
)
from .model_bridge import ModelBridge, ModelMessage
from .rate_limits import LimitedRequests, LimiterMessage
from .session_calls import call_service, list_targets


class WorkerLost(Exception):
    """The worker process ended while it executed a run, or could not execute it. It says why."""


class WorkerHandle:
    """Handle of one worker process: starts it, gives it runs, and serves its requests.

    Arguments:
        connection: the process, not started.
        get_rate_limiter: returns the rate limiter of a provider, by name.
    """

    def __init__(
        self,
        connection: WorkerConnection,
        config: WorkerConfig,
        services: SessionServices,
        get_rate_limiter: Callable[[str], RateLimiter],
    ) -> None:
        self._connection = connection
        self._config = config
        self._services = services
        self._targets = list_targets(services, self._append)
        self._limited = LimitedRequests(get_rate_limiter, self.send)
        self._runs: dict[str, AssignedRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._appends: set[asyncio.Task[None]] = set()
        self._bridge: ModelBridge | None = None
        self._starting = asyncio.Lock()
        self.is_lost = False

    @property
    def load(self) -> int:
        """Number of runs that the session gave to this process and that have not ended."""
        return len(self._runs)

    @property
    def pid(self) -> int | None:
        """Process id, None before the first run."""
        return self._connection.pid

    async def run(
        self,
        assigned: AssignedRun,
        brief: Brief,
        grant: Grant,
        on_start: Callable[[], None],
    ) -> Report[dict[str, Any]]:
        """Execute a run and return its report.

        Arguments:
            on_start: called when the process has received the run.

        Raises WorkerLost if the process ends first, and the exceptions of the run.
        """
        self._runs[assigned.run_id] = assigned
        assigned.report = asyncio.get_running_loop().create_future()
        try:
            try:
                await self._wait_until_open()
            except UsageError as error:
                raise WorkerLost(str(error)) from error
            if self.is_lost:
                raise WorkerLost(self._connection.loss)
            self.send(StartRun(brief, grant, assigned.make_parent_meter_state(), assigned.recorded))
            on_start()
            return await assigned.report
        finally:
            del self._runs[assigned.run_id]

    def find(self, run_id: str) -> AssignedRun | None:
        """Return the run of this process that has the id, or that is above it."""
        while run_id and run_id not in self._runs:
            run_id = find_parent_id(run_id)
        return self._runs.get(run_id)

    def send(self, message: msgspec.Struct) -> None:
        """Send a message to the process."""
        self._connection.send(message)

    async def close(self) -> None:
        """End the process; it ends its commands first."""
        await self._connection.close()
        await asyncio.gather(*self._appends)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def open(self) -> None:
        """Start the process, if that is not done. Raises UsageError if it cannot execute runs."""
        async with self._starting:
            if self._bridge is not None or self.is_lost:
                return
            try:
                await self._connection.open(self._config)
            except BaseException:
                self.is_lost = True
                raise
            self._bridge = ModelBridge(self._services.get_model, self.send)
            self._start_task(self._serve(self._bridge), self._tasks)

    async def _wait_until_open(self) -> None:
        """Start the process, if that is not done. A cancel ends the wait, not the start."""
        if self._bridge is None and not self.is_lost:
            await asyncio.shield(self._start_task(self.open(), self._tasks))

    def _start_task(
        self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]
    ) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    async def _serve(self, bridge: ModelBridge) -> None:
        while (message := await self._connection.receive()) is not None:
            self._handle(message)
        self.is_lost = True
        self._limited.close()
        bridge.close()
        # First store all events that the process has sent: a run continues from them.
        await asyncio.gather(*self._appends)
        await self._connection.wait_until_stopped()
        for run in self._runs.values():
            if run.report is not None and not run.report.done():
                run.report.set_exception(WorkerLost(self._connection.loss))

    def _handle(self, message: ToSession) -> None:
        if isinstance(message, CallSession):
            is_append = message.name == "append"
            self._start_task(self._reply(message), self._appends if is_append else self._tasks)
        elif isinstance(message, RequestAdmission):
            self._start_task(self._admit(message), self._tasks)
        elif isinstance(message, AddChild):
            if run := self._runs.get(message.run_id):
                self.send(CallReply(message.id, encode(run.add_child())))
        elif isinstance(message, LimiterMessage):
            self._limited.handle(message)
        elif isinstance(message, ModelMessage):
            assert self._bridge is not None
            self._bridge.handle(message)
        else:
            self._handle_notification(message)

    def _handle_notification(
        self, message: ShowEvent | Charge | EndAdmission | Pause | RunReply
    ) -> None:
        """Handle a message that has no answer."""
        if isinstance(message, ShowEvent):
            for watch in self._services.watchers:
                watch(message.event)
        elif isinstance(message, Charge):
            self._charge(message)
        elif isinstance(message, RunReply):
            self._end(message)
        elif isinstance(message, EndAdmission):
            if run := self._runs.get(message.run_id):
                run.end_request(message.id)
        elif (run := self._runs.get(message.run_id)) and run.meter.parent is not None:
            run.meter.parent.set_paused(message.paused)

    async def _reply(self, call: CallSession) -> None:
        self.send(await call_service(self._targets, self._services.hooks, call))

    async def _admit(self, request: RequestAdmission) -> None:
        if run := self._runs.get(request.run_id):
            admission = await run.admit(self._services.meters.gate, request)
            self.send(CallReply(request.id, encode(admission)))

    async def _append(self, *events: StoredEvent) -> int:
        position = await self._services.journal.append(*events)
        if events and (run := self.find(events[0].run)):
            run.add(events)
        for event in events:
            self._services.teams.observe(event)
        return position

    def _charge(self, message: Charge) -> None:
        if run := self._runs.get(message.run_id):
            run.charge(message)
            if run.meter.parent is not None and run.meter.parent.has_shared_limits:
                self.send(run.make_parent_meter_state())

    def _end(self, message: RunReply) -> None:
        run = self._runs.get(message.run_id)
        if run is None or run.report is None or run.report.done():
            return
        if message.report is not None:
            run.report.set_result(message.report)
        elif message.error is not None:
            run.report.set_exception(message.error.to_exception())
