"""One worker process, seen from the session's process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ..._core.budgets import Grant
from ..._core.events import StoredEvent
from ..._core.ports import RateLimiter
from ..._core.run_ids import find_parent_id
from ..._core.runs import Brief, Report
from ..._engine.session_context import SessionServices
from ..._platform.programs import end_program, start_program
from .assigned_run import AssignedRun
from .channel import Channel, encode
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

_EXIT_SECONDS = 2.0


class ProcessLost(Exception):
    """The worker process ended while it executed a run."""


class ProcessHandle:
    """Handle of one worker process: starts it, gives it runs, and serves its requests.

    Arguments:
        command: command line of the worker process; the number of its socket is added.
        get_rate_limiter: returns the rate limiter of a provider, by name.
    """

    def __init__(
        self,
        command: Sequence[str],
        config: WorkerConfig,
        services: SessionServices,
        get_rate_limiter: Callable[[str], RateLimiter],
    ) -> None:
        self._command = command
        self._config = config
        self._services = services
        self._targets = list_targets(services, self._append)
        self._limited = LimitedRequests(get_rate_limiter, self.send)
        self._runs: dict[str, AssignedRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._appends: set[asyncio.Task[None]] = set()
        self._channel: Channel[ToSession] | None = None
        self._process: asyncio.subprocess.Process | None = None
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
        return None if self._process is None else self._process.pid

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

        Raises ProcessLost if the process ends first, and the exceptions of the run.
        """
        self._runs[assigned.run_id] = assigned
        assigned.report = asyncio.get_running_loop().create_future()
        try:
            await self._start()
            if self.is_lost:
                raise ProcessLost
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
        if self._channel is not None:
            self._channel.send(message)

    async def close(self) -> None:
        """End the process; it ends its commands first."""
        if self._channel is not None:
            await self._channel.close()
        if self._process is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_EXIT_SECONDS):
                    await self._process.wait()
            await end_program(self._process)
        await asyncio.gather(*self._appends)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _start(self) -> None:
        async with self._starting:
            if self._process is not None:
                return
            own_end, its_end = socket.socketpair()
            with its_end:
                self._process = await start_program(
                    *self._command,
                    str(its_end.fileno()),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=[its_end.fileno()],
                    start_new_session=True,
                )
            self._channel = await Channel[ToSession].open(own_end, ToSession)
            self._bridge = ModelBridge(self._services.get_model, self._channel)
            self._channel.send(self._config)
            self._start_task(self._serve(self._channel), self._tasks)

    def _start_task(self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
        task = asyncio.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _serve(self, channel: Channel[ToSession]) -> None:
        while (message := await channel.receive()) is not None:
            self._handle(message)
        self.is_lost = True
        self._limited.close()
        if self._bridge is not None:
            self._bridge.close()
        # First store all events that the process has sent: a run continues from them.
        await asyncio.gather(*self._appends)
        for run in self._runs.values():
            if run.report is not None and not run.report.done():
                run.report.set_exception(ProcessLost())
        await channel.close()
        assert self._process is not None
        await self._process.wait()

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
