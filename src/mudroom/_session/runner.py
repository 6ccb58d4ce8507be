"""SessionRunner: starts a session's root runs: prompts, tasks and scopes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any

from msgspec.structs import replace

from .._core.agents import Agent, Mode
from .._core.budgets import Budget, Grant
from .._core.events import AnyEvent, ConversationRewound, SessionClosed, SessionOpened, StoredEvent
from .._core.messages import Message
from .._core.notices import Notice
from .._core.ports import RunHandle, Worker
from .._core.runs import Brief, InboxMessage, Report, find_root_id
from .._core.runs import T as Outputs
from .._core.tools import Tool
from .._core.type_checks import check_type
from .._engine.children.child_brief import narrow_tools
from .._engine.compaction.summary import RUN_TITLE, make_summary_prompt
from .._engine.session_context import SessionServices, Watchers
from .._engine.structured_output import OutputType, parse_output_type
from .._platform.paths import path_to_text
from .._projections.open_events import OpenEvents
from .._version import __version__
from ..errors import UsageError, quote_value
from .briefs import BriefMaker, SessionMeter
from .build import DenyAllApprover, SessionResources
from .conversation_state import ConversationState
from .options import SessionOptions
from .prompts import (
    InterruptedPrompt,
    OutputSpec,
    Prompt,
    PromptContent,
    RunRequest,
    add_outputs,
    convert_report,
    filter_events,
    parse_prompt,
)
from .recorded_options import (
    copy_journal,
    describe_move,
    describe_other_board,
    describe_restored,
    encode_options,
    find_former_folders,
)


class SessionRunner:
    def __init__(
        self,
        resources: SessionResources,
        options: SessionOptions,
        conversation: ConversationState,
        watchers: Watchers,
    ) -> None:
        self.resources = resources
        self.meter = SessionMeter(options.budget, resources.services.clock)
        self.briefs = BriefMaker(resources, options, conversation, self.meter)
        self._options = options
        self._conversation = conversation
        resources.journal.observe = conversation.observe
        self._watchers = watchers
        self.feeders: set[asyncio.Task[None]] = set()
        self._prompt_lock = asyncio.Lock()
        self._handles: set[RunHandle] = set()
        self._cancel_count = 0
        self._interrupt_count = 0
        self._working_prompt: RunHandle | None = None
        self._interrupted: InterruptedPrompt | None = None

    @property
    def max_children(self) -> int:
        """Children that run concurrently at each depth."""
        return self._options.children.parallel

    @property
    def interrupted_run(self) -> str:
        """Id of the prompt that was interrupted and has not ended, "" if there is none."""
        return self._interrupted.brief.run_id if self._interrupted else ""

    @property
    def latest_run(self) -> str:
        """Id of the conversation's last prompt, "" before the first."""
        return self._conversation.latest_run

    async def run_prompt(
        self,
        prompt: Prompt,
        outputs: OutputSpec[Outputs],
        watcher: Callable[[AnyEvent], None] | None = None,
        *,
        model: str = "",
    ) -> Report[Outputs]:
        """Run the conversation's next prompt. `model` is for this prompt only."""
        content = parse_prompt(prompt)
        agent, output_type = add_outputs(self.resources.root_agent, outputs)
        # Made before waiting for the lock, so that a stop during the wait also stops this prompt.
        request = self.make_request(is_prompt=True)
        async with self._prompt_lock:
            await self._resume_unfinished(request)
            request = replace(request, watcher=watcher, output_type=output_type)
            report = await self._continue_interrupted(content, request)
            if report is None:
                limits = self._options.prompt_budget.with_defaults(agent.budget)
                brief = self.briefs.continue_conversation(content, agent, limits, model)
                report = await self._run_in_conversation(brief, request)
        return convert_report(report, output_type)

    async def _continue_interrupted(
        self, prompt: PromptContent, request: RunRequest
    ) -> Report | None:
        """Give a prompt to the interrupted run; return None if there is none."""
        interrupted = self._interrupted
        if interrupted is None:
            return None
        if prompt.blocks or request.output_type:
            raise UsageError(
                "the interrupted prompt continues, and takes neither images nor outputs",
                remedy="Give only a text, or stop it first with Session.runs.cancel.",
            )
        handle = interrupted.handle
        is_open = False
        try:
            with self._show_to(request.watcher, interrupted.brief.run_id):
                message = InboxMessage(uuid.uuid4().hex, prompt.text)
                if not (self.is_stopped(request) or handle.send(message)):
                    return None
                report = await self._wait_for_prompt(handle)
                is_open = report.is_interrupted
                return report
        finally:
            if not is_open:
                # The next prompt continues the conversation, which must include this run by then.
                await asyncio.wait({interrupted.ending})

    async def compact(self, focus: str) -> Report:
        check_type("focus", focus, str, "compact")
        request = self.make_request(is_prompt=True)
        async with self._prompt_lock:
            await self._resume_unfinished(request)
            self.check_ended("compacted")
            if not self._conversation.latest_run:
                raise UsageError(
                    "there is no conversation to compact", remedy="Run a prompt first."
                )
            # In plan mode, a summary changes no file.
            agent = replace(self.resources.root_agent, mode=Mode.PLAN)
            limits = Budget(turns=1, children=0).with_defaults(self._options.prompt_budget)
            prompt = parse_prompt(make_summary_prompt(focus))
            brief = self.briefs.continue_conversation(prompt, agent, limits)
            brief = replace(brief, is_compaction=True, description=RUN_TITLE)
            return await self._run_in_conversation(brief, request)

    async def resume_unfinished(
        self, outputs: OutputSpec[Outputs] = None
    ) -> Report[Outputs] | None:
        output_type = None if outputs is None else parse_output_type(outputs)
        request = self.make_request(output_type, is_prompt=True)
        async with self._prompt_lock:
            return await self._resume_unfinished(request)

    def find_unfinished_task(self, run_id: str) -> Brief:
        if run_id in self._conversation.unfinished_runs:
            brief = self._conversation.get_brief_to_resume(run_id)
            if brief.depth:
                return brief
        raise UsageError(
            f"no task {quote_value(run_id)} was interrupted",
            remedy="`unfinished_runs` has the ids; `resume_unfinished` continues prompts.",
        )

    def forget_unfinished_task(self, run_id: str) -> None:
        past = self._conversation.unfinished_events
        for each in [each for each in past if find_root_id(each) == run_id]:
            del past[each]

    def check_ended(self, action: str) -> None:
        """Raise UsageError if an interrupted prompt has not ended. `action`: a past participle."""
        if self._interrupted:
            raise UsageError(
                f"the conversation cannot be {action}: its last prompt is interrupted, and its "
                "background work continues",
                remedy="Send a prompt, which continues it, or stop it: Ctrl-C twice at the prompt, "
                "Session.runs.cancel in a program.",
            )

    async def run_scope(
        self,
        agent: Agent,
        prompt: Prompt,
        output_type: OutputType[Any] | None,
        tools: Mapping[str, Tool],
        make_history: Callable[[], Awaitable[tuple[Message, ...]]],
        on_start: Callable[[str], None],
    ) -> Report:
        request = self.make_request(output_type)
        history = await make_history()
        services = replace(self.resources.services, toolbox=tools, approver=DenyAllApprover())
        model = self.briefs.resolve_model(agent)
        content = parse_prompt(prompt)
        brief = self.briefs.make_brief(
            content, agent, model, agent.budget, history=history, depth=1
        )
        # A scope has children only if its budget sets their depth.
        may_have_children = bool(agent.budget.depth)
        tool_names = narrow_tools(tools, None, may_have_children=may_have_children)
        brief = replace(brief, tools=tool_names)
        on_start(brief.run_id)
        worker = self.resources.worker.with_services(services)
        return await self.run_brief(brief, request, worker)

    def cancel_all(self) -> bool:
        """Stop all runs, including those waiting to start. Returns False if none is working."""
        self._cancel_count += 1
        # `sum`, because `any` would stop at the first handle.
        return sum(handle.cancel() for handle in self._handles) > 0

    def pause(self) -> bool:
        # Messages accepted a moment ago are recorded by tasks that run first.
        asyncio.get_running_loop().call_soon(self._seal_and_cancel)
        return bool(self._handles)

    def _seal_and_cancel(self) -> None:
        self.resources.journal.is_sealed = True
        self.cancel_all()

    def interrupt(self) -> bool:
        self._interrupt_count += 1
        handle = self._working_prompt
        return handle is not None and (handle.interrupt() or handle.cancel())

    def make_request(
        self, output_type: OutputType[Any] | None = None, *, is_prompt: bool = False
    ) -> RunRequest:
        """Make the request for a run the caller wants now."""
        return RunRequest(self._count_stops(is_prompt), output_type, is_prompt=is_prompt)

    def _count_stops(self, is_prompt: bool) -> int:
        return self._cancel_count + (self._interrupt_count if is_prompt else 0)

    def is_stopped(self, request: RunRequest) -> bool:
        """Return whether the run was stopped while it was waiting to start."""
        return request.stop_count != self._count_stops(request.is_prompt)

    def detach_all(self) -> bool:
        """Detach the children that root runs are waiting for. Returns False if none is waiting."""
        return sum(handle.detach() for handle in self._handles) > 0

    async def load_record(
        self, recorded: OpenEvents, watchers: Iterable[Callable[[StoredEvent], None]]
    ) -> list[Notice]:
        """Restore a resumed or forked session, and show its events to `watchers`."""
        services = self.resources.services
        if self._options.fork:
            recorded = await copy_journal(self._options, recorded, services.journal)
        # Another process may have written until this one opened the journal.
        async for event in services.journal.read(recorded.count):
            recorded.apply(event)
        events = recorded.events
        self._conversation.load(events)
        # Events of ended tasks may have been left out, but their numbers are taken.
        self._conversation.run_count = max(self._conversation.run_count, recorded.task_count)
        services.request_heads.load(recorded.heads)
        services.request_heads.load(events)
        watching = list(watchers)
        for event in events:
            services.teams.observe(event)
            services.check_results.observe(event)
            if self.resources.tracing:
                self.resources.tracing.observe_past(event)
            for watch in watching:
                watch(event)
        self.meter.add_past(recorded, self._conversation.unfinished_events)
        folder = services.environments.shared.workspace.root
        services.former_folders.update(find_former_folders(events, folder))
        texts = [
            describe_move(events, folder),
            describe_other_board(events, self.resources.board_name),
            describe_restored(self._options),
        ]
        return [Notice("record", text) for text in texts if text]

    def record_opening(self, session: str, cwd: str, rights: tuple[str, ...]) -> None:
        event = make_opening(self.resources, self._options, session, cwd, rights)
        # A session opened and closed without a prompt leaves no record.
        self.resources.journal.hold(event)
        self._watchers.show(event)

    def rewind(self, run_id: str) -> None:
        """Remove a root run and all later ones from the conversation."""
        self.check_ended("rewound")
        self._conversation.rewind(run_id)
        now = self.resources.services.clock.now()
        event = ConversationRewound(at=now, latest_run=self._conversation.latest_run)
        self.resources.journal.append_soon(event)
        self._watchers.show(event)

    async def record_closing(self) -> None:
        event = SessionClosed(at=self.resources.services.clock.now())
        journal = self.resources.journal
        if journal.is_used and not journal.is_sealed:
            await journal.append(event)
        self._watchers.show(event)

    async def end_runs(self) -> None:
        """End all runs. An interrupted prompt and its work continue in a later process."""
        await asyncio.sleep(0)  # `pause` acts at the next step of the event loop
        interrupted = self._interrupted
        if interrupted and interrupted.handle.is_interrupted:
            self._seal_and_cancel()
            self._watchers.clear()
        for feeder in self.feeders:
            feeder.cancel()
        await self.resources.worker.close()
        if interrupted:
            await asyncio.wait({interrupted.ending})

    async def _resume_unfinished(self, request: RunRequest) -> Report[Any] | None:
        """Continue interrupted runs; convert the values of those that have the type's outputs."""
        if self._interrupted:
            return None
        output_type = request.output_type
        runs = self._conversation.unfinished_runs
        if output_type and runs and not any(self._has_outputs(run, output_type) for run in runs):
            raise UsageError(
                "no interrupted run has these outputs",
                remedy="Give the type that the run was started with, or none for plain values.",
            )
        report = None
        for run_id in runs:
            has_outputs = output_type and self._has_outputs(run_id, output_type)
            own_type = output_type if has_outputs else None
            brief = self._conversation.get_brief_to_resume(run_id)
            report = await self._run_in_conversation(brief, replace(request, output_type=own_type))
            report = convert_report(report, own_type)
        if not self._interrupted:
            self._conversation.unfinished_events.clear()
        return report

    def _has_outputs(self, run_id: str, output_type: OutputType[Any]) -> bool:
        agent = self._conversation.get_brief_to_resume(run_id).agent
        return agent.outputs == output_type.outputs

    async def _run_in_conversation(self, brief: Brief, request: RunRequest) -> Report:
        report: Report | None = None
        self._conversation.start_run(brief)
        try:
            report = await self.run_brief(brief, request)
            return report
        finally:
            if report is None or not report.is_interrupted:
                self._conversation.finish_run(brief, report)

    @contextmanager
    def _show_to(self, watcher: Callable[[AnyEvent], None] | None, run_id: str) -> Generator[None]:
        if watcher is None:
            yield
            return
        observe = filter_events(run_id, watcher)
        self._watchers.append(observe)
        try:
            yield
        finally:
            self._watchers.remove(observe)

    async def run_brief(
        self, brief: Brief, request: RunRequest, worker: Worker | None = None
    ) -> Report:
        """Start a root run, wait for its end, and return its report."""
        # Other runs may have spent something since the brief was made.
        budget = self.meter.limit_budget(brief.budget, brief.depth)
        if budget != brief.budget:
            brief = replace(brief, budget=budget)
        # Not `_show_to`, because most of perhaps thousands of runs have no watcher.
        show = request.watcher and filter_events(brief.run_id, request.watcher)
        run = RootRun(self.resources.services, self.meter, self._handles)
        is_interrupted = False
        try:
            if show:
                self._watchers.append(show)
            handle = run.start(worker or self.resources.worker, brief, request)
            if self.is_stopped(request):
                # Stopped before its start. It must begin first, so that the record has its end.
                asyncio.get_running_loop().call_soon(handle.cancel)
            if request.is_prompt:
                report = await self._wait_for_prompt(handle)
            else:
                report = await handle.report()
            if is_interrupted := report.is_interrupted:
                ending = asyncio.create_task(self._wait_for_end(brief, handle, run))
                self._interrupted = InterruptedPrompt(brief, handle, ending)
            return report
        finally:
            if show:
                self._watchers.remove(show)
            if not is_interrupted:
                run.close()

    async def _wait_for_prompt(self, handle: RunHandle) -> Report:
        self._working_prompt = handle
        try:
            return await handle.report()
        finally:
            self._working_prompt = None

    async def _wait_for_end(self, brief: Brief, handle: RunHandle, run: RootRun) -> None:
        report: Report | None = None
        with closing(run):
            await handle.wait()
            with suppress(Exception):  # the caller of the next prompt gets it
                report = await handle.report()
        self._conversation.finish_run(brief, report)
        self._conversation.unfinished_events.clear()
        self._interrupted = None


def make_opening(
    resources: SessionResources,
    options: SessionOptions,
    session: str,
    cwd: str,
    rights: tuple[str, ...],
) -> SessionOpened:
    """Make the event of a session's opening. `rights` are those beyond the sandbox."""
    services = resources.services
    return SessionOpened(
        at=services.clock.now(),
        session=session,
        cwd=path_to_text(cwd),
        version=__version__,
        sandbox=services.environments.shared.sandbox.tier,
        rights=rights,
        isolate=options.isolation.each_child,
        check=options.isolation.check,
        board=resources.board_name,
        traceparent=services.trace_ids.traceparent if services.trace_ids else "",
        output_style=resources.output_style,
        options=encode_options(options),
    )


class RootRun:
    """A root run, from its start until its meter is closed."""

    # A session may have thousands of runs at once, so each is a small object.
    __slots__ = ("_grant", "_handle", "_handles", "_is_counted", "_meter", "_services")

    def __init__(
        self, services: SessionServices, meter: SessionMeter, handles: set[RunHandle]
    ) -> None:
        self._services = services
        self._meter = meter
        self._handles = handles
        self._grant: Grant | None = None
        self._handle: RunHandle | None = None
        self._is_counted = False

    def start(self, worker: Worker, brief: Brief, request: RunRequest) -> RunHandle:
        """Start the run and return its handle. Call `close` even after an error."""
        services = self._services
        grant = self._grant = services.meters.open(brief.run_id, brief.budget, self._meter)
        if request.output_type:
            services.output_checks.add(brief.run_id, request.output_type.find_refusal)
        services.check_price(brief.model, services.meters.get(grant))
        self._meter.start_time()
        self._is_counted = True
        self._handle = worker.start(brief, grant)
        self._handles.add(self._handle)
        return self._handle

    def close(self) -> None:
        if self._handle:
            self._handles.discard(self._handle)
        if self._is_counted:
            self._meter.stop_time()
        if self._grant:
            self._services.output_checks.remove(self._grant.run_id)
            self._services.meters.close(self._grant)
