"""Turn: one entry in a driver's queue; and checks on a prompt before it is queued."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Generic, TypeVar

from .._core.events import AnyEvent, RunResumed, RunStarted
from .._core.runs import Report, is_child_id
from .._engine.structured_output import parse_output_type
from .._session.prompts import OutputSpec, Prompt, parse_prompt
from .._session.session import Session

Result = TypeVar("Result")
SessionCall = Callable[[Session], Awaitable[Any]]


class Turn(Generic[Result]):
    """One entry in the queue: a prompt, with what its client does before and after it.

    Made by `SessionDriver.submit`, or by `SessionDriver.start` for a task outside the queue. Its
    work calls `run`, `call` or `run_task`, and `prepare` for what comes before.

    Attributes:
        key: the name given by its client, or None.
        run_id: root run of its prompt or task, None until it starts.
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
        """Wait for the result of the work, None if the turn was stopped before it began.

        A caller that stops waiting does not stop the turn. Raises what the work raises.
        """
        self.task.add_done_callback(_take_error)
        await asyncio.wait({self.task})
        return None if self.task.cancelled() else self.task.result()

    async def open(self) -> Session:
        """Return the open session, reopening it first if the driver's plan has changed.

        `run` and `call` also do this. Raises UsageError, JournalError if it cannot be opened.
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
        self, prompt: Prompt, *, outputs: OutputSpec[Any] = None, model: str = ""
    ) -> Report[Any] | None:
        """Run a prompt, as `Session.run` does. Return None if the turn was already stopped."""
        return await self.call(lambda session: session.run(prompt, outputs=outputs, model=model))

    async def call(self, work: SessionCall) -> Any:  # noqa: ANN401
        """Call a session method that runs a prompt, such as `compact`.

        Return None if the turn was already stopped.
        """
        session = await self._begin()
        return None if session is None else await self._follow(session, work)

    async def resume(self, *, outputs: OutputSpec[Any] = None) -> Report[Any] | None:
        """Continue the runs that a crash interrupted, as `Session.resume_unfinished` does.

        Return None if there are none. Unlike a prompt, they are already in the record: if the turn
        was already stopped, they are cancelled at once, so that no later prompt continues them.
        """
        session = await self.open()

        def end_stopped(event: AnyEvent) -> None:
            if self.is_stopped and isinstance(event, RunResumed) and not is_child_id(event.run):
                session.runs.cancel()

        stop_watching = session.watch(end_stopped)
        try:
            return await self._follow(
                session, lambda session: session.resume_unfinished(outputs=outputs)
            )
        finally:
            stop_watching()

    async def _follow(self, session: Session, work: SessionCall) -> Any:  # noqa: ANN401
        self.run_id = session.interrupted_run or None
        self._stop_run = lambda keeps: session.interrupt() if keeps else session.runs.cancel()
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
        """Run a task outside the conversation. Return None if the turn was already stopped.

        Arguments:
            on_event: called with each event of the task and the runs below it.
            options: as for `Session.stream_task`.
        """
        session = await self._begin()
        if session is None:
            return None
        self._stop_run = lambda _: (
            session.runs.cancel(self.run_id) if self.run_id else self.task.cancel()
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
        """Return the session, None if the turn was stopped, perhaps while reopening it."""
        if self.is_stopped:
            return None
        session = await self.open()
        return None if self.is_stopped else session

    def stop(self, *, keeps_background: bool = True) -> bool:
        """Stop or dequeue this turn. Return False if it was already stopped or has ended.

        Arguments:
            keeps_background: its prompt's background work continues, see `Session.interrupt`.
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


def _take_error(task: asyncio.Task[Any]) -> None:
    """Mark a turn's error as seen, because the caller waiting for it may be gone when it comes.

    asyncio reports the errors of turns that nobody waits for.
    """
    if not task.cancelled():
        task.exception()


def check_prompt(prompt: Prompt) -> None:
    """Raise UsageError for a prompt no run can take: empty, or with an unreadable image.

    This lets a server refuse a prompt right away, instead of when its turn comes.

    Example:
        try:
            check_prompt([TextBlock("What is this?"), ImageBlock("", b"no image")])
        except UsageError as error:
            print(error.message)
    """
    parse_prompt(prompt)


def check_outputs(outputs: type[Any] | Mapping[str, Any]) -> None:
    """Raise UsageError for outputs no run can emit, such as an invalid schema.

    Example:
        check_outputs({"author": "name of the author", "year": {"type": "integer"}})
    """
    parse_output_type(outputs)
