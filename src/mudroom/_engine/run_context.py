"""RunContext: everything one run may touch. It is built from a brief, never copied from a parent's, so nothing can leak."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from msgspec import Struct

from .._core.agents import Agent, Brief, Reason, Report
from .._core.budgets import Budget
from .._core.events import AnyEvent, Delta, Event, FileWriteIntended, NoteInjected, StoredEvent
from .._core.messages import (
    AssistantMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
    UserMessage,
)
from .._core.ports import (
    Approver,
    Clock,
    Journal,
    Model,
    ModelConversation,
    Policy,
    RequestConfig,
    Sandbox,
    Toolbox,
    Worker,
    Workspace,
)
from .._core.tools import Tool, ToolResult, canonical_tool_name
from .file_writes import RecordedWorkspace, WriteBarrier, run_from_any_thread
from .loop_detection import LoopDetector
from .meters import Meter
from .normalize import normalize_conversation
from .structured_output import EMIT_TOOL, OutputCollector

E = TypeVar("E", bound=Event)


class SessionServices(Struct, frozen=True, kw_only=True):
    """What all runs of a session share, already chosen and open. None of it knows any run's conversation.

    Arguments:
        session: session id. models: model string -> Model. toolbox: every tool there is, by name.
        agents: who may be called by `task`, by name. spills: folder for output too long for a context.
        environment, context: for system prompts: date, platform, folder; the text of the context files, by how much an agent wants.
        child_model: model string of children whose agent says "inherit"; "" is their parent's. child_budget: what theirs leaves open.
        price: model string and tokens -> US dollars, None if unknown; None: nobody asks for money.
        policy: what a call may do; approver: who is asked where it does not know. redact: takes secrets out of what tools give back;
            mark: says before a report that it is shaped like what it is not.
        past: events of runs that a dead process left, by run id.
        watchers: called with each event, in order, once it is durable or nothing depends on it; deltas too. They must not raise or wait.
    """

    session: str
    get_model: Callable[[str], Model]
    journal: Journal
    workspace: Workspace
    sandbox: Sandbox
    clock: Clock
    approver: Approver
    policy: Policy
    toolbox: Toolbox
    agents: Mapping[str, Agent]
    spill_folder: str
    environment_text: str
    context_texts: Mapping[str, str] = {}
    child_model: str = ""
    child_budget: Budget = Budget(turns=30)
    compute_price: Callable[[str, Usage], float | None] | None = None
    redact: Callable[[str], str] = str
    mark_report: Callable[[str], str] = str
    past_events: Mapping[str, Sequence[StoredEvent]] = {}
    watchers: list[Callable[[AnyEvent], None]] = []


class RunContext:
    """One run's own: conversation, meter, branch of the journal, and the counts its report is made of."""

    def __init__(
        self, brief: Brief, meter: Meter, services: SessionServices, worker: Worker
    ) -> None:
        self.brief, self.meter, self.services, self.worker = brief, meter, services, worker
        self.tools: dict[str, Tool] = {name: services.toolbox[name] for name in brief.tools}
        self.loop_detector = LoopDetector()
        self.outputs = OutputCollector(brief.agent.outputs or {})
        if brief.agent.outputs is not None:
            self.tools[EMIT_TOOL] = self.outputs.tool()
        self.memo: dict[str, Any] = {}
        self.turn = 0
        self.inbox: list[TextBlock | ToolResultBlock] = [TextBlock(brief.prompt)]
        self.open_calls: tuple[ToolCallBlock, ...] = ()
        self.used_call_ids: set[str] = set()
        self.results: dict[str, ToolResultBlock] = {}
        self.started_calls: dict[str, FileWriteIntended | None] = {}
        self.pending_answer: AssistantMessage | None = None
        self.grace_reason: Reason | None = None
        self.barrier = WriteBarrier()
        self.summary_timeout: asyncio.Timeout | None = None
        self.is_wrapping_up = self.is_warned = self.is_hurried = False
        self.answer_text = self.last_text = ""
        self.is_cut_off = False
        self.is_stopping = False
        self.started_at = services.clock.monotonic()
        self._paused_at: float | None = None
        self._calls: dict[str, int] = {}
        self._failed = 0
        self._files_read: dict[str, None] = {}
        self._files_changed: dict[str, None] = {}
        self._outcomes: dict[str, tuple[str, ToolResult, bool]] = {}
        self._unsaved: list[StoredEvent] = []
        self._unshown: list[StoredEvent] = []
        self.chat: ModelConversation = services.get_model(brief.model).start_conversation(
            self._request_config()
        )
        for message in normalize_conversation(brief.history):
            self.chat.append(message)
            self.used_call_ids.update(call.id for call in message.tool_calls) if isinstance(
                message, AssistantMessage
            ) else None
            self.used_call_ids.update(
                map(wire_safe_id, message.tool_calls)
                if isinstance(message, AssistantMessage)
                else ()
            )

    def _request_config(self) -> RequestConfig:
        agent = self.brief.agent
        parts = (
            agent.instructions,
            self.services.context_texts.get(agent.context, ""),
            self.services.environment_text if agent.environment else "",
        )
        system = "\n\n".join(filter(None, parts))
        return RequestConfig(
            system=system,
            tools=tuple(self.tools.values()),
            temperature=agent.temperature,
            top_p=agent.top_p,
        )

    @property
    def run_id(self) -> str:
        """The run's place in the session."""
        return self.brief.run_id

    @property
    def prompt_id(self) -> str:
        """session#agent#turn: the thread through events, logs and traces (seed 004)."""
        return f"{self.services.session}#{self.brief.agent.name}#{self.turn}"

    @property
    def age(self) -> float:
        """Seconds since the run began, less those in which a person was asked."""
        return (
            self.services.clock.monotonic() if self._paused_at is None else self._paused_at
        ) - self.started_at

    @property
    def time_left(self) -> float | None:
        """Seconds until its time is up, None if it has no limit."""
        limit = self.meter.budget.seconds
        return None if limit is None else max(0.0, limit - self.age)

    def bind_deadline(self, deadline: asyncio.Timeout) -> None:
        """Have the age, and with it the deadline, stand still while a person is asked, however many questions overlap."""
        questions = 0

        def halt(still: bool) -> None:
            nonlocal questions
            questions += 1 if still else -1
            if still and questions == 1:
                self._paused_at = self.services.clock.monotonic()
            elif not questions and self._paused_at is not None:
                self.started_at += self.services.clock.monotonic() - self._paused_at
                self._paused_at = None
            if (left := self.time_left) is not None and not deadline.expired():
                deadline.reschedule(None if questions else asyncio.get_running_loop().time() + left)

        self.meter.on_pause = halt

    def event(self, kind: type[E], /, **fields: Any) -> E:
        """An event of this run, stamped with turn, prompt id and time."""
        return kind(
            at=self.services.clock.now(),
            run=self.run_id,
            turn=self.turn,
            prompt_id=self.prompt_id,
            **fields,
        )

    async def record(self, *events: StoredEvent) -> None:
        """Make events durable, with all noted before; then show them."""
        unsaved, unshown = [*self._unsaved, *events], [*self._unshown, *events]
        self._unsaved, self._unshown = [], []
        try:
            await self.services.journal.append(*unsaved)
        except (
            asyncio.CancelledError
        ):  # they are recorded all the same, before anything that comes later
            self._unshown[:0] = unshown
            raise
        for event in unshown:
            self._show(event)

    async def record_file_write(self, event: FileWriteIntended) -> None:
        """Record that a file is about to be changed by another thread. Raises WorkspaceError when the run has ended."""
        self.barrier.enter(event.path)
        try:
            await self.record(event)
        except BaseException:
            self.barrier.leave()
            raise

    async def finish_file_write(self) -> None:
        """It was."""
        self.barrier.leave()

    def record_later(self, event: StoredEvent, *, show: bool = False) -> None:
        """Keep an event for the next `record`: for facts on which no act depends. `show` tells the watchers at once."""
        self._unsaved.append(event)
        if show:
            self._show(event)
        else:
            self._unshown.append(event)

    def show_delta(self, kind: str, text: str) -> None:
        """Show words as they arrive."""
        if self.services.watchers:
            self._show(self.event(Delta, kind=kind, text=text))

    def _show(self, event: AnyEvent) -> None:
        for watch in self.services.watchers:
            watch(event)

    def inject_note(self, word: str, origin: str = "engine") -> None:
        """Put a word into the next message to the model."""
        self.inbox.append(TextBlock(word))
        self.record_later(self.event(NoteInjected, text=word, origin=origin), show=True)

    def send_inbox(self) -> None:
        """Append what waits in the inbox to the conversation, as one message."""
        if self.inbox:
            self.chat.append(UserMessage(tuple(self.inbox)))
            self.inbox = []

    def append_answer(self, message: AssistantMessage) -> None:
        """Append an answer to the conversation; its calls now want results."""
        self.chat.append(message)
        self.open_calls, self.results, self.started_calls, self.pending_answer = (
            message.tool_calls,
            {},
            {},
            message,
        )
        self.used_call_ids.update(map(wire_safe_id, message.tool_calls))
        self.answer_text = message.text.strip()
        self.last_text = self.answer_text or self.last_text

    def charge(self, message: AssistantMessage) -> None:
        """Put the cost of an answer on the meter."""
        price = self.services.compute_price
        self.meter.charge(message.usage, price(self.brief.model, message.usage) if price else 0.0)

    def warn_near_limit(self) -> None:
        """Tell the run once that it nears a limit."""
        if not self.is_warned and (limit := self.meter.nearly_exceeded_limit(self.age)):
            self.is_warned = True
            self.inject_note(
                f"You have used 90 % of your {limit.replace('_', ' ')}. Come to an end: finish what matters most, then report."
            )

    def queue_results(self) -> None:
        """Put the results of all calls asked for at the head of the inbox, in the order of the calls; so they enter the evidence, too."""
        self.inbox[:0] = [self.results[call.id] for call in self.open_calls]
        for call in self.open_calls:
            if done := self._outcomes.pop(call.id, None):
                self._count(*done)
        self.open_calls = ()

    def keep_outcome(self, call_id: str, name: str, result: ToolResult, *, refused: bool) -> None:
        """Keep what came of a call for the evidence."""
        self._outcomes[call_id] = name, result, refused

    def _count(self, name: str, result: ToolResult, refused: bool) -> None:
        if not refused:
            self._calls[name] = self._calls.get(name, 0) + 1
        self._failed += result.error
        self._files_read.update(dict.fromkeys(result.reads))
        self._files_changed.update(dict.fromkeys(result.changes))

    def report(
        self, reason: Reason, text: str, *, recovered: bool = False, error: str = ""
    ) -> Report:
        """What is known of this run now."""
        return Report(
            text=text,
            reason=reason,
            run_id=self.run_id,
            recovered=recovered,
            outputs=self.outputs.values,
            usage=self.meter.usage + self.meter.descendant_usage,
            usd=round(self.meter.usd, 6)
            if self.services.compute_price and self.meter.is_price_known
            else None,
            turns=self.turn,
            seconds=round(self.age, 3),
            calls=self._calls,
            failed=self._failed,
            files_read=tuple(self._files_read),
            files_changed=tuple(self._files_changed),
            agent=self.brief.agent.name,
            model=self.brief.model,
            error=error,
        )


def wire_safe_id(call: ToolCallBlock) -> str:
    """A call's id as the strictest wire sends it: two that fold alike are one there."""
    return re.sub("[^A-Za-z0-9_-]", "_", call.id)


class CallContext:
    """What a tool may touch while it works on one call (the port ToolContext)."""

    def __init__(
        self, run: RunContext, call: ToolCallBlock | None = None, position: int = 0
    ) -> None:
        self.run, self.call, self.position = run, call, position
        self.run_id, self.turn, self.memo, self.sandbox = (
            run.run_id,
            run.turn,
            run.memo,
            run.services.sandbox,
        )
        self.redact = run.services.redact
        workspace = cast(
            Workspace, RecordedWorkspace(run.services.workspace, self._announce, self._made)
        )
        self.workspace = (
            run.services.policy.view(workspace, canonical_tool_name(call.name), run.brief)
            if call
            else workspace
        )
        self._loop = asyncio.get_running_loop()

    def spill_path(self, name: str) -> str:
        """Path of a new file outside the workspace that the `read` tool may read."""
        folder = self.run.services.spill_folder
        os.makedirs(folder, mode=0o700, exist_ok=True)
        return os.path.join(folder, f"{self.run_id}-{self.turn}.{self.position}-{name}.txt")

    def _announce(self, path: str, before: str, after: str) -> None:
        run, call_id = self.run, self.call.id if self.call else ""
        event = run.event(FileWriteIntended, call_id=call_id, path=path, before=before, after=after)
        run_from_any_thread(
            self._loop, lambda: run.record_file_write(event), lambda: run.record_later(event)
        )

    def _made(self) -> None:
        run_from_any_thread(self._loop, self.run.finish_file_write, lambda: None)
