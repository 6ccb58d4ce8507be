"""The library's front door: open a session, run prompts, hand out tasks, close."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from . import assembly
from ._core.agents import Agent, Brief, Report
from ._core.budgets import Budget, Meter
from ._core.events import AnyEvent, SessionClosed, SessionOpened
from ._core.messages import Message
from ._core.ports import Approver, Journal, Model
from ._core.tools import Tool
from ._engine.task import narrowed
from ._engine.tree import transcript
from ._version import __version__
from .errors import UnknownName, UsageError
from .workers.local import LocalWorker


class Session:
    """One conversation with a root agent, and all runs below it.

    Arguments:
        model: a model string ("anthropic:claude-sonnet-4-5", "ollama:qwen3:8b", "offline"), "auto" (the first key or local
            server found in `environ`, else the offline model), or a Model of your own.
        child_model: model string for children whose agent says "inherit"; "inherit" is the parent's model.
        cwd: the folder all file tools are held in.
        home: where records are kept; default `$MUDROOM_HOME`, else the user's state folder.
        budget: limits of each root run. child_turns: turns of a child whose agent and call set none.
        max_children: children running at once; more wait.
        tools: your own tools, beside the built-in ones; one with a built-in's name takes its place.
        agents: your own agents, for `task`; one with a built-in's name takes its place.
        journal: "sqlite" (a file under `home`), "memory", or a Journal of your own.
        approver: who answers when a tool needs confirmation; default: no, at once.
        environ: where keys and addresses are looked up; default: the process's environment.

    Errors: UsageError (no such folder, unknown model), JournalError. Reads no files of yours unless a tool is asked to.

    Example:
        async with Session(model="offline", cwd="path/to/repo") as session:
            report = await session.run("Which testing framework does this project use?")
    """

    def __init__(
        self,
        *,
        model: str | Model = "auto",
        child_model: str = "inherit",
        cwd: str = ".",
        home: str | None = None,
        budget: Budget | None = None,
        child_turns: int = 30,
        max_children: int = 64,
        tools: Sequence[Tool] = (),
        agents: Sequence[Agent] = (),
        journal: str | Journal = "sqlite",
        approver: Approver | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.id = str(uuid.uuid4())
        self.notices: list[str] = []
        self.budget = Budget(depth=1) if budget is None else budget.over(Budget(depth=1))
        self._wish = assembly.Wish(
            session=self.id,
            model=model,
            child_model="" if child_model == "inherit" else child_model,
            cwd=cwd,
            home=home,
            child_budget=Budget(turns=child_turns),
            tools=tuple(tools),
            agents=tuple(agents),
            journal=journal,
            approver=approver,
            environ=environ,
        )
        self._most = max_children
        self._watchers: list[Callable[[AnyEvent], None]] = []
        self._runs = 0
        self._conversation: list[str] = []
        self._turn_taking = asyncio.Lock()
        self._house: assembly.House | None = None

    async def __aenter__(self) -> Session:
        house = assembly.build(self._wish, self._watchers)
        self._house, self._worker = house, LocalWorker(house.parts, self._most)
        self.notices.extend(house.notices)
        await self._record(
            SessionOpened(at=self._now(), session=self.id, cwd=self.cwd, version=__version__, sandbox=house.parts.sandbox.tier)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        house = self._open()
        try:
            await self._record(SessionClosed(at=self._now()))
        finally:
            self._house = None
            await house.close()

    @property
    def cwd(self) -> str:
        """Absolute path of the workspace."""
        return self._open().parts.workspace.root

    @property
    def model(self) -> str:
        """The root agent's model string."""
        return self._open().model

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the root agent's tools."""
        return tuple(self._open().parts.toolbox)

    @property
    def agents(self) -> tuple[Agent, ...]:
        """The agents `task` may call."""
        return tuple(self._open().parts.agents.values())

    def watch(self, watcher: Callable[[AnyEvent], None]) -> None:
        """Have `watcher` called with every event from now on, in order, deltas included. It must neither raise nor wait."""
        self._watchers.append(watcher)

    async def run(self, prompt: str) -> Report:
        """Give the root agent its next prompt. The conversation goes on from the last one; one prompt at a time."""
        async with self._turn_taking:
            house, history = self._open(), self._history()
            brief = self._brief(prompt, house.root, house.model, self.budget, history=history)
            self._conversation.append(brief.run_id)
            return await self._worker.run(brief, Meter(brief.budget))

    async def task(
        self, prompt: str, *, agent: str | Agent = "general", budget: Budget | None = None, model: str | None = None, description: str = ""
    ) -> Report:
        """Run one task in a clean context, beside the conversation.

        Arguments:
            agent: name of an agent, or one of your own. budget: fields left None come from the agent, then from the session.
            model: a model string in place of the agent's. description: three to five words for screens.
        """
        parts, who = self._open().parts, self._agent(agent)
        wish = (budget or Budget()).over(who.budget).over(parts.child_budget).over(Budget(depth=0))
        asked = model or who.model
        name = (parts.child_model or self.model) if asked == "inherit" else asked
        brief = self._brief(prompt, who, name, wish, description=description, depth=1)
        return await self._worker.run(brief, Meter(wish))

    async def map(
        self, prompts: Iterable[str], *, agent: str | Agent = "general", parallel: int | None = None, budget: Budget | None = None
    ) -> list[Report]:
        """Run many tasks, each in a clean context of its own, `parallel` at a time; the reports in the order of the prompts."""
        places = asyncio.Semaphore(parallel or self._most)

        async def one(prompt: str) -> Report:
            async with places:
                return await self.task(prompt, agent=agent, budget=budget)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(prompt)) for prompt in prompts]
        return [task.result() for task in tasks]

    def cancel(self, run_id: str | None = None) -> bool:
        """Stop one run (default: the conversation's current one) and all below it. Its report says CANCELLED."""
        return self._worker.cancel(run_id or (self._conversation or [""])[-1])

    @staticmethod
    def run_sync(prompt: str, **settings: Any) -> Report:
        """Open a session with `settings`, run one prompt, close; for programs without an event loop."""

        async def once() -> Report:
            async with Session(**settings) as session:
                return await session.run(prompt)

        return asyncio.run(once())

    def _brief(self, prompt: str, agent: Agent, model: str, budget: Budget, **more: Any) -> Brief:
        if not prompt.strip():
            raise UsageError("the prompt is empty", remedy="Say what is to be done.")
        self._runs += 1
        tools = narrowed(self.tools, agent.tools, depth=budget.depth or 0)
        return Brief(run_id=str(self._runs), agent=agent, prompt=prompt, tools=tools, model=model, budget=budget, **more)

    def _agent(self, agent: str | Agent) -> Agent:
        if isinstance(agent, Agent):
            return agent
        known = self._open().parts.agents
        if agent not in known:
            raise UnknownName("agent", agent, known)
        return known[agent]

    def _history(self) -> tuple[Message, ...]:
        journal = self._open().parts.journal
        return tuple(message for run in self._conversation for message in transcript(journal.read(run), run))

    def _open(self) -> assembly.House:
        if self._house is None:
            raise UsageError("the session is not open", remedy="Use it as `async with Session(...) as session:`.")
        return self._house

    def _now(self) -> float:
        return self._open().parts.clock.now()

    async def _record(self, event: SessionOpened | SessionClosed) -> None:
        await self._open().parts.journal.append(event)
        for watch in self._watchers:
            watch(event)
