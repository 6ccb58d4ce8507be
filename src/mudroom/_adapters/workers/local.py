"""The worker in this process: each run is an asyncio task.

Each depth of the run tree has its own limit on children running at once, so a run never occupies
the slot its own child waits for.
"""

from __future__ import annotations

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from msgspec.structs import replace

from ..._core.agents import WorkspaceKind
from ..._core.budgets import Grant
from ..._core.events import RunStarted, StoredEvent
from ..._core.ports import Environment, FilesLostError, ToolServers, Worker
from ..._core.runs import Brief, InboxMessage, Reason, Report
from ..._engine.loop import execute
from ..._engine.mcp_tools import (
    RunServers,
    list_called_servers,
    list_full_patterns,
    list_granted,
    list_unknown_servers,
)
from ..._engine.meters.meter import Meter
from ..._engine.phase import OPEN_PHASES, RunControl
from ..._engine.recorded_conversations import find_report
from ..._engine.run_context import RunContext
from ..._engine.session_context import SessionServices
from ..._projections.engine_text import quote
from ...errors import MudroomError

LOST_COPY = (
    "Your copy of the folder was lost in an interruption and made again: "
    "the changes that you made before are gone."
)

LOST_MEMORY = (
    "The session was interrupted. MCP servers that you called before may have been started again "
    "({names}): what they kept in memory may be lost."
)

MISSING_TOOLS = (
    "Tools that you may use are missing. Do not guess their results; say so in your report.\n"
    "{lines}"
)

MISSING_FILES = "Your copy of the folder lacks: {missing}. Say so in your report if it matters."


class TaskHandle(ABC):
    """Handle of a run executed by this process, or by another on its behalf.

    `outcome` is done when the run has ended.
    """

    __slots__ = ("_reporter", "_services", "_waiter", "grant", "outcome", "stop_reason")

    def __init__(self, grant: Grant, services: SessionServices) -> None:
        self.grant = grant
        self._services = services
        self.stop_reason = Reason.CANCELLED
        self.outcome: asyncio.Future[Report]
        self._waiter: asyncio.Future[None] | None = None
        self._reporter: asyncio.Future[None] | None = None

    @property
    def run_id(self) -> str:
        return self.grant.run_id

    def interrupt(self) -> bool:
        """Return False: only a prompt's run can be interrupted."""
        return False

    @property
    def interim_report(self) -> Report | None:
        return None

    @property
    def is_interrupted(self) -> bool:
        return self.interim_report is not None

    @abstractmethod
    def cancel(self, reason: Reason = Reason.CANCELLED) -> bool:
        """Stop the run and all runs below it. Return False if already stopped."""

    async def wait(self) -> bool:
        self._waiter = _follow(self.outcome)
        await self._waiter
        return self.outcome.done()

    def release(self) -> None:
        """End `wait`. The run continues."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def report(self) -> Report:
        is_cancelled = False
        while self.outcome.cancelled() or not self.outcome.done():
            if self.outcome.cancelled():  # before the run began or continued
                from .past_runs import end_past_run

                # A separate task, so that cancelling the caller does not stop recording the end.
                ending = end_past_run(self._services, self.grant, self.stop_reason)
                self.outcome = asyncio.create_task(ending)
            if self.interim_report and not is_cancelled:
                return self.interim_report
            try:
                self._reporter = _follow(self.outcome)
                await self._reporter
            except asyncio.CancelledError:
                is_cancelled = True
                self.cancel()
        if is_cancelled:
            self.outcome.exception()  # or asyncio logs it as never retrieved
            raise asyncio.CancelledError
        return self.outcome.result()


class LocalRunHandle(TaskHandle):
    __slots__ = ("_control", "run")

    def __init__(self, grant: Grant, services: SessionServices, control: RunControl) -> None:
        super().__init__(grant, services)
        self.run: RunContext | None = None
        self._control = control
        control.on_interrupt = self._wake_reporter

    def _wake_reporter(self) -> None:
        if self._reporter and not self._reporter.done():
            self._reporter.set_result(None)

    @property
    def interim_report(self) -> Report | None:
        return self._control.interim_report

    def send(self, message: InboxMessage) -> bool:
        """Send a message to the run. Return False if it waits for a slot or is ending.

        A user's message ends an interrupt.
        """
        if self.run is None or self._control.phase not in OPEN_PHASES:
            return False
        if message.sender == "user" and self._control.interim_report:
            self._control.resume()
        self.run.inbox.put(message)
        return True

    async def wait_until_stored(self, message_id: str) -> bool:
        return self.run is not None and await self.run.inbox.wait_until_stored(message_id)

    def wrap_up(self, reason: Reason = Reason.CANCELLED) -> bool:
        if not self._control.wrap_up(reason):
            return False
        self.stop_reason = reason
        return True

    def interrupt(self) -> bool:
        """Stop a prompt's current turn or wait; its background work continues."""
        run = self.run
        if run is None or run.brief.depth or not run.background.open:
            return False
        return self._control.interrupt()

    def cancel(self, reason: Reason = Reason.CANCELLED) -> bool:
        if not self._control.cancel(reason):
            return False
        self.stop_reason = reason
        if self.run is not None:
            self.run.background.cancel(reason)
        return True

    def detach(self, work_id: str = "") -> bool:
        return self.run is not None and self.run.background.detach(work_id)

    def find_current_call(self) -> tuple[str, float] | None:
        if self.run is None or not self.run.turn.working:
            return None
        name, started_at = next(iter(self.run.turn.working.values()))
        return name, self.run.services.clock.monotonic() - started_at

    def stop_command(self, work_id: str) -> bool:
        return self.run is not None and self.run.background.stop_command(work_id)


def _follow(outcome: asyncio.Future[Report]) -> asyncio.Future[None]:
    """Make a future that is done when a run ends, or earlier if somebody sets it.

    It takes less memory per run than `asyncio.wait`.
    """
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    outcome.add_done_callback(partial(_finish, done))
    return done


def _finish(done: asyncio.Future[None], _: object) -> None:
    if not done.done():
        done.set_result(None)


class _RunSlots:
    """Handles of running runs and slots for children, shared by workers."""

    def __init__(self, max_children: int) -> None:
        self.slots: dict[int, asyncio.Semaphore] = defaultdict(
            partial(asyncio.Semaphore, max_children)
        )
        self.handles: dict[str, LocalRunHandle] = {}


class LocalWorker:
    """The port Worker for this process.

    At each depth, at most `max_children` run at once; the others wait. Prompt runs and summary runs
    never wait. `child_worker` executes the runs' children; by default, this worker does.
    """

    def __init__(
        self,
        services: SessionServices,
        max_children: int = 64,
        *,
        pool: _RunSlots | None = None,
        child_worker: Worker | None = None,
    ) -> None:
        self._services = services
        self._child_worker = child_worker or self
        self._pool = pool or _RunSlots(max_children)

    def with_services(self, services: SessionServices) -> LocalWorker:
        """Make a worker with other services that shares this one's slots and handles."""
        return LocalWorker(services, pool=self._pool)

    def find(self, run_id: str) -> LocalRunHandle | None:
        return self._pool.handles.get(run_id)

    def start(self, brief: Brief, grant: Grant) -> LocalRunHandle:
        control = RunControl()
        handle = LocalRunHandle(grant, self._services, control)
        task = asyncio.create_task(self._run_in_slot(handle, brief, grant, control))
        handle.outcome = task
        control.attach(task)
        self._pool.handles[brief.run_id] = handle

        def remove(_: object) -> None:
            self._pool.handles.pop(brief.run_id, None)
            control.on_interrupt = None  # no reference cycle, so the run's memory is freed at once

        task.add_done_callback(remove)
        return handle

    async def close(self) -> None:
        handles = list(self._pool.handles.values())
        for handle in handles:
            handle.cancel()
        await asyncio.gather(*(handle.wait() for handle in handles))

    async def _run_in_slot(
        self, handle: LocalRunHandle, brief: Brief, grant: Grant, control: RunControl
    ) -> Report:
        if brief.depth == 0 or brief.is_compaction:
            return await self._run_with_servers(handle, brief, grant, control)
        async with self._pool.slots[brief.depth]:
            return await self._run_with_servers(handle, brief, grant, control)

    def _run_with_servers(
        self, handle: LocalRunHandle, brief: Brief, grant: Grant, control: RunControl
    ) -> Coroutine[Any, Any, Report]:
        """Make the coroutine of a run, with the servers of its agent, if any."""
        shared = self._services.servers
        if shared is None or brief.is_compaction:
            return self._run_in_environment(handle, brief, grant, control)
        own = shared.open_own(brief.agent.name, is_root=brief.depth == 0)
        if own is None:
            return self._run_in_environment(handle, brief, grant, control)
        servers = RunServers(own, shared, brief.agent.tools)
        services = replace(self._services, servers=servers)
        # The run's children only have the session's servers.
        worker = LocalWorker(services, pool=self._pool, child_worker=self._child_worker)
        run = worker._run_in_environment(handle, brief, grant, control)
        return _close_after(run, servers) if brief.depth else run

    async def _run_in_environment(
        self, handle: LocalRunHandle, brief: Brief, grant: Grant, control: RunControl
    ) -> Report:
        meter = self._services.meters.get(grant)
        past = self._services.past_events.get(brief.run_id)
        if past and isinstance(past[0], RunStarted):
            if report := find_report(past):
                from .past_runs import charge_past_run

                charge_past_run(meter, self._services.past_events, report)
                return report
            from .past_runs import restore_workspace

            spec = restore_workspace(brief, past, self._services)
            brief = replace(past[0].brief, history=brief.history, workspace=spec)
            # A resumed run's age and time limit count from its first start.
            meter.set_limits(brief.budget)
        environments = self._services.environments
        missing_tools = await self._load_tools(brief)
        if brief.workspace.kind is WorkspaceKind.SHARED:
            # The usual case; without a context manager, a run takes less memory.
            handle.run = self._make_run(brief, meter, control, environments.shared)
            texts = [_note_missing(handle.run, missing_tools), _describe_lost_memory(past)]
            _send_notice(handle.run, texts)
            return await execute(handle.run)
        async with AsyncExitStack() as stack:
            try:
                environment = await stack.enter_async_context(environments.open(brief.workspace))
            except MudroomError as error:
                handle.run = self._make_run(brief, meter, control, environments.shared)
                reason = Reason.LOST if isinstance(error, FilesLostError) else Reason.ERROR
                return await execute(handle.run, failure=str(error), failure_reason=reason)
            handle.run = self._make_run(brief, meter, control, environment)
            texts = [_note_missing(handle.run, missing_tools), _describe_lost_memory(past)]
            if past and brief.workspace.kind is WorkspaceKind.COPY:
                texts.append(LOST_COPY)
            elif environment.missing:
                texts.append(MISSING_FILES.format(missing=environment.missing))
            _send_notice(handle.run, texts)
            return await execute(handle.run)

    async def _load_tools(self, brief: Brief) -> tuple[str, ...]:
        """Load the server tools that the model gets in full; return why some are missing."""
        servers = self._services.servers
        missing = list_unknown_servers(brief.agent.tools, servers)
        if servers and (granted := list_granted(brief.tools, servers)):
            missing += await servers.load(list_full_patterns(granted, servers))
        return tuple(missing)

    def _make_run(
        self, brief: Brief, meter: Meter, control: RunControl, environment: Environment
    ) -> RunContext:
        return RunContext(brief, meter, self._services, self._child_worker, control, environment)


def _note_missing(run: RunContext, lines: tuple[str, ...]) -> str:
    """Record in the evidence which tools are missing; return the text for the model."""
    run.evidence.missing_tools = lines
    return MISSING_TOOLS.format(lines="\n".join(lines)) if lines else ""


async def _close_after(run: Coroutine[Any, Any, Report], servers: ToolServers) -> Report:
    try:
        return await run
    finally:
        await servers.close()


def _describe_lost_memory(past: Sequence[StoredEvent] | None) -> str:
    names = list_called_servers(past or ())
    return LOST_MEMORY.format(names=", ".join(names)) if names else ""


def _send_notice(run: RunContext, texts: Iterable[str]) -> None:
    if text := "\n".join(filter(None, texts)):
        run.inbox.put(InboxMessage(uuid.uuid4().hex, quote(text), "mudroom"))
