"""Interrupt of a prompt: its turn or wait ends, its background work continues."""

from __future__ import annotations

import asyncio

import pytest
from tests.engine.conftest import Gate, Stage
from tests.engine.test_background import list_notifications, start
from tests.engine.test_inbox import list_texts

from mudroom import Reason, Report, UsageError
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._core.events import RunFinished, RunWaiting, TurnStarted
from mudroom.errors import SessionPaused


async def hang(request: Request) -> Answer:
    """Never answer."""
    await asyncio.Event().wait()
    return ""


async def test_an_interrupt_of_a_wait_leaves_the_children_at_work(stage: Stage) -> None:
    gate = Gate()

    script = {"PARENT": [[start("CHILD")], "I wait.", "Noted.", "All done."], "CHILD": [gate.child]}
    async with stage.open_waiting(script) as (session, running):
        assert session.interrupt()
        interim = await running
        assert (interim.is_interrupted, interim.reason) == (True, Reason.CANCELLED)
        assert interim.text == "I wait." and interim.run_id == session.interrupted_run == "1"
        assert [work.id for work in await session.runs.list_open_work()] == ["1", "1.1.1"]
        assert not session.interrupt()
        running = asyncio.create_task(session.run("and the roof"))
        await stage.wait_until(lambda: len(stage.list_requests("PARENT")) == 3)
        assert "and the roof" in list_texts(stage.list_requests("PARENT")[-1])
        gate.is_open.set()
        report = await running
        await stage.check_record()
    assert (report.text, report.is_interrupted, report.run_id) == ("All done.", False, "1")
    assert len(list_notifications(stage)) == 1
    assert not session._runner  # pyright: ignore[reportPrivateUsage]


async def test_an_interrupted_request_is_sent_again_with_the_next_prompt(stage: Stage) -> None:
    is_asked = asyncio.Event()
    gate = Gate()

    async def answer(request: Request) -> Answer:
        if not is_asked.is_set():
            is_asked.set()
            await asyncio.Event().wait()
        return "the end"

    script = {"PARENT": [[start("CHILD")], answer], "CHILD": [gate.child]}
    async with stage.open(script) as session:
        running = asyncio.create_task(session.run("PARENT"))
        await is_asked.wait()
        assert session.interrupt()
        assert (await running).is_interrupted
        gate.is_open.set()
        await stage.wait_until(lambda: "1.1.1" in stage.reports)
        report = await session.run("and the roof")
        await stage.check_record()
    assert report.text == "the end"
    last = stage.list_requests("PARENT")[-1]
    assert [type(message).__name__ for message in last.messages] == [
        "UserMessage",
        "AssistantMessage",
        "UserMessage",
    ]
    texts = list_texts(last)
    assert "and the roof" in texts and any("<task-notification>" in text for text in texts)
    turns = [e.turn for e in stage.select(TurnStarted) if e.run == "1"]
    assert turns[:2] == [1, 2] and turns[2] == 2


async def test_an_interrupt_ends_the_calls_of_the_turn_and_their_children(stage: Stage) -> None:
    script = {
        "PARENT": [[start("SLOW"), call("task", prompt="FRONT", name="ann")], "the end"],
        "SLOW": [hang],
        "FRONT": [hang],
    }
    async with stage.open(script) as session:
        running = asyncio.create_task(session.run("PARENT"))
        await stage.wait_until(lambda: stage.list_requests("FRONT") and stage.list_requests("SLOW"))
        assert session.interrupt()
        assert (await running).is_interrupted
        assert stage.reports["1.1.2"].reason is Reason.CANCELLED
        assert "1.1.1" not in stage.reports
        running = asyncio.create_task(session.run("and now"))
        await stage.wait_until(lambda: len(stage.list_requests("PARENT")) == 2)
        assert session.runs.cancel()
        report = await running
        await stage.check_record()
    assert report.reason is Reason.CANCELLED and not report.is_interrupted
    assert [e.run for e in stage.select(RunFinished)][-1] == "1"


async def test_a_second_stop_ends_the_interrupted_prompt_and_its_work(stage: Stage) -> None:
    script = {"PARENT": [[start("CHILD")], "I wait.", "a new prompt"], "CHILD": [hang]}
    async with stage.open_waiting(script) as (session, running):
        session.interrupt()
        await running
        assert session.runs.cancel()
        report = await session.run("PARENT again")
        await stage.check_record()
    assert (report.run_id, report.reason) == ("2", Reason.GOAL)
    assert stage.reports["1"].reason is Reason.CANCELLED
    assert stage.reports["1.1.1"].reason is Reason.CANCELLED


async def test_what_an_interrupted_prompt_refuses_says_why_and_what_to_do(stage: Stage) -> None:
    script = {"PARENT": [[start("CHILD")], "I wait.", "a new prompt"], "CHILD": [hang]}
    async with stage.open_waiting(script) as (session, running):
        session.interrupt()
        await running
        with pytest.raises(UsageError, match="cannot be compacted: its last prompt") as compacted:
            await session.compact()
        with pytest.raises(UsageError, match="cannot be rewound: its last prompt") as rewound:
            session.rewind("1")
        with pytest.raises(UsageError, match="Give only a text, or stop it first with Session"):
            await session.run("PARENT", outputs=dict[str, int])
        assert session.interrupted_run == "1"
        session.runs.cancel()
        assert (await session.run("PARENT again")).text == "a new prompt"
        session.rewind("2")
    remedy = "Send a prompt, which continues it, or stop it: Ctrl-C twice at the prompt, "
    assert remedy in str(compacted.value) and remedy in str(rewound.value)


async def test_an_interrupt_without_background_work_ends_the_prompt(stage: Stage) -> None:
    script = {"PARENT": [hang]}
    async with stage.open(script) as session:
        assert not session.interrupt()
        running = asyncio.create_task(session.run("PARENT"))
        await stage.wait_until(lambda: stage.list_requests("PARENT"))
        assert session.interrupt()
        report = await running
        assert not session.interrupted_run
        await stage.check_record()
    assert (report.reason, report.is_interrupted) == (Reason.CANCELLED, False)


async def test_a_streamed_task_is_paused_when_an_interrupted_session_closes(
    stage: Stage,
) -> None:
    script = {"PARENT": [[start("CHILD")], "I wait."], "CHILD": [hang], "TASK": [hang]}
    async with stage.open_waiting(script) as (session, running):
        assert session.interrupt()
        assert (await running).is_interrupted

        async def follow() -> Report:
            async with session.stream_task("TASK") as stream:
                async for _ in stream:
                    pass
            return stream.report

        following = asyncio.create_task(follow())
        await stage.wait_until(lambda: stage.list_requests("TASK"))
    with pytest.raises(SessionPaused):
        await following


async def test_a_prompt_can_be_interrupted_again_and_again(stage: Stage) -> None:
    gate = Gate()

    script = {"PARENT": [[start("CHILD")], "I wait."], "CHILD": [gate.child]}
    async with stage.open(script) as session:
        prompt = "PARENT"
        for number in range(3):
            running = asyncio.create_task(session.run(prompt))
            await stage.wait_until(
                lambda number=number: len(stage.list_requests("PARENT")) == number + 2
            )
            await stage.wait_until(
                lambda: (
                    isinstance(stage.events[-1], RunWaiting) and not stage.events[-1].is_interrupted
                )
            )
            assert session.interrupt()
            assert (await running).is_interrupted
            prompt = f"prompt {number}"
        gate.is_open.set()
        assert (await session.run("the last")).ok
        await stage.check_record()
