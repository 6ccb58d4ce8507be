"""Python's own ways to stop work: what was emitted is kept, and every run says CANCELLED."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest

from mudroom import Agent, Budget, Reason, Session
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom.events import RunFinished, RunStarted
from mudroom.testing import MemoryJournal

from .conftest import CONTEXT, OUTPUTS, PROMPT, Open, create_scope, emit

Work = Callable[[], Awaitable[object]]
Way = Callable[[Work, asyncio.Event], Awaitable[None]]
Door = Callable[[Session], Awaitable[object]]
WANTED = {"title": "the title", "author": "its author"}
DEEP = Budget(depth=2)
"""Children of tasks may start children."""


class _SiblingFails(Exception):
    """What ends a TaskGroup."""


async def cancel_task(work: Work, hangs: asyncio.Event) -> None:
    task = asyncio.ensure_future(work())
    await hangs.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def fail_in_a_task_group(work: Work, hangs: asyncio.Event) -> None:
    async def fail() -> None:
        await hangs.wait()
        raise _SiblingFails

    async def execute() -> None:
        await work()

    with pytest.raises(ExceptionGroup, match="TaskGroup"):
        async with asyncio.TaskGroup() as group:
            group.create_task(execute())
            group.create_task(fail())


async def reach_a_timeout(work: Work, hangs: asyncio.Event) -> None:
    async def expire(timeout: asyncio.Timeout) -> None:
        await hangs.wait()
        timeout.reschedule(0)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as timeout, asyncio.TaskGroup() as group:
            group.create_task(expire(timeout))
            await work()


WAYS: list[Way] = [cancel_task, fail_in_a_task_group, reach_a_timeout]


async def map_one(session: Session) -> object:
    return await session.map(["Read it."], outputs=WANTED, budget=DEEP)


async def stream_prompts(session: Session) -> object:
    async def prompts() -> AsyncIterator[str]:
        yield "Read it."

    return [report async for report in session.map(prompts(), outputs=WANTED, budget=DEEP)]


DOORS: dict[str, Door] = {
    "task": lambda session: session.task("Read it.", outputs=WANTED, budget=DEEP),
    "map": map_one,
    "map of a stream": stream_prompts,
    "prompt": lambda session: session.run("Read it.", outputs=WANTED),
    "scope": lambda session: session.scope(
        "reader", PROMPT, output_config=OUTPUTS, context=CONTEXT
    ),
}


class Hanging:
    """A model that emits a title, may start children, and then never answers again.

    Attributes:
        hangs: set when all runs hang.
    """

    def __init__(self, children: int = 0, *, in_background: bool = False) -> None:
        self.hangs = asyncio.Event()
        self._children = children
        self._in_background = in_background
        self._hanging = 0
        self._turns = 0

    async def answer(self, request: Request) -> Answer:
        if "CHILD" not in request.prompt:
            self._turns += 1
            if self._turns == 1:
                return [emit("title", "On Mud")]
            if self._turns == 2 and self._children:
                arguments = {"prompt": "CHILD", "background": self._in_background}
                return [call("task", **arguments) for _ in range(self._children)]
        self._hanging += 1
        if self._hanging == self._children + (self._in_background or not self._children):
            self.hangs.set()
        await asyncio.sleep(3600)
        return "never"


def list_reports(journal: MemoryJournal) -> dict[str, RunFinished]:
    return {event.run: event for event in journal.events if isinstance(event, RunFinished)}


@pytest.mark.parametrize(
    ("way", "door"), [(cancel_task, door) for door in DOORS] + [(way, "task") for way in WAYS[1:]]
)
async def test_a_cancelled_run_keeps_its_values_and_says_cancelled(
    scripted: Open, way: Way, door: str
) -> None:
    model = Hanging()
    journal = MemoryJournal()
    async with scripted(model.answer, journal=journal) as (session, _):
        await way(lambda: DOORS[door](session), model.hangs)
        # The end is recorded when the caller goes on, not some time later.
        (finished,) = list_reports(journal).values()
        assert finished.report.reason is Reason.CANCELLED
        assert finished.report.outputs == {"title": "On Mud"}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_a_cancelled_scope_has_its_output(scripted: Open, way: Way) -> None:
    model = Hanging()
    async with scripted(model.answer) as (session, _):
        scope = await create_scope(session, output_config=OUTPUTS)
        await way(lambda: scope.run_non_interactive(CONTEXT), model.hangs)
    assert scope.output.terminate_reason is Reason.CANCELLED
    assert scope.output.emitted_vars == {"title": "On Mud"}
    assert scope.output.report is not None
    assert scope.output.report.turns == 2


@pytest.mark.parametrize(
    ("door", "in_background"),
    [("task", False), ("map", True), ("map of a stream", False), ("prompt", True)],
)
async def test_runs_below_end_before_the_caller_goes_on(
    scripted: Open, door: str, in_background: bool
) -> None:
    model = Hanging(3, in_background=in_background)
    journal = MemoryJournal()
    agents = [Agent(name="general", description="Works.", tools=("task", "read"))]
    async with scripted(model.answer, journal=journal, agents=agents) as (session, scripts):
        await cancel_task(lambda: DOORS[door](session), model.hangs)
        requests = len(scripts.requests)
        started = [event.run for event in journal.events if isinstance(event, RunStarted)]
        reports = list_reports(journal)
        assert len(started) == 4
        assert sorted(reports) == sorted(started)
        assert {each.report.reason for each in reports.values()} == {Reason.CANCELLED}
        assert max(reports.values(), key=lambda each: len(each.run)).report.turns == 1
        await asyncio.sleep(0)
        assert len(scripts.requests) == requests


async def test_a_scope_that_is_cancelled_before_its_run_begins_says_cancelled(
    scripted: Open,
) -> None:
    async with scripted([]) as (session, model):
        scope = await create_scope(session, output_config=OUTPUTS)
        task = asyncio.create_task(scope.run(CONTEXT))
        await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert scope.output.terminate_reason is Reason.CANCELLED
    assert not model.requests


async def test_a_second_cancel_loses_nothing(scripted: Open) -> None:
    model = Hanging()
    async with scripted(model.answer) as (session, _):
        scope = await create_scope(session, output_config=OUTPUTS)
        task = asyncio.create_task(scope.run(CONTEXT))
        await model.hangs.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert scope.output.emitted_vars == {"title": "On Mud"}
    assert scope.output.terminate_reason is Reason.CANCELLED


async def test_a_slow_listener_does_not_hide_a_report(scripted: Open) -> None:
    """The run has reached its goal; only the delivery of its messages is cancelled."""
    listens = asyncio.Event()

    async def listen(_: str) -> None:
        listens.set()
        await asyncio.sleep(3600)

    script = [[emit("title", "T"), emit("author", "A")]]
    async with scripted(script) as (session, _):
        ended = asyncio.Event()
        session.watch(lambda event: ended.set() if isinstance(event, RunFinished) else None)
        scope = await create_scope(session, output_config=OUTPUTS, on_message=listen)
        task = asyncio.create_task(scope.run(CONTEXT))
        await listens.wait()
        await ended.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert scope.output.terminate_reason is Reason.GOAL
    assert scope.output.emitted_vars == {"title": "T", "author": "A"}
