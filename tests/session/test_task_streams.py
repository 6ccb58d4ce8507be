"""Streams of tasks: the events of one task and of the runs below it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mudroom import Session
from mudroom._session.run_stream import RunStream
from mudroom.errors import UnknownName
from mudroom.events import AnyEvent, RunFinished, RunStarted
from mudroom.testing import Answer, Request, ScriptedModel, call


async def test_a_stream_has_the_events_of_its_task_alone(tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        return "Done." if request.results else [call("glob", pattern="*")]

    model = ScriptedModel(answer)
    async with Session(model=model, cwd=str(tmp_path), journal="memory") as session:
        first = session.stream_task("One.", description="first")
        second = session.stream_task("Two.", description="second")
        events = await asyncio.gather(*[_collect(each) for each in (first, second)])
    for stream, seen in zip((first, second), events, strict=True):
        assert stream.report.text == "Done."
        assert {event.run for event in seen} == {stream.report.run_id}
        assert isinstance(seen[0], RunStarted) and isinstance(seen[-1], RunFinished)


async def _collect(stream: RunStream[Any]) -> list[AnyEvent]:
    return [event async for event in stream]


async def test_leaving_a_stream_cancels_its_task_alone(tmp_path: Path) -> None:
    released = asyncio.Event()

    async def answer(request: Request) -> str:
        await released.wait()
        return "Done."

    model = ScriptedModel(answer)
    async with Session(model=model, cwd=str(tmp_path), journal="memory") as session:
        other = asyncio.create_task(session.task("Stay."))
        async with session.stream_task("Leave.") as stream:
            await anext(stream)
        assert [work.title for work in await session.runs.list_open_work()] == ["Stay."]
        released.set()
        assert (await other).text == "Done."


async def test_a_wrong_agent_is_an_error_at_the_first_event(tmp_path: Path) -> None:
    async with Session(model=ScriptedModel([]), cwd=str(tmp_path), journal="memory") as session:
        with pytest.raises(UnknownName, match="exporer"):
            await anext(session.stream_task("Look.", agent="exporer"))
