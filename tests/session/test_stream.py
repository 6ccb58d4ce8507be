"""Streams: of a prompt, of a task, of the prompts and reports of `Session.map`."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pytest

from mudroom import AnyEvent, JournalError, Reason, RunStream, Session, UsageError
from mudroom._engine.run_context import RunContext
from mudroom.errors import UnknownName
from mudroom.events import Delta, RunFinished, RunStarted
from mudroom.testing import Answer, MemoryJournal, Request, ScriptedModel, call
from mudroom.testing.clock import run_virtual

from ..waiting import wait_until
from .conftest import IsolatedOptions


def delegate(request: Request) -> Answer:
    if request.prompt != "PARENT":
        return "child report"
    return "done" if request.turn else [call("task", prompt="CHILD")]


async def test_stream_yields_the_events_of_the_prompt_and_then_has_its_report(
    isolated: IsolatedOptions,
) -> None:
    seen: list[AnyEvent] = []
    streamed: list[AnyEvent] = []
    async with Session(model=ScriptedModel(delegate), journal="memory", **isolated) as session:
        session.watch(seen.append)
        stream = session.stream("PARENT")
        async for event in stream:
            streamed.append(event)
        assert streamed == seen
        assert isinstance(streamed[0], RunStarted) and isinstance(streamed[-1], RunFinished)
        assert {event.run for event in streamed} == {"1", "1.1.1"}
        assert any(isinstance(event, Delta) for event in streamed)
        assert stream.report.text == "done"


async def test_the_text_of_a_stream_is_that_of_its_own_run(isolated: IsolatedOptions) -> None:
    async with Session(model=ScriptedModel(delegate), journal="memory", **isolated) as session:
        async with session.stream("PARENT") as stream:
            assert "".join([piece async for piece in stream.text()]) == "done"
        assert stream.report.text == "done"


@dataclass
class Count:
    lines: int


async def test_stream_converts_typed_outputs(isolated: IsolatedOptions) -> None:
    emit = call("self.emitvalue", emit_variable_name="lines", emit_variable_value=2)
    async with Session(model=ScriptedModel([[emit]]), journal="memory", **isolated) as session:
        async with session.stream("count", outputs=Count) as stream:
            async for _ in stream:
                pass
        assert stream.report.outputs == Count(2)


@pytest.mark.parametrize("how", ["aclose", "drop", "cancel"])
async def test_leaving_a_stream_early_cancels_its_run(how: str, isolated: IsolatedOptions) -> None:
    journal = MemoryJournal()

    async def never(request: Request) -> str:
        await asyncio.sleep(3600)
        return "too late"

    model = ScriptedModel(never)
    async with Session(model=model, journal=journal, **isolated) as session:
        if how == "aclose":
            async with session.stream("wait") as stream:
                async for _ in stream:
                    break
            with pytest.raises(UsageError, match="not ended"):
                _ = stream.report
        elif how == "drop":
            async for _ in session.stream("wait"):
                break
        else:
            reading = asyncio.create_task(read_all(session, "wait"))
            await wait_until(lambda: model.requests)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

        def list_finished() -> list[RunFinished]:
            return [event for event in journal.events if isinstance(event, RunFinished)]

        await wait_until(list_finished)
        assert [event.report.reason for event in list_finished()] == [Reason.CANCELLED]


async def read_all(session: Session, prompt: str) -> list[AnyEvent]:
    return [event async for event in session.stream(prompt)]


async def test_stream_raises_what_run_raises(isolated: IsolatedOptions) -> None:
    journal = MemoryJournal(capacity=2)
    async with Session(model=ScriptedModel(["hello"]), journal="memory", **isolated) as session:
        with pytest.raises(UsageError, match="empty"):
            await read_all(session, " ")
    with pytest.raises(JournalError):
        async with Session(model=ScriptedModel(["hi"]), journal=journal, **isolated) as session:
            await read_all(session, "hello")


async def test_a_stream_has_the_events_of_its_task_alone(isolated: IsolatedOptions) -> None:
    def answer(request: Request) -> Answer:
        return "Done." if request.results else [call("glob", pattern="*")]

    async with Session(model=ScriptedModel(answer), journal="memory", **isolated) as session:
        first = session.stream_task("One.", description="first")
        second = session.stream_task("Two.", description="second")
        events = await asyncio.gather(*[collect(each) for each in (first, second)])
    for stream, seen in zip((first, second), events, strict=True):
        assert stream.report.text == "Done."
        assert {event.run for event in seen} == {stream.report.run_id}
        assert isinstance(seen[0], RunStarted) and isinstance(seen[-1], RunFinished)


async def collect(stream: RunStream[Any]) -> list[AnyEvent]:
    return [event async for event in stream]


async def test_leaving_a_stream_cancels_its_task_alone(isolated: IsolatedOptions) -> None:
    released = asyncio.Event()

    async def answer(request: Request) -> str:
        await released.wait()
        return "Done."

    async with Session(model=ScriptedModel(answer), journal="memory", **isolated) as session:
        other = asyncio.create_task(session.task("Stay."))
        async with session.stream_task("Leave.") as stream:
            await anext(stream)
        assert [work.title for work in await session.runs.list_open_work()] == ["Stay."]
        released.set()
        assert (await other).text == "Done."


async def test_a_wrong_agent_is_an_error_at_the_first_event(isolated: IsolatedOptions) -> None:
    async with Session(model=ScriptedModel([]), journal="memory", **isolated) as session:
        with pytest.raises(UnknownName, match="exporer"):
            await anext(session.stream_task("Look.", agent="exporer"))


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


async def test_closing_the_iterator_cancels_its_tasks(isolated: IsolatedOptions) -> None:
    async def answer(request: Request) -> str:
        if request.prompt != "0":
            await asyncio.Event().wait()
        return "fine"

    ended: list[Reason] = []

    def watch(event: AnyEvent) -> None:
        if isinstance(event, RunFinished):
            ended.append(event.report.reason)

    async with Session(model=ScriptedModel(answer), journal="memory", **isolated) as session:
        session.watch(watch)
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
