"""Messages to a run: stored before they are read, read exactly once, also after a crash."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.engine.conftest import Stage
from tests.records import read_record, write_record

from mudroom import Budget, Effect, JournalError, Reason, Session, tool
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.journals.sqlite.folder import get_session_path
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import (
    MessageDelivered,
    MessageSent,
    RunStarted,
    StoredEvent,
    ToolCallFinished,
    TurnStarted,
)
from mudroom._core.messages import TextBlock, UserMessage
from mudroom._core.runs import InboxMessage
from mudroom._projections.transcript import build_transcript
from mudroom.testing.invariants import find_violations

MESSAGES = ("also the cellar", "and the roof")


def list_texts(request: Request) -> list[str]:
    """Return all texts of the user in a request."""
    return [
        block.text
        for message in request.messages
        if isinstance(message, UserMessage)
        for block in message.content
        if isinstance(block, TextBlock)
    ]


async def test_a_message_is_stored_when_it_is_sent_and_delivered_after_the_results(
    stage: Stage,
) -> None:
    @tool(effect=Effect.PURE)
    async def send_two() -> str:
        for text in MESSAGES:
            assert stage.session.runs.send("1", text)
        await stage.wait_until(lambda: stage.select(MessageSent))
        return "sent"

    await stage.run([[call("send_two")], "end"], tools=[send_two])
    kinds = [
        type(event)
        for event in stage.events
        if isinstance(event, MessageSent | MessageDelivered | ToolCallFinished | TurnStarted)
    ]
    assert kinds == [
        TurnStarted,
        MessageSent,
        MessageSent,
        ToolCallFinished,
        MessageDelivered,
        MessageDelivered,
        TurnStarted,
    ]
    assert list_texts(stage.model.requests[1])[1:] == list(MESSAGES)


async def test_a_message_is_on_disk_when_sending_it_durably_returns(stage: Stage) -> None:
    on_disk: list[str] = []

    @tool(effect=Effect.PURE)
    async def send_durably() -> str:
        for text in MESSAGES:
            assert await stage.session.runs.send_durably("1", text)
            path = get_session_path(stage.home, stage.session.id)
            stored = [event for event in open_reader(path).read() if isinstance(event, MessageSent)]
            on_disk.append(stored[-1].message.text)
        return "sent"

    script = [[call("send_durably")], "end"]
    await stage.run(script, tools=[send_durably], journal="sqlite")
    assert on_disk == list(MESSAGES)
    assert list_texts(stage.model.requests[1])[1:] == list(MESSAGES)


async def test_a_durable_message_to_a_run_that_ended_is_refused(stage: Stage) -> None:
    async with stage.open(["end"]) as session:
        await session.run("PARENT")
        assert await session.runs.send_durably("1", "too late") is False


async def test_a_journal_that_fails_is_reported_to_the_sender(stage: Stage) -> None:
    failures: list[str] = []

    @tool(effect=Effect.PURE)
    async def send_durably() -> str:
        try:
            await stage.session.runs.send_durably("1", "lost")
        except JournalError as error:
            failures.append(error.message)
        return "sent"

    script = [[call("send_durably")], "end"]
    with pytest.raises(JournalError):
        journal = MemoryJournal(capacity=2)  # full after the start and the first tool call
        await stage.run(script, tools=[send_durably], journal=journal)
    assert len(failures) == 1


async def test_a_message_with_a_known_id_is_delivered_once(stage: Stage) -> None:
    @tool(effect=Effect.PURE)
    async def send_twice() -> str:
        handle = stage.session.runs._find_run("1")  # pyright: ignore[reportPrivateUsage]
        assert handle is not None
        message = InboxMessage("m1", "only once")
        assert handle.send(message) and handle.send(message)
        return "sent"

    await stage.run([[call("send_twice")], [call("send_twice")], "end"], tools=[send_twice])
    assert list_texts(stage.model.requests[-1]).count("only once") == 1


async def test_messages_are_in_the_request_for_the_summary(stage: Stage) -> None:
    def answer(request: Request) -> Answer:
        if request.tools:
            assert stage.session.runs.send("1", "last message")
            return [call("read", path="notes.txt")]
        return "summary"

    report = await stage.run(answer, budget=Budget(turns=1))
    assert (report.reason, report.text) == (Reason.MAX_TURNS, "summary")
    assert "last message" in list_texts(stage.model.requests[-1])


async def test_a_run_that_is_ending_refuses_messages_and_stores_nothing(stage: Stage) -> None:
    refused: list[bool] = []

    def answer(request: Request) -> Answer:
        if request.tools:
            return [call("read", path="notes.txt", limit=request.turn + 1)]
        refused.append(stage.session.runs.send("1", "too late"))
        return "summary"

    await stage.run(answer, budget=Budget(turns=1))
    assert refused == [False]
    assert not stage.select(MessageSent)


def script(request: Request) -> Answer:
    return [[call("read", path="notes.txt")], [call("todo", todos=[])], "end"][request.turn]


@pytest.fixture
async def recorded(tmp_path: Path) -> tuple[str, list[StoredEvent]]:
    """A recorded session whose run received two messages."""
    (tmp_path / "notes.txt").write_text("one\n")
    home = str(tmp_path / "home")

    async def answer(request: Request) -> Answer:
        if request.turn < len(MESSAGES):
            assert session.runs.send("1", MESSAGES[request.turn])
            await asyncio.sleep(0.01)
        return script(request)

    async with Session(
        model=ScriptedModel(answer), cwd=str(tmp_path), home=home, sandbox="off"
    ) as session:
        await session.run("PARENT")
    return session.id, read_record(tmp_path / "home", session.id)


async def test_s11_after_a_crash_at_any_event_each_message_is_read_once(
    tmp_path: Path, recorded: tuple[str, list[StoredEvent]]
) -> None:
    session_id, events = recorded
    assert not find_violations(events)
    first = next(n for n, event in enumerate(events) if isinstance(event, RunStarted)) + 1
    for cut in range(first, len(events) - 1):
        sent = [event.message.text for event in events[:cut] if isinstance(event, MessageSent)]
        home = tmp_path / str(cut)
        await write_record(home, session_id, *events[:cut])
        model = ScriptedModel(script)
        async with Session(model=model, home=str(home), resume=session_id, sandbox="off") as again:
            await again.resume_unfinished()
        stored = read_record(home, session_id)
        assert not find_violations(stored), f"cut off after {cut} events"
        delivered = [event.text for event in stored if isinstance(event, MessageDelivered)]
        assert delivered == sent, f"cut off after {cut} events"
        last = build_transcript(stored, "1")
        read = [
            block.text
            for message in last
            if isinstance(message, UserMessage)
            for block in message.content
            if isinstance(block, TextBlock)
        ]
        assert [text for text in read if text in MESSAGES] == sent
