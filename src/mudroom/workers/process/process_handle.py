"""One worker process, seen from the session's process."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ..._core.budgets import SHARED_LIMITS, Grant, Limit, LimitState
from ..._core.events import (
    MessageSent,
    RunFinished,
    RunResumed,
    RunStarted,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
)
from ..._core.messages import NO_USAGE, Usage
from ..._core.run_ids import find_parent_id
from ..._core.runs import Brief, Report
from ..._engine.meters.meter import Meter
from ..._engine.meters.request_gate import RequestGate
from ..._engine.meters.request_plan import Admission, Permit
from ..._engine.session_context import SessionServices
from ..._platform.programs import end_program, start_program
from .channel import Channel, encode
from .messages import (
    AddChild,
    CallReply,
    CallSession,
    Charge,
    EndAdmission,
    ParentMeterState,
    Pause,
    RequestAdmission,
    RunReply,
    ShowEvent,
    StartRun,
    ToSession,
    WorkerConfig,
)
from .model_bridge import ModelBridge, ModelMessage
from .session_calls import call_service, list_targets

_EXIT_SECONDS = 2.0


class ProcessLost(Exception):
    """The worker process ended while it executed a run."""


class AssignedRun:
    """State of a run in a worker process, kept by the session's process.

    Attributes:
        recorded: stored events of the run and of the runs below it, by run id.
        live: ids of these runs that have started and not ended.
        on_begin: called when the run has started, or continues in another process.
    """

    def __init__(self, brief: Brief, meter: Meter, past: dict[str, list[StoredEvent]]) -> None:
        self.run_id = brief.run_id
        self.meter = meter
        self.recorded = past
        self.live: set[str] = set()
        self.on_begin: Callable[[], None] | None = None
        self.report: asyncio.Future[Report[dict[str, Any]]] | None = None
        self._usage = Usage()
        self._usd = 0.0
        self._estimate = Usage()
        self._children = 0
        self._turns = 0
        self._charges = 0
        self._admissions: dict[int, asyncio.Task[Permit | LimitState]] = {}
        self._waiting: dict[tuple[str, str], asyncio.Future[bool]] = {}
        self._has_ended = False

    def add(self, events: Sequence[StoredEvent]) -> None:
        """Keep stored events."""
        for event in events:
            self.recorded.setdefault(event.run, []).append(event)
            if isinstance(event, RunStarted | RunResumed):
                self.live.add(event.run)
                if event.run == self.run_id and self.on_begin is not None:
                    self.on_begin()
            elif isinstance(event, RunFinished):
                self.live.discard(event.run)
                self._end_waiting(event.run)
            elif isinstance(event, MessageSent):
                future = self._waiting.pop((event.run, event.message.id), None)
                if future is not None:
                    future.set_result(True)

    async def wait_until_stored(self, run_id: str, message_id: str) -> bool:
        """Wait until the journal has a message; return False if its run ends without it."""
        events = self.recorded.get(run_id, [])
        if any(
            isinstance(event, MessageSent) and event.message.id == message_id for event in events
        ):
            return True
        if self._has_ended or (events and isinstance(events[-1], RunFinished)):
            return False
        new = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._waiting.setdefault((run_id, message_id), new))

    def find_current_call(self, run_id: str) -> tuple[str, float] | None:
        """Return the tool and the seconds of the call of a run that works longest."""
        events = self.recorded.get(run_id, [])
        ended = {event.call_id for event in events if isinstance(event, ToolCallFinished)}
        for event in events:
            if isinstance(event, ToolCallStarted) and event.call.id not in ended:
                return event.call.name, time.time() - event.at
        return None

    def end(self) -> None:
        """Mark the run and the runs below it as ended."""
        self._has_ended = True
        self._end_requests()
        for run_id, _ in list(self._waiting):
            self._end_waiting(run_id)

    def _end_waiting(self, run_id: str) -> None:
        for key in [key for key in self._waiting if key[0] == run_id]:
            self._waiting.pop(key).set_result(False)

    def charge(self, charge: Charge) -> None:
        """Charge the meter of the run and those of its ancestors."""
        self._charges += 1
        if charge.turns:
            self._add_turns(charge.turns)
            return
        self._usage += charge.usage
        self._usd += charge.usd or 0.0
        if charge.estimate != NO_USAGE:
            self._estimate += charge.estimate
        self._children += charge.children
        self.meter.add_usage(charge.usage, charge.usd, charge.children, charge.estimate)

    def add_child(self) -> str:
        """Count a child that starts; return the reason why it may not, or ""."""
        try:
            self.meter.check_children()
        except ValueError as error:
            return str(error)
        self._children += 1
        self.meter.add_children(1)
        return ""

    def refund(self) -> None:
        """Take back all charges: another process continues the run and charges its past again."""
        # The price may be None: then it is not known.
        usage = _negate(self._usage)
        self.meter.add_usage(usage, -self._usd, -self._children, _negate(self._estimate))
        self._add_turns(-self._turns)
        self._end_requests()
        self._usage = Usage()
        self._usd = 0.0
        self._estimate = Usage()
        self._children = 0
        self._charges = 0

    def _add_turns(self, count: int) -> None:
        self._turns += count
        self.meter.add_turns(count)

    async def admit(self, gate: RequestGate, request: RequestAdmission) -> Admission:
        """Wait until the limits of the run and its ancestors allow a request."""
        applying = gate.admit(self.meter, request.plan, is_own=request.is_own)
        task = asyncio.create_task(applying)
        self._admissions[request.id] = task
        outcome = await task
        if isinstance(outcome, LimitState):
            return Admission(refusal=outcome)
        if request.is_own and not request.plan.is_summary:
            self._turns += 1
        return Admission(max_tokens=outcome.max_tokens, cut_by=outcome.cut_by)

    def end_request(self, number: int) -> None:
        """End a request, or give up its admission."""
        task = self._admissions.pop(number, None)
        if task is None or task.cancel() or task.cancelled():
            return
        outcome = task.result()
        if isinstance(outcome, Permit):
            outcome.end()

    def _end_requests(self) -> None:
        for number in list(self._admissions):
            self.end_request(number)

    def make_parent_meter_state(self) -> ParentMeterState:
        """Return the limits and unspent amounts of the ancestors of the run."""
        shared: list[LimitState] = []
        left: dict[Limit, float] = {}
        ancestor = self.meter.parent
        if isinstance(ancestor, Meter):
            for limit in SHARED_LIMITS:
                amount = ancestor.compute_amount_left(limit)
                if amount is not None:
                    left[limit] = amount
        while isinstance(ancestor, Meter):
            shared.extend(ancestor.list_shared_limits())
            ancestor = ancestor.parent
        return ParentMeterState(self.run_id, tuple(shared), left, self._charges)


def _negate(usage: Usage) -> Usage:
    return Usage(*(amount and -amount for amount in msgspec.structs.astuple(usage)))


class ProcessHandle:
    """Handle of one worker process: starts it, gives it runs, and serves its requests.

    Arguments:
        command: command line of the worker process; the number of its socket is added.
    """

    def __init__(
        self, command: Sequence[str], config: WorkerConfig, services: SessionServices
    ) -> None:
        self._command = command
        self._config = config
        self._services = services
        self._targets = list_targets(services, self._append)
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
