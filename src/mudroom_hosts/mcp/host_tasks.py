"""HostTasks: a server's tasks, from the checked arguments of a call to their end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from itertools import count
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import astuple, replace

from mudroom import Agent, AnyEvent, ApprovalDecision, Budget, Mode, Reason, Report
from mudroom.driving import FairSlots, Question, SessionDriver, Turn, explain_mismatch
from mudroom.errors import MudroomError, UnknownName, UsageError
from mudroom.events import PermissionDecided, RunStarted, TurnFinished
from mudroom.views import RunTree, calculate_cost, find_root_id

MAX_TASKS = 1_000  # tasks per call of `task_many`
MAX_WAIT = 86_400.0  # seconds

_T = TypeVar("_T", bound=Struct)
_Text = Annotated[str, Meta(min_length=1)]
_Count = Annotated[int, Meta(ge=1)]
_Amount = Annotated[float, Meta(gt=0)]
Wait = Annotated[float, Meta(ge=0, le=MAX_WAIT)]


class BudgetArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits requested by the host; each can only lower one of the server's."""

    turns: _Count | None = None
    tokens: _Count | None = None
    seconds: _Amount | None = None
    usd: _Amount | None = None


class TaskArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One task, as requested by a host."""

    prompt: _Text
    agent: str = ""
    description: str = ""
    model: str = ""
    budget: BudgetArguments = BudgetArguments()
    files: tuple[_Text, ...] = ()  # paths that the prompt names
    schema: dict[str, Any] | None = None  # JSON Schema of the answer
    wait: Wait | None = None  # seconds until the call returns; the task continues

    @property
    def text(self) -> str:
        if not self.files:
            return self.prompt
        return "\n".join([self.prompt, "", "Files:", *(f"- {path}" for path in self.files)])


class ManyArguments(Struct, frozen=True, forbid_unknown_fields=True):
    tasks: Annotated[tuple[TaskArguments, ...], Meta(min_length=1, max_length=MAX_TASKS)]
    limit: _Count | None = None  # tasks running at the same time
    wait: Wait | None = None


class LookArguments(Struct, frozen=True, forbid_unknown_fields=True):
    prompt: _Text
    files: tuple[_Text, ...] = ()
    wait: Wait | None = None


class ResultArguments(Struct, frozen=True, forbid_unknown_fields=True):
    task: str | None = None  # None lists all tasks
    wait: Wait | None = None


class CancelArguments(Struct, frozen=True, forbid_unknown_fields=True):
    task: _Text


class NoArguments(Struct, frozen=True, forbid_unknown_fields=True):
    pass


def parse_arguments(kind: type[_T], arguments: dict[str, Any], tool: str) -> _T:
    try:
        return msgspec.convert(arguments, kind)
    except msgspec.ValidationError as error:
        reason = explain_mismatch(error)
        raise UsageError(
            f"wrong arguments: {reason}", where=tool, remedy="Correct the call and repeat it."
        ) from error


def check_files(files: tuple[str, ...], folder: str) -> None:
    for path in files:
        if not os.path.exists(os.path.join(folder, path)):
            raise UsageError("no such file", where=path, remedy=f"Name files relative to {folder}.")


def limit_budget(requested: BudgetArguments, limits: Budget) -> Budget:
    wanted = Budget(
        turns=requested.turns,
        total_tokens=requested.tokens,
        seconds=requested.seconds,
        usd=requested.usd,
    )
    pairs: Any = zip(astuple(wanted), astuple(limits), strict=True)
    given = ([each for each in pair if each is not None] for pair in pairs)
    return Budget(*[min(amounts, default=None) for amounts in given])


State = Literal["waiting", "working", "asking", "ended"]
_MAX_DENIALS = 50  # refused calls listed in a result


class Owner(Struct, frozen=True, kw_only=True):
    """Who gives tasks; owners do not see each other's tasks."""

    name: str = ""  # "" for the host at stdin
    agents: tuple[str, ...] = ()  # those it may use; () for all
    can_answer: bool = True  # it may answer questions about tool calls


LOCAL_OWNER = Owner()
OWNER_KEY = "mudroom.owner"  # the owner's key in the scope of an HTTP request (ASGI)


class Denial(Struct, frozen=True):
    run: str  # the run that wanted it
    tool: str
    why: str


class ChildEnd(Struct, frozen=True):
    run: str
    agent: str
    reason: str  # "" while running


class HostTask:
    """One task. `id` names it in the host's later calls."""

    def __init__(self, id: str, arguments: TaskArguments, owner: Owner = LOCAL_OWNER) -> None:
        self.id = id
        self.arguments = arguments
        self.owner = owner
        self.run_id = ""  # until the task has started
        self.report: Report[Any] | None = None
        self.error = ""  # why there is no report, such as an unknown agent
        self.turns = 0  # model calls of the task and the runs below it
        self.usd: float | None = 0.0
        self.denials: list[Denial] = []
        self.children: tuple[ChildEnd, ...] = ()
        self.questions: dict[str, Question] = {}
        self.watchers: set[asyncio.Event] = set()  # set after each change
        self.has_ended = False
        self.can_ask = False  # the host that gave it shows questions to its user
        self.is_cancelled = False
        self._tree: RunTree | None = None

    @property
    def state(self) -> State:
        if self.has_ended:
            return "ended"
        if self.questions:
            return "asking"
        return "working" if self.run_id else "waiting"

    def apply(self, event: AnyEvent) -> None:
        if self._tree is None:
            self._tree = RunTree()
        self._tree.apply(event)
        match event:
            case RunStarted() if not self.run_id:
                self.run_id = event.run
            case TurnFinished():
                self._add_turn(event)
            case PermissionDecided(allowed=False) if len(self.denials) < _MAX_DENIALS:
                why = event.approver_reason or event.policy_reason
                self.denials.append(Denial(event.run, event.name, why))
            case _:
                return
        self.notify()

    def _add_turn(self, event: TurnFinished) -> None:
        self.turns += 1
        view = self._tree.runs.get(event.run) if self._tree else None
        answer = event.message
        cost = calculate_cost(answer.answered_by or view.model, answer.usage) if view else None
        self.usd = None if cost is None or self.usd is None else self.usd + cost

    def finish(self, report: Report[Any] | None, error: str = "") -> None:
        self.children = self.list_children()
        self._tree = None  # the report has all a result needs
        self.report = report
        self.error = error
        self.has_ended = True
        for question in list(self.questions.values()):
            question.answer(ApprovalDecision(False, "the task has ended"))
        self.questions.clear()
        self.notify()

    def notify(self) -> None:
        for watcher in self.watchers:
            watcher.set()

    def list_children(self) -> tuple[ChildEnd, ...]:
        """List the runs below the task, parents first."""
        if self._tree is None or self.run_id not in self._tree.runs:
            return self.children
        return tuple(
            ChildEnd(run.run_id, run.agent, run.report.reason.value if run.report else "")
            for run in self._tree.walk(self.run_id)
            if run.run_id != self.run_id
        )

    def describe_progress(self) -> str:
        if not self.run_id or self._tree is None:
            return self.state
        root = self._tree.runs[self.run_id]
        facts = [
            _count(len(self.list_children()), "child run"),
            _count(self.turns, "request"),
            f"{root.total_usage.total_tokens:,} tokens",
        ]
        if self.usd is not None:
            facts.append(f"{self.usd:.2f} USD")
        action = root.last_action
        return f"{', '.join(facts)}{f'; {action}' if action else ''}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


DEFAULT_AGENT = "general"
READING_AGENT = "explore"
DEFAULT_PARALLEL = 16
DEFAULT_KEPT = 1_000  # finished tasks per owner whose results are kept
HEARTBEAT = 10.0  # seconds between progress messages while nothing happens
MAX_NESTING = 3  # mudroom servers that may work for one another, nested
DEFAULT_DEPTH = 1  # levels of children below a task if its agent sets none
_CANCEL_SECONDS = 5.0  # longest wait of a call for the end of a task it cancelled


class HostTasks:
    """A server's tasks, some of them running concurrently; owners get fair shares.

    The limits apply to each task, the session's budget to all together. `nesting` counts the
    mudroom servers above this one.
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
        self._driver = driver

    def list_agents(self, owner: Owner = LOCAL_OWNER) -> list[Agent]:
        names = owner.agents
        return [agent for agent in self.driver.session.agents if not names or agent.name in names]

    def start(
        self,
        arguments: TaskArguments,
        owner: Owner = LOCAL_OWNER,
        slots: asyncio.Semaphore | None = None,
    ) -> HostTask:
        """Start a task. `slots` limits the concurrent tasks of the same call."""
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
        task = self._tasks.get(id)
        if task is None or task.owner.name != owner.name:
            known = [task.id for task in self.list_tasks(owner)]
            raise UnknownName("task", id, known, remedy="Results of earlier servers: mudroom runs.")
        return task

    def find_by_run(self, run_id: str) -> HostTask | None:
        return self._by_run.get(find_root_id(run_id))

    def list_tasks(self, owner: Owner = LOCAL_OWNER) -> list[HostTask]:
        """List an owner's tasks, oldest first."""
        return [task for task in self._tasks.values() if task.owner.name == owner.name]

    async def cancel(self, tasks: Iterable[HostTask]) -> None:
        """Cancel tasks and wait until they have ended, so that no effect comes afterwards."""
        ending: list[asyncio.Task[None]] = []
        for task in tasks:
            if turn := self._running.get(task.id):
                task.is_cancelled = True
                turn.stop()
                ending.append(turn.task)
        if ending:
            await asyncio.wait(ending, timeout=_CANCEL_SECONDS)

    async def close(self) -> None:
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
        except Exception as failure:  # noqa: BLE001  (the host waits for a result regardless)
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
    # A running task has not failed.
    if not task.has_ended:
        return True
    return task.report is not None and task.report.reason is Reason.GOAL
