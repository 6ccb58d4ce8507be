"""HostTasks: the tasks of one server: start, find, cancel."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

from msgspec.structs import replace

from mudroom import Agent, AnyEvent, Budget, Mode, Reason, Report
from mudroom.driving import FairSlots, SessionDriver, Turn
from mudroom.errors import MudroomError, UnknownName, UsageError
from mudroom.views import find_root_id

from .host_task import LOCAL_OWNER, HostTask, Owner
from .task_request import LookArguments, TaskArguments, check_files, limit_budget

DEFAULT_AGENT = "general"
READING_AGENT = "explore"
DEFAULT_PARALLEL = 16
DEFAULT_KEPT = 1_000
"""Tasks of each owner that have ended whose results are kept."""
HEARTBEAT = 10.0
"""Seconds between two messages about progress if nothing happens."""
MAX_NESTING = 3
"""Servers of mudroom that may work for each other, one inside the other."""
DEFAULT_DEPTH = 1
"""Levels of children below a task if its agent sets none."""
_CANCEL_SECONDS = 5.0
"""Longest time that a call waits for the end of a task that it cancelled."""


class HostTasks:
    """The tasks of one server.

    Arguments:
        limits: of each task. Those of all tasks together are the budget of the session.
        parallel: tasks that run at the same time; more wait. Owners get fair shares.
        nesting: servers of mudroom above this one.
        kept: tasks of each owner that have ended whose results are kept.
    """

    def __init__(
        self,
        limits: Budget,
        *,
        parallel: int = DEFAULT_PARALLEL,
        nesting: int = 0,
        kept: int = DEFAULT_KEPT,
    ) -> None:
        self._limits = limits
        self._slots = FairSlots(parallel, per_owner=parallel)
        self._nesting = nesting
        self._kept = kept
        self._driver: SessionDriver[None] | None = None
        self._tasks: dict[str, HostTask] = {}
        self._by_run: dict[str, HostTask] = {}
        self._running: dict[str, Turn[None]] = {}
        self._numbers = count(1)

    @property
    def driver(self) -> SessionDriver[None]:
        """Runs the tasks. Raises UsageError if its session is not open."""
        if self._driver is None:
            raise UsageError("the server ends", remedy="Start it again.")
        return self._driver

    def open(self, driver: SessionDriver[None]) -> None:
        """Run the tasks in the open session of a driver."""
        self._driver = driver

    def list_agents(self, owner: Owner = LOCAL_OWNER) -> list[Agent]:
        """Return the agents that an owner may use."""
        names = owner.agents
        return [agent for agent in self.driver.session.agents if not names or agent.name in names]

    def start(
        self,
        arguments: TaskArguments,
        owner: Owner = LOCAL_OWNER,
        slots: asyncio.Semaphore | None = None,
    ) -> HostTask:
        """Start a task. Raises MudroomError for wrong arguments.

        Arguments:
            slots: tasks of the same call that run at the same time; None for no such limit.
        """
        return self._start(arguments, self._select_agent(arguments.agent, owner), owner, slots)

    def start_many(
        self, requests: Sequence[TaskArguments], limit: int | None, owner: Owner = LOCAL_OWNER
    ) -> list[HostTask]:
        """Start tasks, `limit` at a time. Raises MudroomError before the first one starts."""
        for arguments in requests:
            self._select_agent(arguments.agent, owner)
            self._check(arguments)
        slots = asyncio.Semaphore(limit) if limit else None
        return [self.start(arguments, owner, slots) for arguments in requests]

    def start_look(self, arguments: LookArguments, owner: Owner = LOCAL_OWNER) -> HostTask:
        """Start a task that cannot change anything."""
        agent = self._select_agent(READING_AGENT, owner)
        request = TaskArguments(prompt=arguments.prompt, files=arguments.files, agent=agent.name)
        return self._start(request, replace(agent, mode=Mode.PLAN), owner, None)

    def find(self, id: str, owner: Owner = LOCAL_OWNER) -> HostTask:
        """Return a task of an owner. Raises UnknownName."""
        task = self._tasks.get(id)
        if task is None or task.owner.name != owner.name:
            known = [task.id for task in self.list_tasks(owner)]
            raise UnknownName("task", id, known, remedy="Results of earlier servers: mudroom runs.")
        return task

    def find_by_run(self, run_id: str) -> HostTask | None:
        """Return the task that a run belongs to."""
        return self._by_run.get(find_root_id(run_id))

    def list_tasks(self, owner: Owner = LOCAL_OWNER) -> list[HostTask]:
        """Return the tasks of an owner, oldest first."""
        return [task for task in self._tasks.values() if task.owner.name == owner.name]

    async def cancel(self, tasks: Iterable[HostTask]) -> None:
        """Cancel tasks and wait until they have ended: no effect comes afterwards."""
        ending: list[asyncio.Task[None]] = []
        for task in tasks:
            if turn := self._running.get(task.id):
                task.is_cancelled = True
                turn.stop()
                ending.append(turn.task)
        if ending:
            await asyncio.wait(ending, timeout=_CANCEL_SECONDS)

    async def close(self) -> None:
        """Cancel all tasks and wait for their ends."""
        await self.cancel(list(self._tasks.values()))
        self._driver = None

    def _select_agent(self, name: str, owner: Owner) -> Agent:
        agents = {agent.name: agent for agent in self.list_agents(owner)}
        name = name or DEFAULT_AGENT
        if name not in agents:
            raise UnknownName("agent", name, agents)
        return agents[name]

    def _check(self, arguments: TaskArguments) -> None:
        if self._nesting >= MAX_NESTING:
            raise UsageError(
                f"{self._nesting} servers of mudroom work for each other already",
                remedy="Do the task without this server.",
            )
        check_files(arguments.files, self.driver.session.cwd)

    def _start(
        self,
        arguments: TaskArguments,
        agent: Agent,
        owner: Owner,
        slots: asyncio.Semaphore | None,
    ) -> HostTask:
        self._check(arguments)
        task = HostTask(f"t{next(self._numbers)}", arguments, owner)
        self._tasks[task.id] = task
        self._running[task.id] = self.driver.start(lambda turn: self._run(turn, task, agent, slots))
        return task

    async def _run(
        self, turn: Turn[Any], task: HostTask, agent: Agent, slots: asyncio.Semaphore | None
    ) -> None:
        report: Report[Any] | None = None
        error = "it was cancelled before it started"
        try:
            async with AsyncExitStack() as stack:
                if slots:
                    await turn.prepare(stack.enter_async_context(slots))
                await turn.prepare(stack.enter_async_context(self._slots.hold(task.owner.name)))
                report = await self._run_task(turn, task, agent)
            if report:
                error = report.error
        except MudroomError as failure:
            error = str(failure)
        except asyncio.CancelledError:
            if task.run_id:
                error = "it was cancelled"
        except Exception as failure:  # noqa: BLE001  (the host waits for a result in any case)
            error = f"{type(failure).__name__}: {failure}"
        finally:
            self._running.pop(task.id, None)
            self._by_run.pop(task.run_id, None)
            task.finish(report, error)
            self._forget_old(task.owner)

    async def _run_task(self, turn: Turn[Any], task: HostTask, agent: Agent) -> Report[Any] | None:
        def observe(event: AnyEvent) -> None:
            task.apply(event)
            self._by_run[task.run_id] = task

        arguments = task.arguments
        budget = limit_budget(arguments.budget, self._limits)
        depth = DEFAULT_DEPTH if agent.budget.depth is None else agent.budget.depth
        return await turn.run_task(
            arguments.text,
            on_event=observe,
            outputs=arguments.schema,
            agent=agent,
            budget=replace(budget, depth=depth),
            model=arguments.model or None,
            description=arguments.description,
        )

    def _forget_old(self, owner: Owner) -> None:
        ended = [task.id for task in self.list_tasks(owner) if task.has_ended]
        for name in ended[: max(0, len(ended) - self._kept)]:
            del self._tasks[name]


def is_success(task: HostTask) -> bool:
    """Return whether a task has reached its goal, or still works."""
    if not task.has_ended:
        return True
    return task.report is not None and task.report.reason is Reason.GOAL
