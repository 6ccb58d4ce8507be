"""HostTasks: the tasks of one server: start, find, cancel."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

from msgspec.structs import replace

from ..._core.agents import Agent, Mode
from ..._core.budgets import Budget
from ..._core.run_ids import find_root_id
from ..._core.runs import Reason, Report
from ...errors import MudroomError, UnknownName, UsageError
from ...session import Session
from .host_task import HostTask
from .task_request import LookArguments, TaskArguments, check_files, limit_budget

DEFAULT_AGENT = "general"
READING_AGENT = "explore"
DEFAULT_PARALLEL = 16
HEARTBEAT = 10.0
"""Seconds between two messages about progress if nothing happens."""
MAX_NESTING = 3
"""Servers of mudroom that may work for each other, one inside the other."""
DEFAULT_DEPTH = 1
"""Levels of children below a task if its agent sets none."""
_MAX_KEPT = 1_000
"""Tasks that have ended whose results are kept."""
_CANCEL_SECONDS = 5.0
"""Longest time that a call waits for the end of a task that it cancelled."""


class HostTasks:
    """The tasks of one server.

    Arguments:
        limits: of each task. Those of all tasks together are the budget of the session.
        parallel: tasks that run at the same time; more wait.
        nesting: servers of mudroom above this one.
    """

    def __init__(
        self, limits: Budget, *, parallel: int = DEFAULT_PARALLEL, nesting: int = 0
    ) -> None:
        self._limits = limits
        self._slots = asyncio.Semaphore(parallel)
        self._nesting = nesting
        self._session: Session | None = None
        self._calls: dict[str, HostTask] = {}
        self._by_run: dict[str, HostTask] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._numbers = count(1)

    @property
    def session(self) -> Session:
        """The session that runs the tasks. Raises UsageError if it is not open."""
        if self._session is None:
            raise UsageError("the server ends", remedy="Start it again.")
        return self._session

    def open(self, session: Session) -> None:
        """Use an open session for the tasks."""
        self._session = session

    def start(self, arguments: TaskArguments, slots: asyncio.Semaphore | None = None) -> HostTask:
        """Start a task. Raises MudroomError for wrong arguments.

        Arguments:
            slots: tasks of the same call that run at the same time; None for no such limit.
        """
        return self._start(arguments, self._select_agent(arguments.agent), slots)

    def start_many(self, requests: Sequence[TaskArguments], limit: int | None) -> list[HostTask]:
        """Start tasks, `limit` at a time. Raises MudroomError before the first one starts."""
        for arguments in requests:
            self._check(arguments, self._select_agent(arguments.agent))
        slots = asyncio.Semaphore(limit) if limit else None
        return [self.start(arguments, slots) for arguments in requests]

    def start_look(self, arguments: LookArguments) -> HostTask:
        """Start a task that cannot change anything."""
        agent = self._select_agent(READING_AGENT)
        request = TaskArguments(prompt=arguments.prompt, files=arguments.files, agent=agent.name)
        return self._start(request, replace(agent, mode=Mode.PLAN), None)

    def find(self, id: str) -> HostTask:
        """Return a task. Raises UnknownName."""
        if id not in self._calls:
            raise UnknownName(
                "task", id, self._calls, remedy="Results of earlier servers: mudroom runs."
            )
        return self._calls[id]

    def find_by_run(self, run_id: str) -> HostTask | None:
        """Return the task that a run belongs to."""
        return self._by_run.get(find_root_id(run_id))

    def list_calls(self) -> list[HostTask]:
        """Return the tasks, oldest first."""
        return list(self._calls.values())

    async def cancel(self, calls: Iterable[HostTask]) -> None:
        """Cancel tasks and wait until they have ended: no effect comes afterwards."""
        tasks: list[asyncio.Task[None]] = []
        for call in calls:
            task = self._tasks.get(call.id)
            if task is None:
                continue
            call.is_cancelled = True
            if not (call.run_id and self._session and self._session.cancel(call.run_id)):
                task.cancel()
            tasks.append(task)
        if tasks:
            await asyncio.wait(tasks, timeout=_CANCEL_SECONDS)

    async def close(self) -> None:
        """Cancel all tasks and wait for their ends."""
        await self.cancel(list(self._calls.values()))
        self._session = None

    def _select_agent(self, name: str) -> Agent:
        agents = {agent.name: agent for agent in self.session.agents}
        name = name or DEFAULT_AGENT
        if name not in agents:
            raise UnknownName("agent", name, agents)
        return agents[name]

    def _check(self, arguments: TaskArguments, agent: Agent) -> None:
        if self._nesting >= MAX_NESTING:
            raise UsageError(
                f"{self._nesting} servers of mudroom work for each other already",
                remedy="Do the task without this server.",
            )
        check_files(arguments.files, self.session.cwd)

    def _start(
        self, arguments: TaskArguments, agent: Agent, slots: asyncio.Semaphore | None
    ) -> HostTask:
        self._check(arguments, agent)
        call = HostTask(f"t{next(self._numbers)}", arguments)
        self._calls[call.id] = call
        self._tasks[call.id] = asyncio.create_task(self._run(call, agent, slots))
        return call

    async def _run(self, call: HostTask, agent: Agent, slots: asyncio.Semaphore | None) -> None:
        report: Report[Any] | None = None
        error = "it was cancelled before it started"
        try:
            async with AsyncExitStack() as stack:
                if slots:
                    await stack.enter_async_context(slots)
                await stack.enter_async_context(self._slots)
                report = await self._follow(call, agent)
                error = report.error
        except MudroomError as failure:
            error = str(failure)
        except asyncio.CancelledError:
            if call.run_id:
                error = "it was cancelled"
        except Exception as failure:  # noqa: BLE001  (the host waits for a result in any case)
            error = f"{type(failure).__name__}: {failure}"
        finally:
            self._tasks.pop(call.id, None)
            self._by_run.pop(call.run_id, None)
            call.finish(report, error)
            self._forget_old()

    async def _follow(self, call: HostTask, agent: Agent) -> Report[Any]:
        arguments = call.arguments
        budget = limit_budget(arguments.budget, self._limits)
        depth = DEFAULT_DEPTH if agent.budget.depth is None else agent.budget.depth
        stream = self.session.stream_task(
            arguments.text,
            outputs=arguments.schema,
            agent=agent,
            budget=replace(budget, depth=depth),
            model=arguments.model or None,
            description=arguments.description,
        )
        async with stream:
            async for event in stream:
                call.apply(event)
                self._by_run[call.run_id] = call
        return stream.report

    def _forget_old(self) -> None:
        ended = [name for name, call in self._calls.items() if call.has_ended]
        for name in ended[: max(0, len(ended) - _MAX_KEPT)]:
            del self._calls[name]


def is_success(call: HostTask) -> bool:
    """Return whether a task has reached its goal, or still works."""
    if not call.has_ended:
        return True
    return call.report is not None and call.report.reason is Reason.GOAL
