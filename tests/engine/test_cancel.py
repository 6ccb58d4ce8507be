"""Messages, wrap up and cancel: one run among siblings; a cancel leaves nothing running."""

from __future__ import annotations

import asyncio

import pytest
from tests.engine.conftest import Stage, block_texts

from mudroom import AnyEvent, Budget, Effect, Reason, tool
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._core.events import (
    RunFinished,
    RunStarted,
    ToolCallFinished,
    ToolCallStarted,
)

SECONDS = 60


class Gate:
    """A tool whose calls wait;

    `async with` waits until `of` calls run and releases them at its end.
    """

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


def answer_as_family(request: Request) -> Answer:
    """Answer as a parent with three children that wait at the gate."""
    if request.prompt == "PARENT":
        return "all done" if request.turn else [call("task", prompt=f"CHILD {n}") for n in range(3)]
    if not request.tools:
        return f"what I had {request.prompt[-1]}"
    return (
        f"REPORT {request.prompt[-1]}"
        if request.turn
        else [f"partial {request.prompt[-1]}", call("wait")]
    )


async def test_a_cancel_while_the_calls_of_an_answer_start_ends_all_of_them(stage: Stage) -> None:
    def stop(event: AnyEvent) -> None:
        if isinstance(event, ToolCallStarted):
            session.runs.cancel()

    calls = [call("task", prompt=f"CHILD {n}") for n in range(200)]
    async with stage.open({"PARENT": [calls], "CHILD": ["done"]}) as session:
        session.watch(stop)
        report = await session.run("PARENT")
    assert report.reason is Reason.CANCELLED
    results = stage.select(ToolCallFinished)
    assert len(results) == 200
    started = stage.select(ToolCallStarted)
    assert 1 <= len(started) <= 64
    assert len(stage.runs) <= 1 + 32


async def test_a_run_that_is_cancelled_after_its_summary_stores_its_report(stage: Stage) -> None:
    def stop(event: AnyEvent) -> None:
        if isinstance(event, ToolCallFinished) and event.refused:
            session.runs.cancel()

    story = {"PARENT": [["so far", call("glob", pattern="*")]]}
    async with stage.open(story, budget=Budget(turns=1)) as session:
        session.watch(stop)
        report = await session.run("PARENT")
    assert (report.reason, report.recovered, report.text) == (Reason.MAX_TURNS, True, "so far")
    assert stage.reports == {"1": report}


async def test_a_message_during_the_last_answer_starts_another_turn(stage: Stage) -> None:
    async def answer(request: Request) -> Answer:
        if not request.turn:
            assert stage.session.runs.send("1", "and in English")
            return "fertig"
        return "done"

    report = await stage.run(answer)
    assert report.text == "done"
    assert block_texts(stage.model.requests[1].messages[-1]) == ["and in English"]


async def test_a_message_reaches_only_the_run_it_is_sent_to(stage: Stage) -> None:
    gate = Gate(3)
    async with stage.open(answer_as_family, tools=[gate.tool]) as session:
        run = asyncio.create_task(session.run("PARENT"))
        async with gate:
            assert session.runs.send("1.1.2", "only for you")
        await run
    heard = {
        asked.prompt for asked in stage.model.requests if "only for you" in str(asked.messages)
    }
    assert heard == {"CHILD 1"}


async def test_a_wrapped_up_child_gives_a_summary(stage: Stage) -> None:
    gate = Gate(3)
    async with stage.open(answer_as_family, tools=[gate.tool]) as session:
        run = asyncio.create_task(session.run("PARENT"))
        async with gate:
            assert session.runs.wrap_up("1.1.2")
            await stage.wait_until(lambda: "1.1.2" in stage.reports)
        report = await run
    child = stage.reports["1.1.2"]
    assert (child.reason, child.recovered, child.text) == (Reason.CANCELLED, True, "what I had 1")
    assert report.ok and [stage.reports[f"1.1.{n}"].reason for n in (1, 3)] == [Reason.GOAL] * 2


async def test_cancelling_one_child_leaves_its_siblings_running(stage: Stage) -> None:
    gate = Gate(3)
    async with stage.open(answer_as_family, tools=[gate.tool]) as session:
        run = asyncio.create_task(session.run("PARENT"))
        async with gate:
            assert session.runs.cancel("1.1.2") and not session.runs.cancel("1.1.2")
            await stage.wait_until(lambda: "1.1.2" in stage.reports)
        report = await run
    assert report.ok and report.text == "all done"
    first, cancelled, third = stage.list_requests("PARENT")[-1].results
    assert first.text.startswith("REPORT 0") and third.text.startswith("REPORT 2")
    assert cancelled.error and cancelled.text.startswith(
        "[CANCELLED: it was cancelled; what follows is partial]\npartial 1\n"
    )


async def test_cancelling_the_root_cancels_all_descendants(stage: Stage) -> None:
    gate = Gate(3)
    async with stage.open(answer_as_family, tools=[gate.tool]) as session:
        run = asyncio.create_task(session.run("PARENT"))
        async with gate:
            assert session.runs.cancel()
            report = await run
        assert report.reason is Reason.CANCELLED and not report.recovered
        assert {run_id: one.reason for run_id, one in stage.reports.items()} == dict.fromkeys(
            stage.runs, Reason.CANCELLED
        )
        assert len(stage.runs) == 4 and len(stage.model.requests) == 4, (
            "no further request was sent"
        )
        assert (
            not session.runs.send("1", "too late")
            and not session.runs.cancel("1")
            and not session.runs.wrap_up("1.1.1")
        )
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_every_run_stores_a_report_when_the_caller_is_cancelled(
    stage: Stage,
) -> None:
    gate = Gate(3)
    async with stage.open(answer_as_family, tools=[gate.tool]) as session:
        run = asyncio.create_task(session.run("PARENT"))
        async with gate:
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
        assert set(stage.reports) == set(stage.runs) and {
            r.reason for r in stage.reports.values()
        } == {Reason.CANCELLED}
        begun = [event.run for event in stage.select(RunStarted)]
        ended = [event.run for event in stage.select(RunFinished)]
        assert sorted(begun) == sorted(ended) and ended[-1] == "1", (
            "each ends once, the parent last"
        )


def answer_with_todos(request: Request) -> Answer:
    """Answer at once, each time with another call that does not wait, for up to 200 turns."""
    if not request.tools or request.turn == 200:
        return "summary"
    return [call("todo", todos=[{"content": f"step {request.turn}", "status": "pending"}])]


async def test_a_run_that_never_waits_can_be_cancelled(stage: Stage) -> None:
    async with stage.open(answer_with_todos) as session:
        run = asyncio.create_task(session.run("PARENT"))
        while len(stage.model.requests) < 3:  # noqa: ASYNC110  the run works between the sleeps
            await asyncio.sleep(0)
        assert session.runs.cancel()
        report = await run
    assert report.reason is Reason.CANCELLED and report.turns < 10


async def test_a_run_that_never_waits_ends_at_the_deadline_of_its_caller(stage: Stage) -> None:
    async with stage.open(answer_with_todos) as session:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await session.run("PARENT")
    assert len(stage.model.requests) < 10


async def test_a_handled_cancel_does_not_count_for_later_timeouts() -> None:
    from mudroom._engine.phase import RunControl

    task = asyncio.current_task()
    assert task is not None
    control = RunControl()
    control.attach(task)
    control.wrap_up()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.sleep(0)
    assert task.cancelling() == 1
    control.clear_cancel()
    assert task.cancelling() == 0
