"""A prompt's stream: its events while it runs, and its report at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, TypeVar

from .._core.events import AnyEvent, Delta
from .._core.runs import Report, is_child_id
from ..errors import UsageError

T = TypeVar("T")


class RunStream(Generic[T]):
    """A prompt's events in order, including those of its child runs.

    The prompt starts with the first iteration. Leaving the loop early cancels the run. With
    `async with`, the run has ended when the block is left, otherwise soon afterwards. Unread events
    are kept in memory.

    Example:
        stream: RunStream = session.stream("Find the author.")
        async with stream:
            async for event in stream:
                print(event)
        print(stream.report.text)
    """

    def __init__(self, start: Callable[[Callable[[AnyEvent], None]], Awaitable[Report[T]]]) -> None:
        # The generator must not refer to this object: asyncio closes it, which cancels the run, as
        # soon as the caller drops the stream.
        self._reports: list[Report[T]] = []
        self._events = _generate_events(start, self._reports)

    @property
    def report(self) -> Report[T]:
        """The run's report, available after the last event. Raises UsageError before that."""
        if not self._reports:
            raise UsageError("the stream has not ended", remedy="Read its events to the end first.")
        return self._reports[0]

    def __aiter__(self) -> RunStream[T]:
        return self

    async def __anext__(self) -> AnyEvent:
        return await anext(self._events)

    async def text(self) -> AsyncGenerator[str]:
        """Yield the text of the run's answers piece by piece, excluding its child runs.

        It consumes the same events as the stream itself, so use one of the two.

        Example:
            async with session.stream("Find the author.") as stream:
                async for piece in stream.text():
                    print(piece, end="")
        """
        async for event in self:
            if type(event) is Delta and event.kind == "text" and not is_child_id(event.run):
                yield event.text

    async def __aenter__(self) -> RunStream[T]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel the run if it is still going, and wait for its end."""
        await self._events.aclose()


async def _generate_events(
    start: Callable[[Callable[[AnyEvent], None]], Awaitable[Report[T]]], reports: list[Report[T]]
) -> AsyncGenerator[AnyEvent]:
    queue: asyncio.Queue[AnyEvent | None] = asyncio.Queue()

    async def run() -> None:
        try:
            reports.append(await start(queue.put_nowait))
        finally:
            queue.put_nowait(None)

    task = asyncio.create_task(run())
    try:
        while (event := await queue.get()) is not None:
            yield event
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
