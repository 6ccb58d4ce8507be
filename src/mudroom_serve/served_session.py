"""ServedSession: one active session, which runs its clients' prompts one after another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal

import msgspec
from msgspec import Struct

from mudroom import Reason, Report, Session
from mudroom.driving import FairSlots, SessionDriver, SessionStart, Turn
from mudroom.errors import JournalError, MudroomError, UnknownName, UsageError
from mudroom.events import (
    AnyEvent,
    Delta,
    RunFinished,
    RunStarted,
    StoredEvent,
    TurnFailed,
    TurnFinished,
)
from mudroom.ports import Journal, SessionStore, time_limit
from mudroom.views import is_child_id, stream_events

from .charges import SessionCharges, explain_used_up
from .feed import SessionFeed
from .questions import Asking, QuestionNotes, list_questions, make_questions, use_answer
from .request_bodies import UserMessage, make_prompt
from .request_errors import may_work_later
from .setup import CommandLine, ServedSessionPlan, ServiceOptions
from .state.inputs import CANCELLED_BEFORE, PROMPT, Input, InputRecords, InputResult
from .state.sessions import SessionRecord, SessionRecords, SpendingRecords

Status = Literal["idle", "waiting", "working", "asking"]


class ServerParts(Struct, frozen=True):
    """The server's parts used by all sessions."""

    options: ServiceOptions
    command_line: CommandLine
    store: SessionStore
    sessions: SessionRecords
    inputs: InputRecords
    spending: SpendingRecords
    slots: FairSlots  # for prompts
    notify: Callable[[str], object]


class ServedSession:
    """One session. `on_spent` is called with the owner after charges."""

    def __init__(
        self,
        record: SessionRecord,
        parts: ServerParts,
        feed: SessionFeed,
        on_spent: Callable[[str], object],
    ) -> None:
        self.record = record
        self.feed = feed
        self.driver: SessionDriver[ServedSessionPlan] | None = None  # while the session is open
        self.watchers: list[Callable[[AnyEvent], None]] = []  # also called with streamed text
        self.woken = asyncio.Event()  # there may be a new prompt
        self.questions = make_questions(parts.options.answer_seconds, self._show_questions)
        self.charges = SessionCharges(record, parts.store, parts.spending, on_spent)
        self._parts = parts
        self._store = ObservedStore(parts.store, feed.observe, feed.forget)
        self._spent = asyncio.Event()
        self._prompt_count = 0
        self._current: Input | None = None
        self._notes = QuestionNotes(
            record.id, parts.sessions, self._describe_questions, parts.notify
        )
        self._is_sealed = False
        self._shown_run = ""

    @property
    def status(self) -> Status:
        if self.questions.list():
            return "asking"
        if self._current is None:
            return "idle"
        return "working" if self.run else "waiting"

    @property
    def run(self) -> str:
        """Root run of the running prompt, "" if none."""
        return self._get_run(self.driver.current if self.driver else None)

    @property
    def current(self) -> int:
        """Number of the prompt that is running or waiting for a slot, 0 for none."""
        return self._current.number if self._current else 0

    async def serve(self) -> None:
        """Run prompts until none arrives for some time. Raises JournalError, StateError."""
        item = await self._find_prompt()
        async with AsyncExitStack() as stack:
            while item:
                self._current = item
                self.feed.notify()
                async with self._parts.slots.hold(self.record.owner):
                    await self._try(item, stack)
                self._current = None
                self.feed.notify()
                item = await self._wait_for_prompt()

    async def _try(self, item: Input, stack: AsyncExitStack) -> None:
        """Run a prompt in the session, opening it for the first one; note the result."""
        turn: Turn[Any] | None = None
        try:
            if self.driver is None:
                await stack.enter_async_context(self._open())
            assert self.driver
            turn = self.driver.submit(lambda turn: self._use(turn, item))
            await turn.wait()
        except MudroomError as error:
            if may_work_later(error):
                raise  # the prompt is not done: a later process continues it
            is_wrong = _is_wrong(error, is_open=self.driver is not None)
            result = InputResult(run=self._get_run(turn), error=str(error), is_wrong=is_wrong)
            await self._finish(item, result)
        except Exception as error:  # noqa: BLE001  (the client waits for a result)
            text = f"{type(error).__name__}: {error}"
            self._parts.notify(f"session {self.record.id}: {text}")
            await self._finish(item, InputResult(run=self._get_run(turn), error=text))

    @staticmethod
    def _get_run(turn: Turn[Any] | None) -> str:
        return (turn.run_id or "") if turn else ""

    async def apply(self, item: Input) -> InputResult:
        """Carry out an event other than a prompt, and note the result."""
        try:
            is_applied = await self._act(item.type, item.body)
            result = InputResult(is_applied=is_applied)
        except MudroomError as error:
            result = InputResult(is_applied=False, error=str(error))
        await self._parts.inputs.finish(item.number, result)
        self.feed.notify()
        return result

    def seal(self) -> None:
        """Stop all work immediately; a later process continues it."""
        self._is_sealed = True
        if self.driver:
            self.driver.pause()

    async def update_budget(self) -> None:
        """Limit the runs to what the owner may still spend today."""
        if self.driver and self.charges.has_limits:
            budget = await self.charges.make_budget()
            if self.driver:
                self.driver.session.budget = budget

    async def _find_prompt(self) -> Input | None:
        for item in await self._parts.inputs.list_open(self.record.id):
            if item.type == PROMPT:
                return item
        return None

    async def _wait_for_prompt(self) -> Input | None:
        while True:
            self.woken.clear()
            if item := await self._find_prompt():
                return item
            try:
                async with time_limit(self._parts.options.idle_seconds):
                    await self.woken.wait()
            except TimeoutError:
                if not (self.driver and self.driver.session.interrupted_run):
                    return None

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[None]:
        options = self._parts.options
        choices = self.record.choices
        folder = options.workspaces.get(choices.workspace, "")
        if not folder:
            raise UnknownName("workspace", choices.workspace, options.workspaces)
        await self._notes.write()  # replaces those of a process that has ended
        self._prompt_count = await count_prompts(self._parts.store, self.record.id)
        plan = ServedSessionPlan(
            id=self.record.id,
            is_recorded=await is_recorded(self._parts.store, self.record.id),
            cwd=folder,
            agent=choices.agent,
            mode=choices.mode,
            budget=choices.budget,
        )
        driver = SessionDriver(
            self._make_session, plan, questions=self.questions, on_event=self._observe
        )
        async with driver:
            charging = asyncio.create_task(self._charge())
            self.driver = driver
            try:
                yield
            finally:
                self.driver = None
                charging.cancel()
                await asyncio.gather(charging, return_exceptions=True)
                await self._notes.finish()

    def _make_session(self, plan: ServedSessionPlan, _: SessionStart) -> Session:
        return self._parts.command_line.prepare(plan, self.questions, self._store)

    async def _use(self, turn: Turn[Any], item: Input) -> None:
        """Run a prompt, or its rest if a process ended while running it."""
        current = await self._parts.inputs.find(item.number)
        if current is None or current.state == "done":
            return
        choices = self.record.choices
        limits = (choices.usd_per_day, choices.tokens_per_day)
        if why := await explain_used_up(self._parts.spending, self.record.owner, *limits):
            await self._finish(item, InputResult(reason=Reason.BUDGET.value, error=why))
            return
        await self.update_budget()
        if current.state == "working" and self._prompt_count > current.runs_before:
            report = await turn.resume()
            report = report or await read_last_report(self._parts.store, self.record.id)
        else:
            await self._parts.inputs.start(item.number, self._prompt_count)
            message = msgspec.convert(item.body, UserMessage)
            report = await turn.run(make_prompt(message.text), outputs=message.outputs)
        if self._is_sealed:
            return
        await self.charges.update()
        if report is None:
            result = CANCELLED_BEFORE
        else:
            position = self._store.find_end(report.run_id)
            result = InputResult(run=report.run_id, position=position, reason=report.reason.value)
        await self._finish(item, result)

    async def _finish(self, item: Input, result: InputResult) -> None:
        if not self._is_sealed:
            await self._parts.inputs.finish(item.number, result)

    async def _act(self, kind: str, body: dict[str, Any]) -> bool:
        if kind == "run.cancel" and not body.get("run"):
            return await self._cancel_all()
        if self.driver is None:
            return False
        session = self.driver.session
        run = str(body.get("run") or self.run)
        match kind:
            case "question.answer":
                return use_answer(self.questions, body)
            case "user.interrupt":
                return self.driver.interrupt()
            case "run.cancel":
                return session.runs.cancel(run)
            case "run.wrap_up":
                return bool(run) and session.runs.wrap_up(run)
            case "run.steer":
                return bool(run) and await session.runs.send_durably(run, str(body["text"]))
            case _:
                return False

    async def _cancel_all(self) -> bool:
        """Cancel the running prompt and all waiting ones."""
        is_applied = bool(self.driver and self.driver.cancel())
        return await self._parts.inputs.cancel_waiting(self.record.id) or is_applied

    def _show_questions(self) -> None:
        # Clients of other processes also see the questions.
        self.feed.notify()
        self._notes.start()

    def _describe_questions(self) -> str:
        """Describe the open questions for other processes, "" for none."""
        questions = list_questions(self.questions)
        return msgspec.json.encode(Asking(self.run, questions)).decode() if questions else ""

    def _observe(self, event: AnyEvent) -> None:
        match event:
            case Delta():
                self.feed.show_delta(event)
            case RunStarted() if event.brief.depth == 0 and not event.brief.is_compaction:
                self._prompt_count += 1
            case TurnFinished() | TurnFailed():
                self._spent.set()
            case _:
                pass
        if self.run != self._shown_run:
            self._shown_run = self.run
            self.feed.notify()
        for watch in list(self.watchers):
            watch(event)

    async def _charge(self) -> None:
        while True:
            await self._spent.wait()
            self._spent.clear()
            try:
                await self.charges.update()
            except MudroomError as error:
                self._parts.notify(f"session {self.record.id}: not charged yet: {error}")


def _is_wrong(error: MudroomError, *, is_open: bool) -> bool:
    """Return whether the prompt is wrong, or the agent its client chose.

    A session that could not be opened, for example without a key for the model, proves neither.
    """
    if isinstance(error, UnknownName) and error.kind == "agent":
        return True
    return is_open and isinstance(error, UsageError)


async def is_recorded(store: SessionStore, session: str) -> bool:
    try:
        await store.read_info(session)
    except UnknownName:
        return False
    return True


async def count_prompts(store: SessionStore, session: str) -> int:
    count = 0
    try:
        async for event in stream_events(store, session, (RunStarted,)):
            if isinstance(event, RunStarted):
                count += event.brief.depth == 0 and not event.brief.is_compaction
    except UnknownName:
        return 0
    return count


async def read_last_report(store: SessionStore, session: str) -> Report[Any]:
    last: Report[Any] | None = None
    async for event in stream_events(store, session, (RunFinished,)):
        if isinstance(event, RunFinished) and not is_child_id(event.run):
            last = event.report
    if last is None:
        raise JournalError("the prompt has no report", where=session)
    return last


Observe = Callable[[int, Sequence[StoredEvent]], None]
"""Takes the position of the first event and the events, in their order."""


class ObservedJournal:
    """The journal of a session written by this process.

    Calls `observe` after each append, and `on_gap` if events are durable but were not shown.
    """

    def __init__(self, journal: Journal, observe: Observe, on_gap: Callable[[], None]) -> None:
        self._append = journal.append
        self._observe = observe
        self._on_gap = on_gap
        self.read = journal.read
        self.follow = journal.follow
        self.close = journal.close
        self.last_end = ("", 0)  # last root run that ended, and the position of its report

    async def append(self, *events: StoredEvent) -> int:
        try:
            position = await self._append(*events)
        except asyncio.CancelledError:
            self._on_gap()
            raise
        if events:
            first = position - len(events) + 1
            for at, event in enumerate(events, first):
                if isinstance(event, RunFinished) and not is_child_id(event.run):
                    self.last_end = (event.run, at)
            self._observe(first, events)
        return position


class ObservedStore:
    """A store that opens an observed journal for the one session written with it."""

    def __init__(self, store: SessionStore, observe: Observe, on_gap: Callable[[], None]) -> None:
        self._store = store
        self._observe = observe
        self._on_gap = on_gap
        self._written: ObservedJournal | None = None
        self.list = store.list
        self.read_info = store.read_info
        self.read_header = store.read_header
        self.find = store.find
        self.check_name = store.check_name
        self.rename = store.rename
        self.delete = store.delete
        self.find_writer = store.find_writer

    async def create(self, session: str) -> Journal:
        return self._watch(await self._store.create(session))

    async def open(self, session: str, *, read_only: bool = False) -> Journal:
        journal = await self._store.open(session, read_only=read_only)
        return journal if read_only else self._watch(journal)

    def find_end(self, run: str) -> int:
        """Find the position of a run's report if it was the last root run to end, else 0."""
        last, position = self._written.last_end if self._written else ("", 0)
        return position if last == run else 0

    def _watch(self, journal: Journal) -> Journal:
        self._written = ObservedJournal(journal, self._observe, self._on_gap)
        return self._written
