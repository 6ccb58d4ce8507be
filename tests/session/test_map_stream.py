"""Session.map with an async iterator: prompts arrive, and reports leave, while tasks run."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from mudroom import Reason, Session, UsageError
from mudroom._engine.run_context import RunContext
from mudroom.testing import Request, ScriptedModel
from mudroom.testing.clock import run_virtual

from .conftest import IsolatedOptions


async def list_prompts(count: int) -> AsyncGenerator[str]:
    for number in range(count):
        yield str(number)


def test_reports_come_in_the_order_of_the_prompts_and_tasks_run_in_parallel(
    isolated: IsolatedOptions,
) -> None:
    running: list[int] = [0]

    async def answer(request: Request) -> str:
        running.append(running[-1] + 1)
        await asyncio.sleep(10 - int(request.prompt) % 10)
        running.append(running[-1] - 1)
        return f"did {request.prompt}"

    async def map_prompts() -> list[str]:
        async with Session(model=ScriptedModel(answer), journal="memory", **isolated) as session:
            reports = session.map(list_prompts(30), parallel=4)
            return [report.text async for report in reports]

    assert run_virtual(map_prompts()) == [f"did {n}" for n in range(30)]
    assert max(running) == 4


class CountedPrompts:
    """Prompts, with the number of those that were taken."""

    def __init__(self, count: int) -> None:
        self.taken = 0
        self._count = count

    def __aiter__(self) -> CountedPrompts:
        return self

    async def __anext__(self) -> str:
        if self.taken == self._count:
            raise StopAsyncIteration
        self.taken += 1
        return str(self.taken)


def count_runs_in_memory() -> int:
    gc.collect()
    return sum(isinstance(each, RunContext) for each in gc.get_objects())


async def test_few_prompts_are_taken_before_their_reports(isolated: IsolatedOptions) -> None:
    parallel = 3
    prompts = CountedPrompts(400)
    model = ScriptedModel(lambda request: f"did {request.prompt}")
    lead = 0
    done = 0
    earlier = count_runs_in_memory()  # of earlier tests in this process
    async with Session(model=model, journal="memory", **isolated) as session:
        async for _ in session.map(prompts, parallel=parallel):
            lead = max(lead, prompts.taken - done)
            done += 1
            if done == 99:
                assert count_runs_in_memory() - earlier <= 5 * parallel + 1
    assert done == 400
    assert lead <= 5 * parallel + 2


async def test_a_wrong_prompt_is_reported_after_the_tasks_before_it(
    isolated: IsolatedOptions,
) -> None:
    async def list_two() -> AsyncGenerator[str]:
        yield "good"
        yield " "

    texts: list[str] = []
    async with Session(model=ScriptedModel(["fine"]), journal="memory", **isolated) as session:
        with pytest.raises(UsageError, match=r"the prompt is empty \(prompt 2\)"):
            async for report in session.map(list_two()):
                texts.append(report.text)
    assert texts == ["fine"]


async def test_a_failed_task_does_not_stop_the_others(isolated: IsolatedOptions) -> None:
    def answer(request: Request) -> str:
        if request.prompt == "1":
            raise RuntimeError("broken")
        return "fine"

    async with Session(model=ScriptedModel(answer), journal="memory", **isolated) as session:
        reports = [report async for report in session.map(list_prompts(3))]
    assert [report.reason for report in reports] == [Reason.GOAL, Reason.ERROR, Reason.GOAL]


async def test_closing_the_iterator_cancels_its_tasks(isolated: IsolatedOptions) -> None:
    async def answer(request: Request) -> str:
        if request.prompt != "0":
            await asyncio.Event().wait()
        return "fine"

    ended: list[Reason] = []
    async with Session(model=ScriptedModel(answer), journal="memory", **isolated) as session:
        session.watch(
            lambda event: (
                ended.append(getattr(event, "report").reason)  # noqa: B009
                if hasattr(event, "report")
                else None
            )
        )
        async with aclosing(session.map(list_prompts(100), parallel=3)) as reports:
            async for _ in reports:
                break
        assert set(ended) == {Reason.GOAL, Reason.CANCELLED}
        assert not session.runs.cancel(), "no run works"


async def test_cancel_ends_the_iterator(isolated: IsolatedOptions) -> None:
    async def answer(request: Request) -> str:
        if request.prompt == "5":
            session.runs.cancel()
        return "fine"

    prompts = CountedPrompts(1_000)
    async with Session(model=ScriptedModel(answer), journal="memory", **isolated) as session:
        reports = [report async for report in session.map(prompts, parallel=2)]
    assert 5 <= len(reports) < 20
    assert Reason.CANCELLED in {report.reason for report in reports}


async def test_closing_the_session_ends_the_iterator(isolated: IsolatedOptions) -> None:
    has_started = asyncio.Event()

    async def answer(request: Request) -> str:
        has_started.set()
        await asyncio.Event().wait()
        return "never"

    async with Session(model=ScriptedModel(answer), journal="memory", **isolated) as session:
        reports = session.map(list_prompts(10), parallel=2)
        first = asyncio.create_task(anext(reports))
        await has_started.wait()
    assert (await first).reason is Reason.CANCELLED
    await reports.aclose()
