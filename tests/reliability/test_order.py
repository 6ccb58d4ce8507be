"""S1 to S3: the order of records and actions, and the resume of an interrupted write."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.records import read_record, write_record

from mudroom import Effect, Session, ToolResult
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import (
    FileWriteIntended,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
)
from mudroom._core.messages import ToolResultBlock, UserMessage
from mudroom._replay import replay
from mudroom.testing.clock import run_virtual
from mudroom.testing.invariants import find_violations

from .recorded import make_tool, open_scripted


async def test_s1_s2_answer_then_intent_then_act_then_result_each_in_the_record_before_the_next(
    tmp_path: Path,
) -> None:
    journal, recorded_kinds = MemoryJournal(), list[type[StoredEvent]]()

    async def run(_context: object, _arguments: object) -> ToolResult:
        recorded_kinds.extend(
            type(event)
            for event in journal.events
            if isinstance(event, TurnFinished | ToolCallStarted | ToolCallFinished)
        )
        return ToolResult("done")

    def script(request: Request) -> Answer:
        result_ids = {
            block.call_id
            for message in request.messages
            if isinstance(message, UserMessage)
            for block in message.content
            if isinstance(block, ToolResultBlock)
        }
        assert result_ids <= {
            event.call_id for event in journal.events if isinstance(event, ToolCallFinished)
        }, "a result was sent and not recorded"
        return call("act") if request.turn < 2 else "end"

    tool = make_tool("act", run)
    async with open_scripted(tmp_path, script, journal=journal, tools=[tool]) as session:
        assert (await session.run("PARENT")).ok
    assert recorded_kinds == [
        TurnFinished,
        ToolCallStarted,
        TurnFinished,
        ToolCallStarted,
        ToolCallFinished,
        TurnFinished,
        ToolCallStarted,
    ]


@pytest.mark.parametrize(("seconds", "at_once"), [(0.5, False), (1.5, True)])
def test_s3_a_quick_pure_result_is_recorded_with_the_next_answer_a_slow_one_at_once(
    tmp_path: Path, seconds: float, at_once: bool
) -> None:
    journal, shown, recorded = MemoryJournal(), list[str](), list[bool]()

    async def look(_context: object, _arguments: object) -> ToolResult:
        await asyncio.sleep(seconds)
        return ToolResult("looked")

    def script(request: Request) -> Answer:
        if request.turn == 0:
            return call("look")
        assert shown == ["looked"], "screens wait for no record"
        recorded.append(any(isinstance(event, ToolCallFinished) for event in journal.events))
        return "end"

    async def main() -> None:
        tool = make_tool("look", look, effect=Effect.PURE)
        options: dict[str, Any] = {"journal": journal, "tools": [tool], "sandbox": "off"}
        async with open_scripted(tmp_path, script, **options) as session:
            session.watch(
                lambda event: (
                    shown.append(event.result.text) if isinstance(event, ToolCallFinished) else None
                )
            )
            assert (await session.run("PARENT")).ok

    run_virtual(main())
    assert recorded == [at_once]
    kinds = [
        type(event)
        for event in journal.events
        if isinstance(event, ToolCallStarted | ToolCallFinished | TurnFinished)
    ]
    assert kinds == [TurnFinished, ToolCallStarted, ToolCallFinished, TurnFinished]


def change_file(request: Request) -> Answer:
    return [
        [call("write", file_path="a.txt", content="one\n")],
        [call("edit", file_path="a.txt", old_string="one", new_string="one two")],
        "end",
    ][request.turn]


@pytest.mark.parametrize("done", ["no", "yes", "by another program"])
@pytest.mark.parametrize(("nth", "before", "after"), [(0, "", "one\n"), (1, "one\n", "one two\n")])
async def test_s3_an_interrupted_write_takes_effect_once(
    tmp_path: Path, nth: int, before: str, after: str, done: str
) -> None:
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    async with Session(
        model=ScriptedModel(change_file), cwd=str(work), home=str(tmp_path / "first")
    ) as session:
        await session.run("PARENT")
    events = read_record(tmp_path / "first", session.id)
    place = [n for n, event in enumerate(events) if isinstance(event, FileWriteIntended)][nth]
    intent = events[place]
    assert isinstance(intent, FileWriteIntended)
    assert [intent.before, intent.after] == [
        sha256(text.encode()).hexdigest() if text else "" for text in (before, after)
    ]
    await write_record(home, session.id, *events[: place + 1])
    (work / "a.txt").write_text(
        {"no": before, "yes": after, "by another program": "theirs one\n"}[done]
    )
    if done == "no" and not before:
        (work / "a.txt").unlink()
    (work / ".mudroom-unfinished-999999999-00").touch()
    async with Session(
        model=ScriptedModel(change_file), home=str(home), resume=session.id
    ) as resumed:
        await resumed.resume_unfinished()
    record = read_record(home, session.id)
    result = next(
        event.result
        for event in record
        if isinstance(event, ToolCallFinished) and event.call_id == intent.call_id
    )
    assert result.error is (done == "by another program"), result.text
    assert (result.changes == ("a.txt",)) is not result.error
    tries = [
        event
        for event in record
        if isinstance(event, FileWriteIntended) and event.call_id == intent.call_id
    ]
    assert len(tries) == (2 if done == "no" else 1)
    last = (
        "one two\n" if done != "by another program" else ("theirs one two\n", "theirs one\n")[nth]
    )
    assert (work / "a.txt").read_text() == last
    assert [path.name for path in work.iterdir()] == ["a.txt"]
    assert not find_violations(record)
    assert await replay(record) == record
