"""SessionDriver: one conversation's queue of prompts, and the sessions opened for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Generic, TypeVar, overload

from msgspec import Struct
from msgspec.structs import replace

from .._core.events import AnyEvent, RunFinished, RunResumed, RunStarted
from .._core.runs import Report, is_child_id
from .._session.prompts import Prompt
from .._session.session import Session
from ..errors import MudroomError, UsageError
from .questions import Questions
from .turn import Turn

Plan = TypeVar("Plan")
Result = TypeVar("Result")
Work = Callable[[Turn[Any]], Awaitable[Any]]


class SessionStart(Struct, frozen=True):
    """How to open a session so that it continues the same conversation.

    Arguments:
        id: id of the session to reopen; None the first time.
        is_recorded: the record has a run with this id. Otherwise the session has no record yet and
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


class SessionDriver(Generic[Plan]):
    """Drives one conversation for a client: runs its prompts in turn, and stops them.

    Use it as an async context manager, which opens and closes the session. At the end of the block
    all turns are stopped; background work of an interrupted prompt continues when the session is
    resumed.

    Arguments:
        make_session: makes a session from a plan, without opening it. Called again when the plan
            has changed. Raises UsageError for an unusable plan.
        plan: what the session is made from. Plans must compare equal if they make the same session.
        questions: the approver that `make_session` gives the session. It is told the rules of each
            session opened, and the end of each run.
        on_event: called with every event, including streamed text. It must not raise.
        on_open: awaited with each newly opened session, before its first prompt. An error closes
            the session.
        resumes: the first session continues a recorded one.

    Attributes:
        plan: a new value takes effect at the next prompt or `apply_plan`. If the session cannot be
            opened with it, the session is reopened as before, `plan` reverts, and the prompt or
            `apply_plan` raises the error.

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
        self._start = SessionStart(None, resumes)
        self._opened_plan = plan
        self._session: Session | None = None
        self._stack = AsyncExitStack()
        self._must_open = False
        self._is_paused = False
        self._turns: dict[Turn[Any], asyncio.Task[Any]] = {}
        self._beside: set[Turn[Any]] = set()
        self._current: Turn[Any] | None = None
        self._turn_lock = asyncio.Lock()
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
        """The open session. Raises UsageError while it is being opened, and after it has ended."""
        if self._session is None:
            raise UsageError(
                "the session is not open",
                remedy="Use the driver as `async with SessionDriver(...) as driver:`.",
            )
        return self._session

    @property
    def current(self) -> Turn[Any] | None:
        """The running turn, None if there is none."""
        return self._current

    @property
    def waiting(self) -> tuple[Turn[Any], ...]:
        """The queued turns, oldest first."""
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
        """Queue a prompt and return its turn immediately.

        Arguments:
            work: a prompt, or a function called with the turn when the turn begins. The next turn
                waits for the function to return, so it can send what belongs to the end of the
                prompt.
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
        """Begin work outside the queue at once, such as a task, and return its turn.

        It is stopped by `Turn.stop`, by `cancel`, and at the end of the block. Do not change `plan`
        while such work is running: reopening the session would end its runs.

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

    async def _take_turn(self, turn: Turn[Any], work: Work) -> Any:  # noqa: ANN401
        try:
            async with self._turn_lock:
                if turn.is_stopped:
                    return None
                self._current = turn
                return await work(turn)
        finally:
            if self._current is turn:
                self._current = None

    def interrupt(self, *, keeps_background: bool = True) -> bool:
        """Stop the running turn; the queue then continues. Return False if none is running.

        Arguments:
            keeps_background: the prompt's background work continues, see `Session.interrupt`.
        """
        if self._current is None:
            return False
        return self._current.stop(keeps_background=keeps_background)

    def withdraw(self, key: str | None = None) -> tuple[Turn[Any], ...]:
        """Remove queued turns, either the one with this key or all. Return them."""
        withdrawn = tuple(turn for turn in self.waiting if key is None or turn.key == key)
        for turn in withdrawn:
            turn.is_stopped = True
        return withdrawn

    def cancel(self) -> bool:
        """Stop everything: running and queued turns, work outside the queue, and background work.

        Return False if there was nothing to stop.
        """
        is_stopped = bool(self.withdraw())
        is_stopped |= self.interrupt(keeps_background=False)
        is_stopped |= sum(turn.stop() for turn in list(self._beside)) > 0
        if self._session:
            is_stopped |= self._session.runs.cancel()
        return is_stopped

    def pause(self) -> bool:
        """Stop all work so that a later process can continue it, see `Session.pause`.

        Return False if no turn is running. A session being reopened is paused once it is open.
        """
        self._is_paused = True
        return self._session is not None and self._session.pause()

    async def apply_plan(self) -> None:
        """Reopen the session if `plan` has changed; during a turn, leave that to the next one."""
        if not self._turn_lock.locked():
            async with self._turn_lock:
                await self._apply_plan()

    def open_later(self) -> None:
        """Reopen the session before the next turn, even though the plan is the same."""
        self._must_open = True

    async def get_session(self) -> Session:
        """Return the open session, waiting while it is being reopened. Raises UsageError."""
        async with self._opening:
            return self.session

    async def drain(self) -> None:
        """Wait until no turn is running or queued."""
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
        session = self._make_session(self.plan, self._start)
        session.watch(self._observe)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(session)
            if self._questions:
                self._questions.start_session(session)
            if self._on_open:
                await self._on_open(session)
            self._stack = stack.pop_all()
        self._opened_plan = self.plan
        self._start = replace(self._start, id=session.id)
        self._session = session
        if self._is_paused:
            session.pause()
            await asyncio.sleep(0)  # takes effect at the next step of the event loop

    async def _close(self) -> None:
        self._session = None
        await self._stack.aclose()

    def _observe(self, event: AnyEvent) -> None:
        match event:
            case RunStarted() | RunResumed() if not is_child_id(event.run):
                self._start = replace(self._start, is_recorded=True)
                if self._current and not _is_beside(event):
                    self._current.run_id = event.run
            case RunFinished() if self._questions:
                self._questions.withdraw(event.run)
            case _:
                pass
        if self._on_event:
            self._on_event(event)


def _is_beside(event: RunStarted | RunResumed) -> bool:
    """Return whether a root run is not the prompt itself but a task or a compaction's notes."""
    return isinstance(event, RunStarted) and (event.brief.depth > 0 or event.brief.is_compaction)


def _make_prompt_work(prompt: Prompt) -> Work:
    return lambda turn: turn.run(prompt)
