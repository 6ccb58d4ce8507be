"""`Session.stream`: events while the prompt runs, the report at the end, cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass

import pytest

from mudroom import AnyEvent, JournalError, Reason, Session, UsageError
from mudroom.events import Delta, RunFinished, RunStarted, StoredEvent
from mudroom.testing import Answer, MemoryJournal, Request, ScriptedModel, call

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


async def test_stream_leaves_out_events_of_other_tasks(isolated: IsolatedOptions) -> None:
    async with Session(
        model=ScriptedModel(lambda request: request.prompt), journal="memory", **isolated
    ) as session:
        task = asyncio.create_task(session.task("beside", agent="explore"))
        streamed = [event async for event in session.stream("prompt")]
        await task
    assert len({event.run for event in streamed}) == 1


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


class CountingJournal(MemoryJournal):
    """Counts the events that are read, which are decoded from bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.decoded = 0

    async def read(
        self, after: int = 0, *, types: Collection[type[StoredEvent]] = ()
    ) -> AsyncIterator[StoredEvent]:
        async for event in super().read(after, types=types):
            self.decoded += 1
            yield event


async def test_prompts_do_not_read_the_journal(isolated: IsolatedOptions) -> None:
    journal = CountingJournal()
    model = ScriptedModel(lambda request: f"answer {request.turn}")
    async with Session(model=model, journal=journal, **isolated) as session:
        for number in range(10):
            await session.run(f"prompt {number}")
        assert len(model.requests[-1].messages) == 19
    assert journal.decoded == 0


async def test_journal_of_the_caller_is_resumed(isolated: IsolatedOptions) -> None:
    journal = CountingJournal()
    async with Session(model=ScriptedModel(["one"]), journal=journal, **isolated) as session:
        await session.run("first")
    copy = CountingJournal()
    await copy.append(*journal.events)
    model = ScriptedModel(["two"])
    async with Session(model=model, journal=copy, resume=session.id, **isolated) as again:
        await again.run("second")
        assert again.id == session.id
    assert len(model.requests[0].messages) == 3
