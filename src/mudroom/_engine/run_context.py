"""RunContext: everything one run may touch. It is built from a brief, never copied from a parent's, so nothing can leak."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from msgspec import Struct

from .._core.agents import Agent, Brief, Reason, Report
from .._core.budgets import Budget, Meter
from .._core.events import AnyEvent, Changing, Delta, Event, Stored, Told
from .._core.messages import Assistant, Call, Result, Text, Usage, User
from .._core.ports import (
    Approver,
    Chat,
    Clock,
    Journal,
    Model,
    Policy,
    Sandbox,
    Setup,
    Toolbox,
    Worker,
    Workspace,
)
from .._core.tools import Tool, ToolResult, canonical
from .file_writes import Announced, Barrier, from_any_thread
from .loop_detection import Guard
from .normalize import sendable
from .structured_output import EMIT, Answers

E = TypeVar("E", bound=Event)


class Parts(Struct, frozen=True, kw_only=True):
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
    models: Callable[[str], Model]
    journal: Journal
    workspace: Workspace
    sandbox: Sandbox
    clock: Clock
    approver: Approver
    policy: Policy
    toolbox: Toolbox
    agents: Mapping[str, Agent]
    spills: str
    environment: str
    context: Mapping[str, str] = {}
    child_model: str = ""
    child_budget: Budget = Budget(turns=30)
    price: Callable[[str, Usage], float | None] | None = None
    redact: Callable[[str], str] = str
    mark: Callable[[str], str] = str
    past: Mapping[str, Sequence[Stored]] = {}
    watchers: list[Callable[[AnyEvent], None]] = []


class RunContext:
    """One run's own: conversation, meter, branch of the journal, and the counts its report is made of."""

    def __init__(self, brief: Brief, meter: Meter, parts: Parts, worker: Worker) -> None:
        self.brief, self.meter, self.parts, self.worker = brief, meter, parts, worker
        self.tools: dict[str, Tool] = {name: parts.toolbox[name] for name in brief.tools}
        self.guard = Guard()
        self.answers = Answers(brief.agent.outputs or {})
        if brief.agent.outputs is not None:
            self.tools[EMIT] = self.answers.tool()
        self.memo: dict[str, Any] = {}
        self.turn = 0
        self.inbox: list[Text | Result] = [Text(brief.prompt)]
        self.asked: tuple[Call, ...] = ()
        self.ids: set[str] = set()
        self.results: dict[str, Result] = {}
        self.begun: dict[str, Changing | None] = {}
        self.unheeded: Assistant | None = None
        self.grace: Reason | None = None
        self.barrier = Barrier()
        self.landing: asyncio.Timeout | None = None
        self.wrapping = self.warned = self.hurried = False
        self.final = self.partial = ""
        self.cut_off = False
        self.stopping = False
        self.began = parts.clock.monotonic()
        self._halted: float | None = None
        self._calls: dict[str, int] = {}
        self._failed = 0
        self._files_read: dict[str, None] = {}
        self._files_changed: dict[str, None] = {}
        self._ended: dict[str, tuple[str, ToolResult, bool]] = {}
        self._unsaved: list[Stored] = []
        self._unshown: list[Stored] = []
        self.chat: Chat = parts.models(brief.model).chat(self._setup())
        for message in sendable(brief.history):
            self.chat.add(message)
            self.ids.update(call.id for call in message.calls) if isinstance(
                message, Assistant
            ) else None
            self.ids.update(map(folded, message.calls) if isinstance(message, Assistant) else ())

    def _setup(self) -> Setup:
        agent = self.brief.agent
        parts = (
            agent.instructions,
            self.parts.context.get(agent.context, ""),
            self.parts.environment if agent.environment else "",
        )
        system = "\n\n".join(filter(None, parts))
        return Setup(
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
        return f"{self.parts.session}#{self.brief.agent.name}#{self.turn}"

    @property
    def age(self) -> float:
        """Seconds since the run began, less those in which a person was asked."""
        return (self.parts.clock.monotonic() if self._halted is None else self._halted) - self.began

    @property
    def time_left(self) -> float | None:
        """Seconds until its time is up, None if it has no limit."""
        limit = self.meter.budget.seconds
        return None if limit is None else max(0.0, limit - self.age)

    def runs_until(self, deadline: asyncio.Timeout) -> None:
        """Have the age, and with it the deadline, stand still while a person is asked, however many questions overlap."""
        questions = 0

        def halt(still: bool) -> None:
            nonlocal questions
            questions += 1 if still else -1
            if still and questions == 1:
                self._halted = self.parts.clock.monotonic()
            elif not questions and self._halted is not None:
                self.began += self.parts.clock.monotonic() - self._halted
                self._halted = None
            if (left := self.time_left) is not None and not deadline.expired():
                deadline.reschedule(None if questions else asyncio.get_running_loop().time() + left)

        self.meter.halt = halt

    def event(self, kind: type[E], /, **fields: Any) -> E:
        """An event of this run, stamped with turn, prompt id and time."""
        return kind(
            at=self.parts.clock.now(),
            run=self.run_id,
            turn=self.turn,
            prompt_id=self.prompt_id,
            **fields,
        )

    async def record(self, *events: Stored) -> None:
        """Make events durable, with all noted before; then show them."""
        unsaved, unshown = [*self._unsaved, *events], [*self._unshown, *events]
        self._unsaved, self._unshown = [], []
        try:
            await self.parts.journal.append(*unsaved)
        except (
            asyncio.CancelledError
        ):  # they are recorded all the same, before anything that comes later
            self._unshown[:0] = unshown
            raise
        for event in unshown:
            self._show(event)

    async def announce(self, event: Changing) -> None:
        """Record that a file is about to be changed by another thread. Raises WorkspaceError when the run has ended."""
        self.barrier.enter(event.path)
        try:
            await self.record(event)
        except BaseException:
            self.barrier.leave()
            raise

    async def changed(self) -> None:
        """It was."""
        self.barrier.leave()

    def note(self, event: Stored, *, show: bool = False) -> None:
        """Keep an event for the next `record`: for facts on which no act depends. `show` tells the watchers at once."""
        self._unsaved.append(event)
        if show:
            self._show(event)
        else:
            self._unshown.append(event)

    def stream(self, kind: str, text: str) -> None:
        """Show words as they arrive."""
        if self.parts.watchers:
            self._show(self.event(Delta, kind=kind, text=text))

    def _show(self, event: AnyEvent) -> None:
        for watch in self.parts.watchers:
            watch(event)

    def tell(self, word: str, origin: str = "engine") -> None:
        """Put a word into the next message to the model."""
        self.inbox.append(Text(word))
        self.note(self.event(Told, text=word, origin=origin), show=True)

    def send(self) -> None:
        """Append what waits in the inbox to the conversation, as one message."""
        if self.inbox:
            self.chat.add(User(tuple(self.inbox)))
            self.inbox = []

    def hear(self, message: Assistant) -> None:
        """Append an answer to the conversation; its calls now want results."""
        self.chat.add(message)
        self.asked, self.results, self.begun, self.unheeded = message.calls, {}, {}, message
        self.ids.update(map(folded, message.calls))
        self.final = message.text.strip()
        self.partial = self.final or self.partial

    def charge(self, message: Assistant) -> None:
        """Put the cost of an answer on the meter."""
        price = self.parts.price
        self.meter.charge(message.usage, price(self.brief.model, message.usage) if price else 0.0)

    def warn(self) -> None:
        """Tell the run once that it nears a limit."""
        if not self.warned and (limit := self.meter.nearing(self.age)):
            self.warned = True
            self.tell(
                f"You have used 90 % of your {limit.replace('_', ' ')}. Come to an end: finish what matters most, then report."
            )

    def answered(self) -> None:
        """Put the results of all calls asked for at the head of the inbox, in the order of the calls; so they enter the evidence, too."""
        self.inbox[:0] = [self.results[call.id] for call in self.asked]
        for call in self.asked:
            if done := self._ended.pop(call.id, None):
                self._count(*done)
        self.asked = ()

    def ended(self, call_id: str, name: str, result: ToolResult, *, refused: bool) -> None:
        """Keep what came of a call for the evidence."""
        self._ended[call_id] = name, result, refused

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
            outputs=self.answers.values,
            usage=self.meter.usage + self.meter.below,
            usd=round(self.meter.usd, 6) if self.parts.price and self.meter.priced else None,
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


def folded(call: Call) -> str:
    """A call's id as the strictest wire sends it: two that fold alike are one there."""
    return re.sub("[^A-Za-z0-9_-]", "_", call.id)


class CallContext:
    """What a tool may touch while it works on one call (the port ToolContext)."""

    def __init__(self, run: RunContext, call: Call | None = None, place: int = 0) -> None:
        self.run, self.call, self.place = run, call, place
        self.run_id, self.turn, self.memo, self.sandbox = (
            run.run_id,
            run.turn,
            run.memo,
            run.parts.sandbox,
        )
        self.redact = run.parts.redact
        workspace = cast(Workspace, Announced(run.parts.workspace, self._announce, self._made))
        self.workspace = (
            run.parts.policy.view(workspace, canonical(call.name), run.brief) if call else workspace
        )
        self._loop = asyncio.get_running_loop()

    def spill(self, name: str) -> str:
        """Path of a new file outside the workspace that the `read` tool may read."""
        folder = self.run.parts.spills
        os.makedirs(folder, mode=0o700, exist_ok=True)
        return os.path.join(folder, f"{self.run_id}-{self.turn}.{self.place}-{name}.txt")

    def _announce(self, path: str, before: str, after: str) -> None:
        run, call_id = self.run, self.call.id if self.call else ""
        event = run.event(Changing, call_id=call_id, path=path, before=before, after=after)
        from_any_thread(self._loop, lambda: run.announce(event), lambda: run.note(event))

    def _made(self) -> None:
        from_any_thread(self._loop, self.run.changed, lambda: None)
