"""Steer, wrap up, cancel: one run of many, without touching its siblings; and a cancel that leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from mudroom import Effect, Reason, tool
from mudroom._core.events import Delta, NoteInjected, RunFinished, RunStarted, ToolCallStarted
from mudroom.models.scripted import Request, call

SECONDS = 10


class Gate:
    """A tool that says when it is under way, and waits until it is let go."""

    def __init__(self, of: int = 1) -> None:
        self.reached, self.open = asyncio.Barrier(of + 1), asyncio.Event()

        @tool(effect=Effect.PURE)
        async def wait() -> str:
            await self.reached.wait()
            await self.open.wait()
            return "waited"

        self.tool = wait

    async def __aenter__(self) -> Gate:
        async with asyncio.timeout(SECONDS):
            await self.reached.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.open.set()


def family(request: Request) -> Any:
    """A parent with three children that wait at the gate."""
    if request.prompt == "PARENT":
        return "all done" if request.turn else [call("task", prompt=f"CHILD {n}") for n in range(3)]
    if not request.tools:
        return f"what I had {request.prompt[-1]}"
    return (
        f"REPORT {request.prompt[-1]}"
        if request.turn
        else [f"partial {request.prompt[-1]}", call("wait")]
    )


async def test_a_word_reaches_a_run_with_its_next_results(stage: Any) -> None:
    gate = Gate()
    async with stage.open({"PARENT": [[call("wait")], "end"]}, tools=[gate.tool]) as session:
        run = asyncio.create_task(session.run("PARENT"))
        async with gate:
            assert session.send("1", "look in the cellar too")
        await run
    result, word = stage.model.requests[1].messages[-1].content
    assert (result.text, word.text) == ("waited", "look in the cellar too")
    assert [event.origin for event in stage.events if isinstance(event, NoteInjected)] == ["user"]


async def test_a_word_that_comes_with_the_last_answer_is_still_heard(stage: Any) -> None:
    async def answer(request: Request) -> Any:
        if not request.turn:
            assert stage.session.send("1", "and in English")
            return "fertig"
        return "done"

    report = await stage.run(answer)
    assert (
        report.text == "done"
        and stage.model.requests[1].messages[-1].content[0].text == "and in English"
    )


async def test_one_child_is_steered_and_its_siblings_hear_nothing(stage: Any) -> None:
    gate = Gate(3)
    async with stage.open(family, tools=[gate.tool]) as session:
        run = asyncio.create_task(session.run("PARENT"))
        async with gate:
            assert session.send("1.1.2", "only for you")
        await run
    heard = {
        asked.prompt for asked in stage.model.requests if "only for you" in str(asked.messages)
    }
    assert heard == {"CHILD 1"}


async def test_a_child_that_is_wrapped_up_says_what_it_has(stage: Any) -> None:
    gate = Gate(3)
    async with stage.open(family, tools=[gate.tool]) as session:
        run = asyncio.create_task(session.run("PARENT"))
        async with gate:
            assert session.wrap_up("1.1.2")
            await stage.until(lambda: "1.1.2" in stage.reports)
        report = await run
    child = stage.reports["1.1.2"]
    assert (child.reason, child.recovered, child.text) == (Reason.CANCELLED, True, "what I had 1")
    assert report.ok and [stage.reports[f"1.1.{n}"].reason for n in (1, 3)] == [Reason.GOAL] * 2


async def test_one_of_three_children_is_cancelled_and_its_siblings_go_on(stage: Any) -> None:
    gate = Gate(3)
    async with stage.open(family, tools=[gate.tool]) as session:
        run = asyncio.create_task(session.run("PARENT"))
        async with gate:
            assert session.cancel("1.1.2") and not session.cancel("1.1.2")
            await stage.until(lambda: "1.1.2" in stage.reports)
        report = await run
    assert report.ok and report.text == "all done"
    first, cancelled, third = stage.asked("PARENT")[-1].messages[-1].content
    assert first.text.startswith("REPORT 0") and third.text.startswith("REPORT 2")
    assert cancelled.error and cancelled.text.startswith(
        "[CANCELLED: it was cancelled; what follows is partial]\npartial 1\n"
    )


async def test_cancelling_the_root_ends_everything_below_it(stage: Any) -> None:
    gate = Gate(3)
    async with stage.open(family, tools=[gate.tool]) as session:
        run = asyncio.create_task(session.run("PARENT"))
        async with gate:
            assert session.cancel()
            report = await run
        assert report.reason is Reason.CANCELLED and not report.recovered
        assert {run_id: one.reason for run_id, one in stage.reports.items()} == dict.fromkeys(
            stage.runs, Reason.CANCELLED
        )
        assert len(stage.runs) == 4 and len(stage.model.requests) == 4, (
            "nobody was asked anything more"
        )
        assert (
            not session.send("1", "too late")
            and not session.cancel("1")
            and not session.wrap_up("1.1.1")
        )
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_session_lives_on_after_a_cancel(stage: Any) -> None:
    gate = Gate(3)

    def answer(request: Request) -> Any:
        return "hello" if request.turn else family(request)

    async with stage.open(answer, tools=[gate.tool]) as session:
        run = asyncio.create_task(session.run("PARENT"))
        async with gate:
            session.cancel()
            await run
        assert (await session.run("still there?")).text == "hello"


async def test_a_cancel_from_outside_is_raised_and_every_run_still_ends_with_a_report(
    stage: Any,
) -> None:
    gate = Gate(3)
    async with stage.open(family, tools=[gate.tool]) as session:
        run = asyncio.create_task(session.run("PARENT"))
        async with gate:
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
        assert set(stage.reports) == set(stage.runs) and {
            r.reason for r in stage.reports.values()
        } == {Reason.CANCELLED}
        begun = [event.run for event in stage.events if isinstance(event, RunStarted)]
        ended = [event.run for event in stage.events if isinstance(event, RunFinished)]
        assert sorted(begun) == sorted(ended) and ended[-1] == "1", (
            "each ends once, the parent last"
        )


async def test_a_command_is_gone_when_its_run_is_cancelled(stage: Any) -> None:
    async with stage.open(
        {"PARENT": [[call("bash", command="echo $$ > pid; sleep 3600; echo late > late")], "end"]}
    ) as session:
        run = asyncio.create_task(session.run("PARENT"))
        pid = stage.folder / "pid"
        await stage.until(lambda: pid.exists() and pid.read_text().strip())
        session.cancel()
        assert (await run).reason is Reason.CANCELLED
        await stage.until(lambda: not _alive(int(pid.read_text())))
    assert not (stage.folder / "late").exists()


async def test_a_cancel_is_a_barrier_nothing_begins_after_it(stage: Any) -> None:
    gate = Gate()
    several = [
        call("bash", command="sleep 3600"),
        call("write", path="late", content="x"),
        call("wait"),
    ]
    async with stage.open({"PARENT": [several, "end"]}, tools=[gate.tool]) as session:
        run = asyncio.create_task(session.run("PARENT"))
        async with gate:
            session.cancel()
            at = len(stage.events)
            await run
    assert not [event for event in stage.events[at:] if isinstance(event, ToolCallStarted | Delta)]
    assert not (stage.folder / "late").exists()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
