"""The library's front door: open a session, run prompts, hand out tasks, close."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from msgspec.structs import replace

from . import build
from ._core.agents import Agent, Brief, Mode, Report
from ._core.budgets import Budget
from ._core.events import AnyEvent, SessionClosed, SessionOpened
from ._core.messages import Message
from ._core.ports import Approver, Journal, Model, Sandbox, Worker, Workspace
from ._core.tools import Tool
from ._engine.compaction import RUN_TITLE, summary_prompt
from ._engine.task import narrow_tools
from ._version import __version__
from .agent_catalog import find_agent
from .conversation_state import ConversationState
from .errors import UsageError
from .output_types import parse_output_type
from .permissions.rules import Permissions
from .pricing import require_price
from .workers.local import LocalWorker

if TYPE_CHECKING:
    from .scope import (
        ContextState,
        ModelConfig,
        OutputConfig,
        OutputObject,
        PromptConfig,
        RunConfig,
        ToolConfig,
    )

T = TypeVar("T")


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
        root: the agent that runs prompts, or its name; default: the built-in one.
        agent_files: whether to use the agent files, skills and context files (AGENTS.md, CLAUDE.md, …) of the folder and of the
            person whose HOME is in `environ`.
        journal: "sqlite" (a file under `home`), "memory", or a Journal of your own.
        approver: who answers when a tool needs confirmation; default: no, at once.
        sandbox: where commands run: "full" or "file" walls, "auto" (the best there is; without any each command must be confirmed),
            "off" (no walls). network: whether commands reach it.
        environ: where keys and addresses are looked up; default: the process's environment.
        permissions: rules and mode for what tools may do; default: whatever the sandbox holds, and nothing that needs confirmation.
        trusted: whether agents of the folder get the rights they ask for; else they may only read.
        resume: id of a recorded session, or the beginning of one, to go on with; its folder and model are taken over.
        prices: whether reports say what was spent in US dollars; a budget in dollars turns it on.
        fork: go on with a copy of that session under a new id, and leave the record as it is.
        id: a UUID for a new session, or for a fork; default: a new one.

    Errors: UsageError (no such folder, unknown model), JournalError. Reads no files of yours unless a tool is asked to.

    Example:
        async with Session(model="offline", cwd=".") as session:
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
        agent: str | Agent | None = None,
        agent_files: bool = False,
        journal: str | Journal = "sqlite",
        approver: Approver | None = None,
        sandbox: str = "auto",
        network: bool = False,
        permissions: Permissions | None = None,
        trusted: bool = True,
        environ: Mapping[str, str] | None = None,
        resume: str = "",
        fork: bool = False,
        prices: bool = False,
        id: str = "",
    ) -> None:
        self.id = str(uuid.UUID(id) if id else uuid.uuid4())
        self.notices: list[str] = []
        self.budget = Budget(depth=1) if budget is None else budget.with_defaults(Budget(depth=1))
        self._options = build.SessionOptions(
            session_id=self.id,
            model=model,
            child_model="" if child_model == "inherit" else child_model,
            cwd=cwd,
            home=home,
            child_budget=Budget(turns=child_turns),
            tools=tuple(tools),
            agents=tuple(agents),
            agent=agent,
            agent_files=agent_files,
            journal=journal,
            approver=approver,
            sandbox=sandbox,
            network=network,
            permissions=permissions or Permissions(),
            trusted=trusted,
            environ=environ,
            resume=resume,
            fork=fork,
            prices=prices or self.budget.usd is not None,
        )
        self._max_children = max_children
        self._watchers: list[Callable[[AnyEvent], None]] = []
        self._conversation = ConversationState()
        self._prompt_lock = asyncio.Lock()
        self._resources: build.SessionResources | None = None

    async def __aenter__(self) -> Session:
        if self._options.resume:
            self._options = build.load_recorded_options(self._options)
            self.id = self._options.session_id
        self._resources = house = build.build(
            self._options, self._watchers, self._conversation.unfinished_events
        )
        self._worker = LocalWorker(house.services, self._max_children)
        try:
            await self._start(house)
        except BaseException:
            self._resources = None
            await house.close()
            raise
        return self

    async def _start(self, house: build.SessionResources) -> None:
        self.notices.extend(house.notices)
        if self.budget.usd is not None:
            require_price(house.model)
        if self._options.resume:
            if self._options.fork:
                await build.copy_journal(self._options, house.services.journal)
            self._conversation.load(house.services.journal.read())
        tier, granted = house.services.sandbox.tier, build.list_grants(self._options)
        opened = SessionOpened(
            at=house.services.clock.now(),
            session=self.id,
            cwd=self.cwd,
            version=__version__,
            sandbox=tier,
            granted=granted,
        )
        await self._record(opened)
        await house.models.preload()

    @property
    def unfinished_runs(self) -> tuple[str, ...]:
        """Root runs that a dead process left, by run id; `finish` brings them to their end."""
        return self._conversation.unfinished_runs

    async def resume_unfinished(self) -> Report | None:
        """Bring what a dead process left to its end, from its last step; the report of the last such run, None if there was none."""
        async with self._prompt_lock:
            return await self._finish_runs()

    async def _finish_runs(self) -> Report | None:
        report = None
        for run_id in self.unfinished_runs:
            brief = self._conversation.resumed_brief(run_id)
            report = await self._run_root(brief)
        self._conversation.unfinished_events.clear()
        return report

    async def __aexit__(self, *_: object) -> None:
        house = self._require_open()
        try:
            await self._record(SessionClosed(at=house.services.clock.now()))
        finally:
            self._resources = None
            await house.close()

    @property
    def cwd(self) -> str:
        """Absolute path of the workspace."""
        return self._require_open().services.workspace.root

    @property
    def model(self) -> str:
        """The root agent's model string."""
        return self._require_open().model

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the root agent's tools."""
        return tuple(self._require_open().services.toolbox)

    @property
    def agents(self) -> tuple[Agent, ...]:
        """The agents `task` may call."""
        return tuple(self._require_open().services.agents.values())

    @property
    def toolbox(self) -> Mapping[str, Tool]:
        """The tools, by name."""
        return self._require_open().services.toolbox

    @property
    def workspace(self) -> Workspace:
        """The files the runs see."""
        return self._require_open().services.workspace

    @property
    def sandbox(self) -> Sandbox:
        """Where commands run."""
        return self._require_open().services.sandbox

    @property
    def redact(self) -> Callable[[str], str]:
        """Takes secrets out of a text."""
        return self._require_open().services.redact

    def watch(self, watcher: Callable[[AnyEvent], None]) -> Callable[[], None]:
        """Have `watcher` called with every event from now on, in order, deltas included; call what is returned to stop it.

        It must neither raise nor wait.
        """
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    @overload
    async def run(self, prompt: str) -> Report: ...
    @overload
    async def run(self, prompt: str, *, outputs: type[T]) -> Report[T]: ...
    @overload
    async def run(self, prompt: str, *, outputs: Mapping[str, Any]) -> Report: ...
    async def run(self, prompt: str, *, outputs: Any = None) -> Report[Any]:
        """Give the root agent its next prompt. The conversation goes on from the last one; one prompt at a time.

        Arguments:
            outputs: values it must emit: name -> description, a JSON Schema, or a dataclass, TypedDict, msgspec or pydantic type.
        """
        async with self._prompt_lock:
            await self._finish_runs()
            root, form = (
                self._require_open().root_agent,
                parse_output_type(outputs) if outputs is not None else None,
            )
            root = replace(root, outputs=form.outputs) if form else root
            report = await self._continue_conversation(
                prompt, root, self.budget.with_defaults(root.budget)
            )
            return form.convert_report(report) if form else report

    async def compact(self, focus: str = "") -> Report:
        """Have the model tell the conversation in short, and go on from that alone; the record keeps it whole.

        Nothing has changed when the report's reason is neither GOAL nor `recovered`. `focus`: what must not be lost.

        Errors: UsageError when nothing was said yet.
        """
        async with self._prompt_lock:
            await self._finish_runs()
            if not self._conversation.latest_run:
                raise UsageError(
                    "there is no conversation to compact", remedy="Say first what is to be done."
                )
            root = replace(self._require_open().root_agent, mode=Mode.PLAN)
            return await self._continue_conversation(
                summary_prompt(focus),
                root,
                Budget(turns=1, children=0).with_defaults(self.budget),
                compacts=True,
                description=RUN_TITLE,
            )

    async def _continue_conversation(
        self, prompt: str, root: Agent, budget: Budget, **more: Any
    ) -> Report[Any]:
        house, latest = self._require_open(), self._conversation.latest_run
        said = self._conversation.history(house.services.journal.read())
        brief = self._make_brief(
            prompt, root, house.model, budget, continues=latest, history=said, **more
        )
        self._conversation.latest_run = brief.run_id
        return await self._run_root(brief)

    async def _run_root(self, brief: Brief) -> Report[Any]:
        report: Report | None = None
        try:
            report = await self._run_brief(self._worker, brief)
            return report
        finally:
            self._conversation.apply_outcome(brief, report)

    async def _run_brief(self, worker: Worker, brief: Brief) -> Report[Any]:
        meters = self._require_open().services.meters
        grant = meters.open(brief.run_id, brief.budget)
        try:
            return await worker.start(brief, grant).report()
        finally:
            meters.close(grant)

    @overload
    async def task(
        self,
        prompt: str,
        *,
        agent: str | Agent = ...,
        budget: Budget | None = ...,
        model: str | None = ...,
        description: str = ...,
    ) -> Report: ...
    @overload
    async def task(
        self,
        prompt: str,
        *,
        outputs: type[T],
        agent: str | Agent = ...,
        budget: Budget | None = ...,
        model: str | None = ...,
        description: str = ...,
    ) -> Report[T]: ...
    @overload
    async def task(
        self,
        prompt: str,
        *,
        outputs: Mapping[str, Any],
        agent: str | Agent = ...,
        budget: Budget | None = ...,
        model: str | None = ...,
        description: str = ...,
    ) -> Report: ...
    async def task(
        self,
        prompt: str,
        *,
        outputs: Any = None,
        agent: str | Agent = "general",
        budget: Budget | None = None,
        model: str | None = None,
        description: str = "",
    ) -> Report[Any]:
        """Run one task in a clean context, beside the conversation.

        Arguments:
            outputs: as for `run`. agent: name of an agent, or one of your own.
            budget: fields left None come from the agent, then from the session.
            model: a model string in place of the agent's. description: three to five words for screens.
        """
        who, form = (
            self._resolve_agent(agent),
            parse_output_type(outputs) if outputs is not None else None,
        )
        wish = (
            (budget or Budget())
            .with_defaults(who.budget)
            .with_defaults(self._require_open().services.child_budget)
            .with_defaults(Budget(depth=0))
        )
        who = replace(who, outputs=form.outputs) if form else who
        brief = self._make_brief(
            prompt,
            who,
            self._resolve_model(model or who.model),
            wish,
            description=description,
            depth=1,
        )
        report = await self._run_brief(self._worker, brief)
        return form.convert_report(report) if form else report

    @overload
    async def map(
        self,
        prompts: Iterable[str],
        *,
        agent: str | Agent = ...,
        parallel: int | None = ...,
        budget: Budget | None = ...,
    ) -> list[Report]: ...
    @overload
    async def map(
        self,
        prompts: Iterable[str],
        *,
        outputs: type[T],
        agent: str | Agent = ...,
        parallel: int | None = ...,
        budget: Budget | None = ...,
    ) -> list[Report[T]]: ...
    @overload
    async def map(
        self,
        prompts: Iterable[str],
        *,
        outputs: Mapping[str, Any],
        agent: str | Agent = ...,
        parallel: int | None = ...,
        budget: Budget | None = ...,
    ) -> list[Report]: ...
    async def map(
        self,
        prompts: Iterable[str],
        *,
        outputs: Any = None,
        agent: str | Agent = "general",
        parallel: int | None = None,
        budget: Budget | None = None,
    ) -> list[Report[Any]]:
        """Run many tasks, each in a clean context of its own, `parallel` at a time; the reports in the order of the prompts."""
        places = asyncio.Semaphore(parallel or self._max_children)

        async def one(prompt: str) -> Report[Any]:
            async with places:
                return await self.task(prompt, outputs=outputs, agent=agent, budget=budget)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(prompt)) for prompt in prompts]
        return [task.result() for task in tasks]

    async def scope(
        self,
        name: str,
        prompt_config: PromptConfig,
        model_config: ModelConfig | None = None,
        run_config: RunConfig | None = None,
        tool_config: ToolConfig | None = None,
        output_config: OutputConfig | None = None,
        on_message: Callable[[str], Any] | None = None,
        *,
        context: ContextState | None = None,
    ) -> OutputObject:
        """Make a SubAgentScope and run it, in one call; what came of it. `context`: values for `${key}` places.

        Errors: those of `SubAgentScope.create` and `run_non_interactive`.
        """
        from . import scope

        made = await scope.SubAgentScope.create(
            name,
            self,
            prompt_config,
            model_config or scope.ModelConfig(),
            run_config or scope.RunConfig(),
            tool_config,
            output_config,
            on_message,
        )
        await made.run_non_interactive(context or scope.ContextState())
        return made.output

    async def execute(
        self,
        agent: Agent,
        prompt: str,
        *,
        tools: Mapping[str, Tool],
        history: tuple[Message, ...] = (),
        started: Callable[[str], None],
    ) -> Report:
        """Run an agent with tools of its own and nobody to confirm anything: what scopes are made of.

        Arguments:
            tools: all it has, by name. history: messages before the prompt. started: called with the run id before the run begins.
        """
        parts = replace(
            self._require_open().services, toolbox=tools, approver=build.DenyAllApprover()
        )
        brief = self._make_brief(
            prompt, agent, self._resolve_model(agent.model), agent.budget, history=history, depth=1
        )
        brief = replace(brief, tools=narrow_tools(tools, None, depth=agent.budget.depth or 0))
        started(brief.run_id)
        return await self._run_brief(self._worker.with_services(parts), brief)

    def send(self, run_id: str, message: str) -> bool:
        """Give a running run a word: it reads it with its next results, or before it would have ended. False if it is not running."""
        handle = self._worker.find(run_id)
        return handle is not None and handle.send(message)

    def wrap_up(self, run_id: str) -> bool:
        """Have a running run stop what it does and report what it has; its reason is CANCELLED, recovered. False if it is not running."""
        handle = self._worker.find(run_id)
        return handle is not None and handle.wrap_up()

    def cancel(self, run_id: str | None = None) -> bool:
        """Stop one run (default: the conversation's current one) and all below it. Its report says CANCELLED."""
        handle = self._worker.find(run_id or self._conversation.latest_run)
        return handle is not None and handle.cancel()

    def rewind(self, run_id: str) -> None:
        """Take the conversation back to before the prompt of a root run; files stay as they are."""
        self._conversation.rewind(self._require_open().services.journal.read(), run_id)

    @staticmethod
    def run_sync(prompt: str, **settings: Any) -> Report:
        """Open a session with `settings`, run one prompt, close; for programs without an event loop."""

        async def once() -> Report:
            async with Session(**settings) as session:
                return await session.run(prompt)

        return asyncio.run(once())

    def _make_brief(
        self, prompt: str, agent: Agent, model: str, budget: Budget, **more: Any
    ) -> Brief:
        if not prompt.strip():
            raise UsageError("the prompt is empty", remedy="Say what is to be done.")
        self._conversation.run_count += 1
        tools = narrow_tools(self.tools, agent.tools, depth=budget.depth or 0)
        most = self._options.permissions.mode
        mode = (agent.mode or most).limit_to(most)
        return Brief(
            run_id=str(self._conversation.run_count),
            agent=agent,
            prompt=prompt,
            tools=tools,
            model=model,
            budget=budget,
            mode=mode,
            **more,
        )

    def _resolve_model(self, asked: str) -> str:
        if asked != "inherit":
            return self._require_open().services.get_model(asked).name
        return self._require_open().services.child_model or self.model

    def _resolve_agent(self, agent: str | Agent) -> Agent:
        if isinstance(agent, Agent):
            return agent
        return find_agent(agent, self._require_open().services.agents)

    def _require_open(self) -> build.SessionResources:
        if self._resources is None:
            raise UsageError(
                "the session is not open", remedy="Use it as `async with Session(...) as session:`."
            )
        return self._resources

    async def _record(self, event: SessionOpened | SessionClosed) -> None:
        await self._require_open().services.journal.append(event)
        for watch in self._watchers:
            watch(event)
