"""SessionRunner: starts the runs without a parent: prompts, tasks and scopes of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from .._core.agents import Agent, Mode
from .._core.budgets import Budget, check_amount
from .._core.events import AnyEvent, SessionClosed, SessionOpened
from .._core.messages import Message
from .._core.ports import RunHandle, Worker
from .._core.run_ids import find_root_id
from .._core.runs import Brief, Reason, Report
from .._core.runs import T as Outputs
from .._core.tools import Tool
from .._core.type_checks import check_type
from .._engine.children.child_brief import narrow_tools
from .._engine.compaction.summary import RUN_TITLE, make_summary_prompt
from .._platform.path_text import path_to_text
from .._version import __version__
from ..build import SessionResources
from ..conversation_state import ConversationState
from ..errors import JournalError, UsageError
from ..options import SessionOptions
from ..output_types import OutputType, parse_output_type
from ..permissions.deny_all import DenyAllApprover
from ..prompts import Prompt, check_prompts
from .briefs import BriefMaker
from .meter import SessionMeter

OutputSpec = type[Outputs] | Mapping[str, Any] | None
"""Values that a run must emit: a type, name -> description, or a JSON Schema. None: no values."""


class _RunRequest(Struct, frozen=True):
    """Request of a caller for a run, made before the run waits for its start.

    Arguments:
        cancel_count: calls of `cancel_all` until then; a later call cancels the run.
        output_type: type of the run's values; None for no check.
        watcher: called with each event of the run and of the runs below it.
    """

    cancel_count: int
    output_type: OutputType[Any] | None = None
    watcher: Callable[[AnyEvent], None] | None = None


class SessionRunner:
    """The runs of one open session.

    Arguments:
        watchers: called with each event; the same list as in the services of the runs.
    """

    def __init__(
        self,
        resources: SessionResources,
        options: SessionOptions,
        conversation: ConversationState,
        watchers: list[Callable[[AnyEvent], None]],
    ) -> None:
        self.resources = resources
        self.meter = SessionMeter(options.budget, resources.services.clock)
        self._briefs = BriefMaker(resources, options, conversation, self.meter)
        self._options = options
        self._conversation = conversation
        resources.journal.observe = conversation.observe
        self._watchers = watchers
        self._prompt_lock = asyncio.Lock()
        self._handles: set[RunHandle] = set()
        self._cancel_count = 0

    async def run_prompt(
        self,
        prompt: Prompt,
        outputs: OutputSpec[Outputs],
        watcher: Callable[[AnyEvent], None] | None = None,
    ) -> Report[Outputs]:
        """Run the next prompt of the conversation. `watcher`: called with each of its events."""
        agent, output_type = _add_outputs(self.resources.root_agent, outputs)
        request = _RunRequest(self._cancel_count)
        async with self._prompt_lock:
            await self._resume_unfinished(request)
            limits = self._options.prompt_budget.with_defaults(agent.budget)
            brief = self._briefs.continue_conversation(prompt, agent, limits)
            request = replace(request, watcher=watcher, output_type=output_type)
            report = await self._run_root(brief, request)
        return _convert(report, output_type)

    async def compact(self, focus: str) -> Report:
        """Replace the conversation with a summary; see `Session.compact`."""
        check_type("focus", focus, str, "compact")
        request = _RunRequest(self._cancel_count)
        async with self._prompt_lock:
            await self._resume_unfinished(request)
            if not self._conversation.latest_run:
                raise UsageError(
                    "there is no conversation to compact", remedy="Run a prompt first."
                )
            agent = replace(self.resources.root_agent, mode=Mode.PLAN)
            limits = Budget(turns=1, children=0).with_defaults(self._options.prompt_budget)
            brief = self._briefs.continue_conversation(make_summary_prompt(focus), agent, limits)
            brief = replace(brief, is_compaction=True, description=RUN_TITLE)
            return await self._run_root(brief, request)

    async def resume_unfinished(
        self, outputs: OutputSpec[Outputs] = None
    ) -> Report[Outputs] | None:
        """Continue interrupted runs to their end; return the report of the last one."""
        output_type = None if outputs is None else parse_output_type(outputs)
        request = _RunRequest(self._cancel_count, output_type=output_type)
        async with self._prompt_lock:
            return await self._resume_unfinished(request)

    async def run_task(
        self,
        prompt: Prompt,
        outputs: OutputSpec[Outputs],
        agent: str | Agent,
        budget: Budget | None,
        *,
        model: str | None = None,
        description: str = "",
    ) -> Report[Outputs]:
        """Run a task beside the conversation; see `Session.task`."""
        check_type("budget", budget, Budget | None, "task")
        check_type("model", model, str | None, "task")
        check_type("description", description, str, "task")
        specification, output_type = _add_outputs(self._briefs.select_agent(agent), outputs)
        brief = self._briefs.make_task_brief(prompt, specification, budget, model, description)
        request = _RunRequest(self._cancel_count, output_type=output_type)
        report = await self._execute(self.resources.worker, brief, request)
        return _convert(report, output_type)

    async def run_tasks(
        self,
        prompts: Iterable[Prompt],
        outputs: OutputSpec[Outputs],
        agent: str | Agent,
        budget: Budget | None,
        parallel: int,
    ) -> list[Report[Outputs]]:
        """Run one task per prompt, `parallel` at a time; see `Session.map`."""
        check_amount("parallel", parallel, "map", is_count=True, minimum=1)
        check_type("budget", budget, Budget | None, "map")
        specification, output_type = _add_outputs(self._briefs.select_agent(agent), outputs)
        checked = check_prompts(prompts)
        briefs = [self._briefs.make_task_brief(each, specification, budget) for each in checked]
        slots = asyncio.Semaphore(parallel)
        request = _RunRequest(self._cancel_count, output_type=output_type)

        async def run_one(brief: Brief) -> Report[Outputs]:
            async with slots:
                report = await self._execute(self.resources.worker, brief, request)
                return _convert(report, output_type)

        results = await asyncio.gather(*map(run_one, briefs), return_exceptions=True)
        return list(map(_to_report, results, briefs))

    async def run_scope(
        self,
        agent: Agent,
        prompt: Prompt,
        output_type: OutputType[Any] | None,
        tools: Mapping[str, Tool],
        make_history: Callable[[], Awaitable[tuple[Message, ...]]],
        on_start: Callable[[str], None],
    ) -> Report:
        """Run an agent with its own tools and without an approver."""
        request = _RunRequest(self._cancel_count, output_type=output_type)
        history = await make_history()
        services = replace(self.resources.services, toolbox=tools, approver=DenyAllApprover())
        model = self._briefs.resolve_model(agent)
        brief = self._briefs.make_brief(
            prompt, agent, model, agent.budget, history=history, depth=1
        )
        brief = replace(brief, tools=narrow_tools(tools, None, depth=agent.budget.depth or 0))
        on_start(brief.run_id)
        worker = self.resources.worker.with_services(services)
        return await self._execute(worker, brief, request)

    def cancel_all(self) -> bool:
        """Stop all runs, and those that wait for their start. Return False if no run works."""
        self._cancel_count += 1
        return sum(handle.cancel() for handle in self._handles) > 0

    def detach_all(self) -> bool:
        """Detach the children that runs without a parent wait for. Return False if none waits."""
        return sum(handle.detach() for handle in self._handles) > 0

    def record_opening(self, session: str, cwd: str, granted: tuple[str, ...]) -> None:
        """Show the opening to the watchers. The journal stores it with the next event."""
        services = self.resources.services
        event = SessionOpened(
            at=services.clock.now(),
            session=session,
            cwd=path_to_text(cwd),
            version=__version__,
            sandbox=services.environments.shared.sandbox.tier,
            granted=granted,
            isolate=self._options.isolate,
            board=self.resources.board_name,
        )
        self.resources.journal.opening = event
        self._show(event)

    async def record_closing(self) -> None:
        """Record the end of the session, unless nothing was recorded since its opening."""
        event = SessionClosed(at=self.resources.services.clock.now())
        if self.resources.journal.opening is None:
            await self.resources.journal.append(event)
        self._show(event)

    def _show(self, event: SessionOpened | SessionClosed) -> None:
        for watch in self._watchers:
            watch(event)

    async def _resume_unfinished(self, request: _RunRequest) -> Report[Any] | None:
        """Continue interrupted runs; convert the values of those with the outputs of the type."""
        output_type = request.output_type
        runs = self._conversation.unfinished_runs
        if output_type and runs and not any(self._has_outputs(run, output_type) for run in runs):
            raise UsageError(
                "no interrupted run has these outputs",
                remedy="Give the type that the run was started with, or none for plain values.",
            )
        report = None
        for run_id in runs:
            own_type = output_type
            if output_type and not self._has_outputs(run_id, output_type):
                own_type = None
            brief = self._conversation.get_brief_to_resume(run_id)
            report = await self._run_root(brief, replace(request, output_type=own_type))
            report = _convert(report, own_type)
        self._conversation.unfinished_events.clear()
        return report

    def _has_outputs(self, run_id: str, output_type: OutputType[Any]) -> bool:
        agent = self._conversation.get_brief_to_resume(run_id).agent
        return agent.outputs == output_type.outputs

    async def _run_root(self, brief: Brief, request: _RunRequest) -> Report:
        report: Report | None = None
        observe = _filter_events(brief.run_id, request.watcher) if request.watcher else None
        if observe:
            self._watchers.append(observe)
        self._conversation.start_run(brief)
        try:
            report = await self._execute(self.resources.worker, brief, request)
            return report
        finally:
            self._conversation.finish_run(brief, report)
            if observe:
                self._watchers.remove(observe)

    async def _execute(self, worker: Worker, brief: Brief, request: _RunRequest) -> Report:
        """Execute a run without a parent and return its report."""
        services = self.resources.services
        # Other runs may have spent since the brief was made.
        brief = replace(brief, budget=self.meter.limit_budget(brief.budget, brief.depth))
        grant = services.meters.open(brief.run_id, brief.budget, self.meter)
        if request.output_type:
            services.output_checks.add(brief.run_id, request.output_type.find_refusal)
        try:
            services.check_price(brief.model, services.meters.get(grant))
            with self.meter.count_time():
                return await self._wait_for_report(worker.start(brief, grant), request)
        finally:
            services.output_checks.remove(brief.run_id)
            services.meters.close(grant)

    async def _wait_for_report(self, handle: RunHandle, request: _RunRequest) -> Report:
        self._handles.add(handle)
        try:
            if request.cancel_count != self._cancel_count:
                # Cancelled before its start. The run begins first, so that the record has its end.
                asyncio.get_running_loop().call_soon(handle.cancel)
            return await handle.report()
        finally:
            self._handles.discard(handle)


def _add_outputs(agent: Agent, requested: OutputSpec[Any]) -> tuple[Agent, OutputType[Any] | None]:
    """Return the agent with the requested outputs, and their type."""
    if requested is None:
        return agent, None
    output_type = parse_output_type(requested)
    return replace(agent, outputs=output_type.outputs), output_type


def _convert(report: Report, output_type: OutputType[Any] | None) -> Report[Any]:
    return output_type.convert_report(report) if output_type else report


def _filter_events(run_id: str, watcher: Callable[[AnyEvent], None]) -> Callable[[AnyEvent], None]:
    """Return a watcher that passes on events of one root run and of all runs below it."""

    def watch(event: AnyEvent) -> None:
        if find_root_id(event.run) == run_id:
            watcher(event)

    return watch


def _to_report(result: Report[Any] | BaseException, brief: Brief) -> Report[Any]:
    """Return the report of a task; an exception becomes a report with reason ERROR.

    Raises JournalError, and exceptions that stop the program.
    """
    if isinstance(result, Report):
        return result
    if isinstance(result, JournalError) or not isinstance(result, Exception):
        raise result
    return Report(
        text="",
        reason=Reason.ERROR,
        run_id=brief.run_id,
        agent=brief.agent.name,
        model=brief.model,
        error=f"{type(result).__name__}: {result}",
        outputs=dict[str, Any](),
    )
