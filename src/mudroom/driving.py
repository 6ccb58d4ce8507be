"""Driving a session: what a screen or a server needs between its client and a `Session`.

`SessionDriver` queues the client's prompts, stops them, and opens the session again when its
options change. `Questions` holds the tool calls that the client must decide on. A server is then
a mapping of messages: each message of its protocol becomes one call, each event one message.

Example:
    questions = Questions()

    def make_session(model: str, start: SessionStart) -> Session:
        return Session(model=model, cwd=".", approver=questions, **start.options)

    async def use(driver: SessionDriver[str]) -> None:
        first = driver.submit("Which testing framework does this project use?")
        second = driver.submit("Where are its tests?", key="line 2")
        driver.withdraw("line 2")
        for turn in (first, second):
            report = await turn.wait()
            print(report.text if report else "It was stopped before it began.")

    async def answer(question: Question) -> None:
        question.answer(ApprovalDecision(False, "Not now."))

    async with SessionDriver(make_session, "offline", questions=questions) as driver:
        await use(driver)
        driver.plan = "offline"  # the next prompt begins with this model
        for question in questions.list():
            await answer(question)
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Generic, TypeVar, overload

from msgspec import Struct

from ._adapters.tools import make_builtin_tools
from ._core.agents import Mode
from ._core.events import AnyEvent, RunFinished, RunResumed, RunStarted
from ._core.ports import ApprovalDecision, ApprovalRequest
from ._core.run_ids import is_child_id
from ._core.runs import Report
from ._core.tools import ToolCategory
from ._session.prompts import Prompt
from ._session.session import Session
from ._session.session_runs.requests import OutputSpec
from .errors import MudroomError, UsageError
from .permissions.approved_rules import ApprovedRules
from .permissions.rules import Rule

__all__ = ["Question", "Questions", "SessionDriver", "SessionStart", "Turn"]

Plan = TypeVar("Plan")
Result = TypeVar("Result")


class Question(Struct, eq=False, kw_only=True):
    """A tool call that waits for a decision, or the form of an MCP server.

    Arguments:
        id: names the question in the answer of a client.
        request: the call, and why it needs a decision.
        decision: what `answer` sets.
        is_sent: for the client: it has brought the question to its user.

    Example:
        def show(question: Question) -> str:
            return f"{question.id}: {question.request.tool} {question.request.arguments}"
    """

    id: str
    request: ApprovalRequest
    decision: asyncio.Future[ApprovalDecision]
    is_sent: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it still waits: nobody has answered, and the run has not ended."""
        return not self.decision.done()

    def answer(self, decision: ApprovalDecision) -> bool:
        """Decide. Return False if someone else was faster, or the run has ended."""
        if self.decision.done():
            return False
        self.decision.set_result(decision)
        return True


class Questions:
    """The open questions of a session; the `approver` for a client that answers from afar.

    A question is withdrawn as soon as it has an answer, when its time is over, and when its run
    ends or is stopped: it leaves `list`, and the call of `ask` is cancelled. Questions do not wait
    for one another.

    Arguments:
        ask: brings a question to the client and returns its decision. None if the client reads
            `list` and answers by id; `answer` works in both cases, and the first answer counts.
            A MudroomError denies the call.
        seconds: time for an answer; then the call is denied. None for no limit.
        on_change: called with the question whenever one is asked or withdrawn.
        refuse: returns why the client cannot be asked, which denies the call, or None.
        make_id: makes the id of a question. Random by default.
        allowed: reason given for calls that an earlier answer allows.

    Attributes:
        mode: a permission mode that the client has set while a prompt works. It widens what is
            allowed at once: ACCEPT_EDITS allows writing, BYPASS everything. None adds nothing.

    Example:
        questions = Questions(seconds=120, on_change=lambda question: print(len(questions.list())))
        session = Session(approver=questions)
    """

    def __init__(
        self,
        ask: Callable[[Question], Awaitable[ApprovalDecision]] | None = None,
        *,
        seconds: float | None = None,
        on_change: Callable[[Question], object] | None = None,
        refuse: Callable[[ApprovalRequest], str | None] | None = None,
        make_id: Callable[[ApprovalRequest], str] | None = None,
        allowed: str = "allowed for this session",
    ) -> None:
        self.mode: Mode | None = None
        self._ask = ask
        self._seconds = seconds
        self._on_change = on_change
        self._refuse = refuse
        self._make_id = make_id
        self._allowed = allowed
        self._open: dict[str, Question] = {}
        self._approved: ApprovedRules | None = None
        self._exact_calls: set[str] = set()

    def list(self, run_id: str | None = None) -> tuple[Question, ...]:
        """Return the open questions, oldest first; only those of a run and below it with an id."""
        return tuple(
            question
            for question in self._open.values()
            if question.is_open and (run_id is None or _is_below(question.request.run_id, run_id))
        )

    def find(self, id: str) -> Question | None:
        """Return an open question by its id."""
        question = self._open.get(id)
        return question if question and question.is_open else None

    def answer(self, id: str, decision: ApprovalDecision) -> bool:
        """Answer a question by its id. Return False if no such question is open."""
        question = self.find(id)
        return question is not None and question.answer(decision)

    def withdraw(self, run_id: str, why: str = "the run has ended") -> None:
        """Deny the open questions of a run and of the runs below it."""
        for question in self.list(run_id):
            question.answer(ApprovalDecision(False, why))

    def start_session(self, session: Session) -> None:
        """Ask about the calls of this open session. Rules approved earlier still apply."""
        rules = self._approved.rules if self._approved else []
        self._approved = ApprovedRules(
            session.permissions,
            workspace=session.cwd,
            user_home=session.user_home,
            tools=make_builtin_tools(),
            tier=lambda: session.sandbox.tier,
        )
        self._approved.add(*rules)

    def add_rules(self, *rules: Rule) -> None:
        """Allow from now on what these rules cover."""
        if self._approved:
            self._approved.add(*rules)

    def suggest_rules(self, request: ApprovalRequest) -> tuple[Rule, ...]:
        """Return the rules that would allow this call and similar ones; () if none can."""
        if self._approved is None or request.form:
            return ()
        return self._approved.suggest(request.tool, request.arguments)

    def allow_always(
        self, request: ApprovalRequest, rules: tuple[Rule, ...] | None = None
    ) -> tuple[Rule, ...]:
        """Allow this call and similar ones from now on; return the rules that say so.

        Without a rule that could, only this exact call is allowed. A form is asked about always.

        Arguments:
            rules: those that the client has shown; by default those of `suggest_rules`.
        """
        rules = self.suggest_rules(request) if rules is None else rules
        self.add_rules(*rules)
        if not (rules or request.form):
            self._exact_calls.add(_make_exact_key(request))
        return rules

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        """Wait for the client's decision, unless an earlier answer or the mode allows the call."""
        if request.form is None and (why := self._find_reason(request)):
            return ApprovalDecision(True, why)
        if self._refuse and (refusal := self._refuse(request)):
            return ApprovalDecision(False, refusal)
        decision = asyncio.get_running_loop().create_future()
        question = Question(id=self._choose_id(request), request=request, decision=decision)
        self._open[question.id] = question
        self._tell(question)
        asking = asyncio.create_task(self._bring(question, self._ask)) if self._ask else None
        try:
            async with asyncio.timeout(self._seconds):
                return await decision
        except TimeoutError:
            return ApprovalDecision(False, f"no one answered within {self._seconds:g} s")
        finally:
            decision.cancel()
            del self._open[question.id]
            if asking:
                asking.cancel()
            self._tell(question)

    async def _bring(
        self, question: Question, ask: Callable[[Question], Awaitable[ApprovalDecision]]
    ) -> None:
        try:
            question.answer(await ask(question))
        except MudroomError as error:
            question.answer(ApprovalDecision(False, f"the client could not answer: {error}"))
        except Exception as error:  # noqa: BLE001  (the call fails with it)
            if question.is_open:
                question.decision.set_exception(error)

    def _find_reason(self, request: ApprovalRequest) -> str | None:
        """Return why a call is allowed without a question, None if it is not."""
        is_known = _make_exact_key(request) in self._exact_calls
        if is_known or (self._approved and self._approved.allow(request.tool, request.arguments)):
            return self._allowed
        is_edit = request.category is ToolCategory.WRITE
        if self.mode is Mode.BYPASS or (self.mode is Mode.ACCEPT_EDITS and is_edit):
            return f"allowed by the mode {self.mode.value}"
        return None

    def _choose_id(self, request: ApprovalRequest) -> str:
        made = self._make_id(request) if self._make_id else secrets.token_hex(8)
        # Two forms of the same call can be open at once.
        return made if made not in self._open else f"{made}_{secrets.token_hex(4)}"

    def _tell(self, question: Question) -> None:
        if self._on_change:
            self._on_change(question)


def _is_below(run_id: str, root: str) -> bool:
    return run_id == root or run_id.startswith(f"{root}.")


def _make_exact_key(request: ApprovalRequest) -> str:
    return f"{request.tool} {request.arguments}"


class SessionStart(Struct, frozen=True):
    """How a session must be opened, so that it is the same conversation as before.

    Arguments:
        id: id of the session that is opened again; None the first time.
        is_recorded: the record has a run of this id. A session without one has no record yet: it
            is opened as a new one with the same id.

    Example:
        start = SessionStart("0b5c8e1c-6f0e-4d9c-8f52-2f1b9c1d3a77", is_recorded=True)
        assert start.options == {"resume": start.id}
    """

    id: str | None = None
    is_recorded: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """The start as arguments of `Session`."""
        if self.id is None:
            return {}
        return {"resume" if self.is_recorded else "id": self.id}


class Turn(Generic[Result]):
    """One entry of the queue: a prompt, with what its client does before and after it.

    `SessionDriver.submit` makes it, and `SessionDriver.start` for a task beside the queue. Its work
    calls `run`, `call` or `run_task`, and `prepare` for what comes before.

    Attributes:
        key: the name that its client gave it, or None.
        run_id: root run of its prompt or task, None before it has started.
        is_stopped: it was withdrawn, interrupted or cancelled.
        task: runs the work when the turn begins.

    Example:
        async def ask_twice(turn: Turn[Report | None]) -> Report | None:
            await turn.run("Which testing framework does this project use?")
            return await turn.run("Where are its tests?")
    """

    def __init__(
        self,
        key: str | None,
        begin: Callable[[Turn[Result]], Coroutine[Any, Any, Result | None]],
        open_session: Callable[[], Awaitable[Session]],
    ) -> None:
        self.key = key
        self.run_id: str | None = None
        self.is_stopped = False
        self._open_session = open_session
        self._preparing: asyncio.Future[Any] | None = None
        self._stop_run: Callable[[bool], bool] | None = None
        self.task = asyncio.create_task(begin(self))

    async def wait(self) -> Result | None:
        """Return the result of the work, None if the turn was stopped before it began.

        A caller that stops waiting does not stop the turn. Raises what the work raises.
        """
        self.task.add_done_callback(_take_error)
        await asyncio.wait({self.task})
        return None if self.task.cancelled() else self.task.result()

    async def open(self) -> Session:
        """Return the open session; if the driver's plan has changed, it is opened again first.

        `run` and `call` do this too. Raises UsageError, JournalError if it cannot be opened.
        """
        return await self._open_session()

    async def prepare(self, work: Awaitable[Any]) -> Any:  # noqa: ANN401
        """Await what comes before the prompt, such as reading a file; a stop ends it.

        Return None if it was stopped; then `is_stopped` is true.
        """
        if self.is_stopped:
            if isinstance(work, Coroutine):
                work.close()
            return None
        preparing = self._preparing = asyncio.ensure_future(work)
        try:
            return await preparing
        except asyncio.CancelledError:
            if not (preparing.cancelled() and self.is_stopped):
                preparing.cancel()
                raise
            return None
        finally:
            self._preparing = None

    async def run(
        self,
        prompt: Prompt,
        *,
        outputs: OutputSpec[Any] = None,
        model: str = "",
    ) -> Report[Any] | None:
        """Give the session a prompt, as `Session.run` does. None if the turn was stopped before."""
        return await self.call(lambda session: session.run(prompt, outputs=outputs, model=model))

    async def call(self, work: Callable[[Session], Awaitable[Any]]) -> Any:  # noqa: ANN401
        """Call a method of the session that runs a prompt, such as `resume_unfinished`.

        Return None if the turn was stopped before.
        """
        session = await self._begin()
        if session is None:
            return None
        self.run_id = session.interrupted_run or None
        self._stop_run = lambda keeps: session.interrupt() if keeps else session.cancel()
        try:
            return await work(session)
        finally:
            self._stop_run = None

    async def run_task(
        self,
        prompt: Prompt,
        *,
        on_event: Callable[[AnyEvent], object] | None = None,
        **options: Any,
    ) -> Report[Any] | None:
        """Run a task beside the conversation. None if the turn was stopped before.

        Arguments:
            on_event: called with each event of the task and of the runs below it.
            options: as for `Session.stream_task`.
        """
        session = await self._begin()
        if session is None:
            return None
        self._stop_run = lambda _: (
            session.cancel(self.run_id) if self.run_id else self.task.cancel()
        )
        try:
            async with session.stream_task(prompt, **options) as stream:
                async for event in stream:
                    if isinstance(event, RunStarted) and self.run_id is None:
                        self.run_id = event.run
                    if on_event:
                        on_event(event)
            return stream.report
        finally:
            self._stop_run = None

    async def _begin(self) -> Session | None:
        """Return the session, None if the turn was stopped, perhaps while it was opened again."""
        if self.is_stopped:
            return None
        session = await self.open()
        return None if self.is_stopped else session

    def stop(self, *, keeps_background: bool = True) -> bool:
        """Stop this turn, or remove it from the queue. Return False if it was stopped or has ended.

        Arguments:
            keeps_background: the background work of its prompt continues, see `Session.interrupt`.
        """
        if self.task.done():
            return False
        was_stopped = self.is_stopped
        self.is_stopped = True
        if self._preparing:
            return self._preparing.cancel()
        if self._stop_run:
            return self._stop_run(keeps_background)
        return not was_stopped  # `run` sees it


class SessionDriver(Generic[Plan]):
    """Drives one conversation for a client: its prompts one after the other, and their stops.

    Use it as an async context manager, which opens the session and closes it. At the end of the
    block all turns are stopped; background work of an interrupted prompt continues when the
    session is resumed.

    Arguments:
        make_session: makes the session of a plan, not yet open. Called again when the plan has
            changed. Raises UsageError for a plan that cannot be used.
        plan: what the session is made of: any value that is equal to another one if the session
            would be the same.
        questions: the approver that `make_session` gives the session. It learns the rules of each
            session that is opened, and the end of each run.
        on_event: called with every event, streamed text included. It must not raise.
        on_open: awaited with each session that was opened, before its first prompt. An error
            closes the session.
        resumes: the first session continues a recorded one.

    Attributes:
        plan: a new value holds from the next prompt on, or from `apply_plan`. If the session
            cannot be opened with it, it is opened as before, `plan` is what it was, and the prompt
            or `apply_plan` raises the error.

    Errors: UsageError, JournalError when a session cannot be opened.

    Example:
        def make_session(mode: str, start: SessionStart) -> Session:
            permissions = Permissions(mode=Mode(mode))
            return Session(model="offline", permissions=permissions, **start.options)

        async with SessionDriver(make_session, "plan", on_event=print) as driver:
            report = await driver.submit("Which testing framework is used?").wait()
    """

    def __init__(
        self,
        make_session: Callable[[Plan, SessionStart], Session],
        plan: Plan,
        *,
        questions: Questions | None = None,
        on_event: Callable[[AnyEvent], object] | None = None,
        on_open: Callable[[Session], Awaitable[object]] | None = None,
        resumes: bool = False,
    ) -> None:
        self.plan = plan
        self._make_session = make_session
        self._questions = questions
        self._on_event = on_event
        self._on_open = on_open
        self._is_recorded = resumes
        self._opened_plan = plan
        self._session: Session | None = None
        self._session_id: str | None = None
        self._stack = AsyncExitStack()
        self._must_open = False
        self._is_paused = False
        self._turns: dict[Turn[Any], asyncio.Task[Any]] = {}
        self._beside: set[Turn[Any]] = set()
        self._current: Turn[Any] | None = None
        self._place = asyncio.Lock()
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> SessionDriver[Plan]:
        async with self._opening:
            await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = list(self._turns.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._close()

    @property
    def session(self) -> Session:
        """The open session. Raises UsageError while it is being opened, and after its end."""
        if self._session is None:
            raise UsageError(
                "the session is not open",
                remedy="Use the driver as `async with SessionDriver(...) as driver:`.",
            )
        return self._session

    @property
    def current(self) -> Turn[Any] | None:
        """The turn that works, None if none does."""
        return self._current

    @property
    def waiting(self) -> tuple[Turn[Any], ...]:
        """The turns that wait for those before them, oldest first."""
        return tuple(
            turn
            for turn in self._turns
            if not (turn is self._current or turn.is_stopped or turn.task.done())
            and turn not in self._beside
        )

    @overload
    def submit(self, work: Prompt, *, key: str | None = None) -> Turn[Report[Any]]: ...

    @overload
    def submit(
        self, work: Callable[[Turn[Any]], Awaitable[Result]], *, key: str | None = None
    ) -> Turn[Result]: ...

    def submit(
        self, work: Prompt | Callable[[Turn[Any]], Awaitable[Any]], *, key: str | None = None
    ) -> Turn[Any]:
        """Queue a prompt, and return its turn at once.

        Arguments:
            work: a prompt, or a function that is called when the turn begins, with the turn. The
                next turn begins when the function has returned, so it can send what belongs to the
                end of the prompt.
            key: a name for `withdraw`.

        Example:
            async def fill_and_run(turn: Turn[Report | None]) -> Report | None:
                text = await turn.prepare(asyncio.to_thread(Path("prompt.md").read_text))
                return await turn.run(text) if text else None

            turn = driver.submit(fill_and_run)
            report = await turn.wait()
        """
        act = work if callable(work) else _make_prompt_work(work)
        return self._add(Turn(key, lambda turn: self._take_turn(turn, act), self._apply_plan))

    def start(
        self, work: Callable[[Turn[Any]], Coroutine[Any, Any, Result]], *, key: str | None = None
    ) -> Turn[Result]:
        """Begin work beside the queue at once, such as a task, and return its turn.

        It is stopped by `Turn.stop`, by `cancel`, and at the end of the block. Leave `plan` as it
        is while such work goes on: opening the session again would end its runs.

        Example:
            turn = driver.start(lambda turn: turn.run_task("Find the author.", agent="explore"))
            report = await turn.wait()
        """
        turn: Turn[Result] = Turn(key, work, self._apply_plan)
        self._beside.add(turn)
        turn.task.add_done_callback(lambda _: self._beside.discard(turn))
        return self._add(turn)

    def _add(self, turn: Turn[Result]) -> Turn[Result]:
        self._turns[turn] = turn.task
        turn.task.add_done_callback(lambda _: self._turns.pop(turn))
        return turn

    async def _take_turn(self, turn: Turn[Any], work: Callable[[Turn[Any]], Awaitable[Any]]) -> Any:  # noqa: ANN401
        try:
            async with self._place:
                if turn.is_stopped:
                    return None
                self._current = turn
                return await work(turn)
        finally:
            if self._current is turn:
                self._current = None

    def interrupt(self, *, keeps_background: bool = True) -> bool:
        """Stop the turn that works; those that wait follow. Return False if none works.

        Arguments:
            keeps_background: the background work of the prompt continues, see `Session.interrupt`.
        """
        if self._current is None:
            return False
        return self._current.stop(keeps_background=keeps_background)

    def withdraw(self, key: str | None = None) -> tuple[Turn[Any], ...]:
        """Remove turns that wait: the one with a key, or all. Return them."""
        withdrawn = tuple(turn for turn in self.waiting if key is None or turn.key == key)
        for turn in withdrawn:
            turn.is_stopped = True
        return withdrawn

    def cancel(self) -> bool:
        """Stop all: the turn that works, those that wait, work beside, and all background work.

        Return False if there was nothing to stop.
        """
        is_stopped = bool(self.withdraw())
        is_stopped |= self.interrupt(keeps_background=False)
        is_stopped |= sum(turn.stop() for turn in list(self._beside)) > 0
        if self._session:
            is_stopped |= self._session.cancel()
        return is_stopped

    def pause(self) -> bool:
        """Stop all work so that a later process continues it, see `Session.pause`.

        Return False if none works. A session that is being opened again is paused when it is open.
        """
        self._is_paused = True
        return self._session is not None and self._session.pause()

    async def apply_plan(self) -> None:
        """Open the session again if `plan` has changed, unless a turn works: the next one does."""
        if not self._place.locked():
            async with self._place:
                await self._apply_plan()

    def open_later(self) -> None:
        """Open the session again before the next turn, although the plan is the same."""
        self._must_open = True

    async def get_session(self) -> Session:
        """Return the open session; wait while it is being opened again. Raises UsageError."""
        async with self._opening:
            return self.session

    async def drain(self) -> None:
        """Wait until no turn works or waits."""
        while tasks := [task for task in self._turns.values() if not task.done()]:
            await asyncio.wait(tasks)

    async def _apply_plan(self) -> Session:
        async with self._opening:
            is_current = self._session and self.plan == self._opened_plan and not self._must_open
            if not (is_current or self._is_paused):
                previous = self._opened_plan
                try:
                    await self._open_again()
                except MudroomError:
                    self.plan = previous
                    await self._open_again()
                    raise
            return self.session

    async def _open_again(self) -> None:
        await self._close()
        await self._open()

    async def _open(self) -> None:
        self._must_open = False
        start = SessionStart(self._session_id, self._is_recorded)
        session = self._make_session(self.plan, start)
        session.watch(self._observe)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(session)
            if self._questions:
                self._questions.start_session(session)
            if self._on_open:
                await self._on_open(session)
            self._stack = stack.pop_all()
        self._opened_plan = self.plan
        self._session_id = session.id
        self._session = session
        if self._is_paused:
            session.pause()
            await asyncio.sleep(0)  # it acts at the next step of the event loop

    async def _close(self) -> None:
        self._session = None
        await self._stack.aclose()

    def _observe(self, event: AnyEvent) -> None:
        match event:
            case RunStarted() | RunResumed() if not is_child_id(event.run):
                self._is_recorded = True
                if self._current and not _is_beside(event):
                    self._current.run_id = event.run
            case RunFinished() if self._questions:
                self._questions.withdraw(event.run)
            case _:
                pass
        if self._on_event:
            self._on_event(event)


def _is_beside(event: RunStarted | RunResumed) -> bool:
    """Return whether a root run is not the prompt itself: a task, or notes of a compaction."""
    return isinstance(event, RunStarted) and (event.brief.depth > 0 or event.brief.is_compaction)


def _take_error(task: asyncio.Task[Any]) -> None:
    """Take the error of a turn that someone waits for, who may be gone when it comes.

    asyncio reports the errors of turns that nobody waits for.
    """
    if not task.cancelled():
        task.exception()


def _make_prompt_work(prompt: Prompt) -> Callable[[Turn[Any]], Awaitable[Report[Any] | None]]:
    return lambda turn: turn.run(prompt)
