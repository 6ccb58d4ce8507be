"""The session: opens, runs prompts and tasks, closes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from types import CoroutineType
from typing import TYPE_CHECKING, Any, overload

from msgspec.structs import replace

from .._core.agents import Agent
from .._core.budgets import Budget
from .._core.events import AnyEvent, StoredEvent
from .._core.notices import Notice
from .._core.ports import Sandbox, Workspace
from .._core.runs import RecordedTask, Report
from .._core.runs import T as Outputs
from .._core.type_checks import check_type
from .._engine.session_context import Watchers
from .._projections.open_events import OpenEvents
from ..errors import UsageError
from ..permissions.rules import Permissions
from . import build, recorded_options
from .controls import McpControls, RunControls
from .conversation_state import ConversationState
from .options import Plugin, SessionOptions, list_chosen, make_options, use_signature
from .prompts import OutputSpec, Prompt
from .run_stream import RunStream
from .runner import SessionRunner
from .tasks import read_reports, resume_task, run_task, run_tasks, stream_tasks

if TYPE_CHECKING:
    from ..scope import (
        ContextState,
        ModelConfig,
        OutputConfig,
        OutputObject,
        PromptConfig,
        RunConfig,
        ToolConfig,
    )
    from ..scope.subagent import ScopeRuntime


class Session:
    """One conversation with a root agent, and all runs below it.

    Its keyword arguments are the fields of `SessionOptions`, which describes them.

    Attributes:
        notices: messages for the user about how the session was opened, by kind.
        start_source: why a new session starts, for hooks, such as "clear" after another one. Set it
            before the session opens. A resumed or forked session has its own source.
        end_reason: why the session ends, for hooks. Set it before the end.
        chosen_options: flat names of the options that override a resumed session's record, by
            default those given here.
        allows_offline: let the model "auto" fall back to the offline model. Only for a user who
            reads the notice along with the answer: a service, or a file of results, would pass a
            demo off as a model. Set it before the session opens.

    Opening raises UsageError (no such folder, unknown model) and JournalError. Without a model it
    raises UsageError("no model: no API key and no local server found"): neither `model` nor the
    agent names one, and `environ` has no MUDROOM_MODEL, no key (ANTHROPIC_API_KEY, OPENAI_API_KEY,
    GEMINI_API_KEY or that of another provider) and no address (OPENAI_BASE_URL, OLLAMA_HOST, ...).
    `model="offline"` chooses the offline model, a demo, on purpose. If a model fails later, no
    exception is raised: the run's report has the reason.

    Example:
        async with Session(model="offline", cwd=".") as session:
            report = await session.run("Which testing framework does this project use?")
    """

    @use_signature(SessionOptions)
    def __init__(self, **options: Any) -> None:
        self._options = make_options(options)
        self._budget = self._options.budget
        self.notices: list[Notice] = []
        self.start_source = "startup"
        self.end_reason = "other"
        self.allows_offline = False
        self.chosen_options = list_chosen(options)
        self._conversation = ConversationState()
        self._watchers = Watchers()
        self._history_watchers: list[Callable[[StoredEvent], None]] = []
        self._runner: SessionRunner | None = None

    async def __aenter__(self) -> Session:
        recorded: OpenEvents | None = None
        if self._options.resume:
            # A screen with the history, or a fork, also needs the events of ended tasks.
            drops_tasks = not (self._history_watchers or self._options.fork)
            self._options, recorded = await recorded_options.use_recorded_options(
                self._options, drops_tasks=drops_tasks, chosen=self.chosen_options
            )
            self._budget = self._options.budget
        resources = await build.open_resources(
            self._options,
            self._watchers,
            self._conversation.unfinished_events,
            allows_offline=self.allows_offline,
        )
        self._runner = SessionRunner(resources, self._options, self._conversation, self._watchers)
        self._runner.meter.set_limits(self._budget)
        try:
            await self._start(self._runner, recorded)
        except BaseException:
            self._runner = None
            await resources.close()
            raise
        return self

    async def _start(self, runner: SessionRunner, recorded: OpenEvents | None) -> None:
        self.notices.extend(runner.resources.notices)
        if recorded is not None:
            self.notices += await runner.load_record(recorded, self._history_watchers)
        await runner.resources.models.load_replays()
        runner.record_opening(self.id, self.cwd, recorded_options.list_rights(self._options))
        if hooks := runner.resources.services.hooks:
            source = "resume" if self._options.resume else self.start_source
            await hooks.on_session_start("fork" if self._options.fork else source)

    async def __aexit__(self, *_: object) -> None:
        runner = self._require_open()
        try:
            await runner.end_runs()
            if hooks := runner.resources.services.hooks:
                await hooks.on_session_end(self.end_reason)
            await runner.record_closing()
        finally:
            self._runner = None
            await runner.resources.close()

    @property
    def runs(self) -> RunControls:
        """The running runs: list them, send them messages, stop them."""
        return RunControls(self._require_open)

    @property
    def mcp(self) -> McpControls:
        """The MCP servers: their states, tools, prompts and resources."""
        return McpControls(self._require_open)

    @property
    def budget(self) -> Budget:
        """Limits of all the session's runs together. Setting it keeps what earlier runs spent."""
        return self._budget

    @budget.setter
    def budget(self, budget: Budget) -> None:
        check_type("budget", budget, Budget, "Session")
        self._budget = budget
        if self._runner is not None:
            self._runner.meter.set_limits(budget)
            return
        # If set before the session opens, it overrides a resumed session's record.
        self._options = replace(self._options, budget=budget)
        self.chosen_options |= {"budget"}

    @property
    def id(self) -> str:
        """The session's id, a UUID."""
        return self._options.id

    @property
    def cwd(self) -> str:
        """The workspace's absolute path."""
        return self.workspace.root

    @property
    def model(self) -> str:
        """The root agent's model string."""
        return self._require_open().resources.model

    def find_context_window(self, model: str) -> int:
        """Return the tokens a model's context can hold, 0 without a known limit.

        The session's runs use the same number. It is 0 while the session is not open.

        Example:
            print(session.find_context_window(session.model))
        """
        if self._runner is None:
            return 0
        return self._runner.resources.services.context_policy.get_window(model)

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of all the session's tools: the built-in ones and those that options add.

        An agent has all or some of them. MCP tools are in `session.mcp.tools`.
        """
        return tuple(self._require_open().resources.services.toolbox)

    @property
    def agents(self) -> tuple[Agent, ...]:
        """The agents that `task` can run."""
        return tuple(self._require_open().resources.services.agents.values())

    @property
    def output_style(self) -> str:
        """Name of the root agent's output style, "default" for none."""
        return self._require_open().resources.output_style or "default"

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """The plugins whose agents, skills and commands the session uses."""
        return tuple(self._options.integrations.plugins)

    @property
    def permissions(self) -> Permissions:
        """The session's permission rules and mode."""
        return self._options.permissions

    @property
    def home(self) -> str:
        """mudroom's state folder, an absolute path."""
        return recorded_options.find_home(self._options)

    @property
    def user_home(self) -> str:
        """The user's home, which `~` means in rules about paths."""
        return recorded_options.get_environ(self._options).get("HOME", "/")

    @property
    def trusted(self) -> bool:
        """True if the folder's agents have the rights their files ask for."""
        return self._options.integrations.trusted

    @property
    def workspace(self) -> Workspace:
        """The files the runs see."""
        return self._require_open().resources.services.environments.shared.workspace

    @property
    def sandbox(self) -> Sandbox:
        """Where commands run."""
        return self._require_open().resources.services.environments.shared.sandbox

    def read_version(self, digest: str) -> bytes | None:
        """Read an earlier version of a file that a tool wrote. Return None if it was not kept.

        Arguments:
            digest: `before` or `after` of a `FileWriteIntended` event; "" means that there was no
                file, and returns b"".

        Returns None while the session is not open.

        Example:
            from mudroom.events import FileWriteIntended

            writes: list[FileWriteIntended] = []
            session.watch(lambda e: writes.append(e) if isinstance(e, FileWriteIntended) else None)
            await session.run("Which testing framework does this project use?")
            print([session.read_version(write.before) for write in writes])
        """
        if not digest:
            return b""
        versions = self._runner and self._runner.resources.services.versions
        return versions.read(digest) if versions else None

    def watch(self, watcher: Callable[[AnyEvent], None]) -> Callable[[], None]:
        """Call `watcher` with every event from now on, in order, including streamed text.

        It must neither raise nor block. Call the returned function to stop watching.
        """
        check_type("watcher", watcher, Callable[..., Any], "watch")
        self._watchers.append(watcher)

        def stop_watching() -> None:
            self._watchers.remove(watcher)

        return stop_watching

    def watch_history(self, watcher: Callable[[StoredEvent], None]) -> None:
        """Call `watcher` with each event of the resumed session while the session opens."""
        check_type("watcher", watcher, Callable[..., Any], "watch_history")
        self._history_watchers.append(watcher)

    async def run(
        self, prompt: Prompt, *, outputs: OutputSpec[Outputs] = None, model: str = ""
    ) -> Report[Outputs]:
        """Give the root agent its next prompt in the conversation. Prompts run one at a time.

        Arguments:
            prompt: a text, or TextBlocks and ImageBlocks. A model that takes no images gets a
                placeholder for each.
            outputs: values the run must emit: name -> description, a JSON Schema, or a dataclass,
                TypedDict, msgspec or pydantic type, which the report then has a value of.
            model: a model string for this prompt only.
        """
        return await self._require_open().run_prompt(prompt, outputs, model=model)

    def stream(self, prompt: Prompt, *, outputs: OutputSpec[Outputs] = None) -> RunStream[Outputs]:
        """Run a prompt like `run`, iterating over its events meanwhile.

        Example:
            async with session.stream("Find the author.") as stream:
                async for event in stream:
                    print(event)
            print(stream.report.text)
        """
        runner = self._require_open()
        return RunStream(lambda watcher: runner.run_prompt(prompt, outputs, watcher))

    async def task(
        self,
        prompt: Prompt,
        *,
        outputs: OutputSpec[Outputs] = None,
        agent: str | Agent = "general",
        budget: Budget | None = None,
        model: str | None = None,
        description: str = "",
        check: str = "",
        confirm_check: bool = False,
        key: str = "",
    ) -> Report[Outputs]:
        """Run a task in a clean context, outside the conversation.

        Arguments:
            outputs: as for `run`.
            agent: the agent, or its name.
            budget: fields that are None come from the agent, then from the session.
            model: a model string that overrides the agent's.
            description: three to five words for screens.
            check: command that must succeed on a copy of the files once the task has reached its
                goal; otherwise the report's reason is ERROR.
            confirm_check: treat the command like one from a model, which may need approval.
            key: your own id for the task, kept in the recorded brief.
        """
        return await run_task(
            self._require_open(),
            prompt,
            outputs,
            agent,
            budget,
            model=model,
            description=description,
            check=check,
            confirm_check=confirm_check,
            key=key,
        )

    def stream_task(
        self,
        prompt: Prompt,
        *,
        outputs: OutputSpec[Outputs] = None,
        agent: str | Agent = "general",
        budget: Budget | None = None,
        model: str | None = None,
        description: str = "",
    ) -> RunStream[Outputs]:
        """Run a task like `task`, iterating over its events meanwhile.

        Arguments:
            outputs, agent, budget, model, description: as for `task`.

        Example:
            async with session.stream_task("Find the author.", agent="explore") as stream:
                async for event in stream:
                    print(event.run)
            print(stream.report.text)
        """
        runner = self._require_open()
        more = {"model": model, "description": description}
        return RunStream(
            lambda watcher: run_task(runner, prompt, outputs, agent, budget, watcher, **more)
        )

    def check_task(self, *, agent: str | Agent = "general", model: str | None = None) -> None:
        """Raise UsageError if tasks cannot have this agent or model. Starts nothing.

        Example:
            session.check_task(agent="explore", model="anthropic:claude-sonnet-4-5")
        """
        briefs = self._require_open().briefs
        briefs.resolve_model(briefs.select_agent(agent), model)

    async def resume_task(
        self, run_id: str, *, outputs: OutputSpec[Outputs] = None
    ) -> Report[Outputs]:
        """Continue a task that a crash interrupted, from its last step to its end.

        Several can continue concurrently, along with other tasks.

        Arguments:
            run_id: one of `unfinished_runs`.
            outputs: as for `resume_unfinished`.

        Raises UsageError if no task with this id was interrupted.

        Example:
            for run_id in session.unfinished_runs:
                print(await session.resume_task(run_id))
        """
        return await resume_task(self._require_open(), run_id, outputs)

    async def reports(self) -> list[RecordedTask]:
        """List the session's prompts, tasks and scopes so far, oldest first.

        They come from the record and include those of earlier processes, so that after a crash a
        program can tell which items of a `map` are done. Raises JournalError.

        Example:
            done = {each.prompt: each.report for each in await session.reports() if each.report}
            missing = [prompt for prompt in prompts if prompt not in done]
        """
        return await read_reports(self._require_open())

    @overload
    def map(
        self,
        prompts: Iterable[Prompt],
        *,
        outputs: OutputSpec[Outputs] = None,
        agent: str | Agent = "general",
        parallel: int | None = None,
        budget: Budget | None = None,
    ) -> CoroutineType[Any, Any, list[Report[Outputs]]]: ...

    @overload
    def map(
        self,
        prompts: AsyncIterable[Prompt],
        *,
        outputs: OutputSpec[Outputs] = None,
        agent: str | Agent = "general",
        parallel: int | None = None,
        budget: Budget | None = None,
    ) -> AsyncGenerator[Report[Outputs]]: ...

    def map(
        self,
        prompts: Iterable[Prompt] | AsyncIterable[Prompt],
        *,
        outputs: OutputSpec[Any] = None,
        agent: str | Agent = "general",
        parallel: int | None = None,
        budget: Budget | None = None,
    ) -> CoroutineType[Any, Any, list[Report[Any]]] | AsyncGenerator[Report[Any]]:
        """Run one task per prompt, each in its own context; return the reports in the same order.

        A failing task does not stop the others; its report's reason is ERROR.

        Arguments:
            prompts: an iterable gives a list of reports; an async iterable gives an async iterator,
                which keeps only running tasks and the reports waiting for an earlier one.
            parallel: tasks that run concurrently; default: `Children.parallel`.

        An iterable is checked as a whole before the first task starts. Raises UsageError if a
        prompt, the agent or `outputs` is wrong, and JournalError once all tasks have ended. An
        async iterator ends after `runs.cancel`; closing it cancels its tasks.

        Example:
            async for report in session.map(read_prompts(), parallel=200):
                print(report.run_id, report.text)
        """
        runner = self._require_open()
        amount = runner.max_children if parallel is None else parallel
        if isinstance(prompts, AsyncIterable):
            return stream_tasks(runner, prompts, outputs, agent, budget, amount)
        return run_tasks(runner, prompts, outputs, agent, budget, amount)

    async def compact(self, focus: str = "") -> Report:
        """Replace the conversation with a summary by its model. The journal keeps all messages.

        Nothing changes unless the report's reason is GOAL or `recovered` is true.

        Arguments:
            focus: facts or topics that the summary must keep.

        Raises UsageError before the first prompt.
        """
        return await self._require_open().compact(focus)

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
        """Create a SubAgentScope, run it, and return its output.

        If the model fails, nothing is raised: `terminate_reason` is ERROR.

        Arguments:
            context: values for the placeholders `${key}` in the system prompt.

        Raises the errors of `SubAgentScope.create` and `SubAgentScope.run`.
        """
        from ..scope import ContextState, ModelConfig, RunConfig, SubAgentScope

        scope = await SubAgentScope.create(
            name,
            self,
            prompt_config,
            model_config or ModelConfig(),
            run_config or RunConfig(),
            tool_config,
            output_config,
            on_message,
        )
        return await scope.run(context or ContextState())

    @property
    def unfinished_runs(self) -> tuple[str, ...]:
        """Ids of root runs interrupted by a crash; `resume_unfinished` completes them."""
        return (
            ()
            if self._runner and self._runner.interrupted_run
            else self._conversation.unfinished_runs
        )

    async def resume_unfinished(
        self, *, outputs: OutputSpec[Outputs] = None
    ) -> Report[Outputs] | None:
        """Continue the runs that a crash interrupted, from their last step to their end.

        Returns the last one's report, None if there were none.

        Arguments:
            outputs: as in the call that started the run, because the record has schemas, not types.
                Without it, the report's `outputs` are plain values by name.

        Raises UsageError if no interrupted run has these outputs.
        """
        return await self._require_open().resume_unfinished(outputs)

    def pause(self) -> bool:
        """Stop all work so that a later process continues it. Returns False if nothing is running.

        Commands and open requests are stopped as by `runs.cancel`, but no run is recorded as ended:
        a session that resumes this one continues each of them, including those in the background.
        From now on the session starts nothing, and calls waiting for a run raise SessionPaused.
        Call this when the program is asked to end, for example by SIGTERM, even before the session
        is open or after it is closed.

        Example:
            loop.add_signal_handler(signal.SIGTERM, session.pause)
        """
        return self._runner is not None and self._runner.pause()

    def interrupt(self) -> bool:
        """Stop the prompt's current turn; its background work continues.

        The call running the prompt returns a report with `is_interrupted`. The next prompt
        continues the same run, which then reads the reports of its background work. Without
        background work, the prompt ends as by `runs.cancel`. Returns False if no prompt is working.

        Example:
            session.interrupt()
            await session.run("First tell me what you have.")
        """
        return self._require_open().interrupt()

    @property
    def interrupted_run(self) -> str:
        """Id of the prompt that was interrupted and has not ended, "" if there is none.

        Example:
            if session.interrupted_run:
                print(len(await session.runs.list_open_work()), "runs and commands continue")
        """
        return self._require_open().interrupted_run

    def rewind(self, run_id: str) -> None:
        """Take the conversation back to before a root run; files stay as they are."""
        check_type("run_id", run_id, str, "rewind")
        self._require_open().rewind(run_id)

    @staticmethod
    @use_signature(SessionOptions)
    def run_sync(prompt: Prompt, **options: Any) -> Report:
        """Open a session, run one prompt and close it, for programs without an event loop.

        Arguments:
            options: as for `Session`.
        """

        async def run_once() -> Report:
            async with Session(**options) as session:
                return await session.run(prompt)

        return asyncio.run(run_once())

    def _make_scope_runtime(self) -> ScopeRuntime:
        from ..scope.subagent import ScopeRuntime

        runner = self._require_open()
        services = runner.resources.services
        return ScopeRuntime(
            tools=services.toolbox,
            workspace=services.environments.shared.workspace,
            watch=self.watch,
            run=runner.run_scope,
        )

    def _require_open(self) -> SessionRunner:
        if self._runner is None:
            raise UsageError(
                "the session is not open", remedy="Use it as `async with Session(...) as session:`."
            )
        return self._runner
