"""A conversation told in short.

What the model knows afterwards, what the record keeps, what failures, crashes and replays make of
it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mudroom import Reason, Session, TextBlock, ToolResultBlock, UsageError
from mudroom._core.events import RunFinished, RunStarted, StoredEvent
from mudroom._engine.compaction import SUMMARY_PROMPT
from mudroom.errors import ModelRefused
from mudroom.journals.memory import MemoryJournal
from mudroom.journals.sqlite.folder import session_path
from mudroom.journals.sqlite.reader import open_reader
from mudroom.models.scripted import Request, ScriptedModel, call
from mudroom.replay import replay


@pytest.fixture
def apart(tmp_path: Path) -> dict[str, Any]:
    """Settings of a session that touches nothing of this machine's user."""
    (tmp_path / "notes.txt").write_text("one\ntwo\n")
    return {"cwd": str(tmp_path), "home": str(tmp_path / "home"), "environ": {}, "sandbox": "off"}


def words(request: Request) -> list[str]:
    return [
        block.text
        for message in request.messages
        for block in message.content
        if isinstance(block, TextBlock | ToolResultBlock)
    ]


SCRIPT = [[call("read", path="notes.txt")], "two lines", "they counted the lines: two", "as I said"]


async def test_the_conversation_goes_on_from_the_summary_alone(apart: dict[str, Any]) -> None:
    model = ScriptedModel(SCRIPT)
    async with Session(model=model, **apart) as session:
        await session.run("how many lines?")
        report = await session.compact("the number of lines")
        await session.run("what did you say?")
    assert (report.text, report.reason) == ("they counted the lines: two", Reason.GOAL)
    asked, after = model.requests[-2:]
    assert (
        words(asked)[0] == "how many lines?"
        and words(asked)[-1] == f"{SUMMARY_PROMPT}\nAbove all keep: the number of lines"
    )
    assert words(after) == [words(asked)[-1], "they counted the lines: two", "what did you say?"]


async def test_the_record_keeps_what_was_said_and_a_resumed_session_knows_the_summary(
    apart: dict[str, Any],
) -> None:
    async with Session(model=ScriptedModel(SCRIPT), **apart) as session:
        await session.run("how many lines?")
        await session.compact()
    model = ScriptedModel(lambda request: "as I said")
    async with Session(model=model, resume=session.id, **apart) as again:
        await again.run("what did you say?")
    assert words(model.requests[0]) == [
        SUMMARY_PROMPT,
        "they counted the lines: two",
        "what did you say?",
    ]
    prompts = [
        event.brief.prompt for event in recorded(apart, session.id) if isinstance(event, RunStarted)
    ]
    assert prompts == ["how many lines?", SUMMARY_PROMPT, "what did you say?"]


async def test_a_summary_that_failed_changes_nothing(apart: dict[str, Any]) -> None:
    model = ScriptedModel(["two lines", ModelRefused("no"), "as I said", "in the end"])
    async with Session(model=model, **apart) as session:
        await session.run("how many lines?")
        report = await session.compact()
        await session.run("what did you say?")
    assert report.reason is Reason.ERROR
    assert words(model.requests[-1]) == ["how many lines?", "two lines", "what did you say?"]
    async with Session(model=model, resume=session.id, **apart) as again:
        await again.run("and now?")
    assert words(model.requests[-1]) == [
        "how many lines?",
        "two lines",
        "what did you say?",
        "as I said",
        "and now?",
    ]


async def test_a_summary_acts_on_nothing(apart: dict[str, Any]) -> None:
    model = ScriptedModel(
        [
            "two lines",
            [call("bash", command="touch made"), call("task", prompt="do it")],
            "in short: two",
        ]
    )
    async with Session(model=model, **apart) as session:
        await session.run("how many lines?")
        report = await session.compact()
    assert (report.text, report.recovered) == ("in short: two", True)
    assert not Path(apart["cwd"], "made").exists()
    assert [
        event.run for event in recorded(apart, session.id) if isinstance(event, RunStarted)
    ] == ["1", "2"]


async def test_a_summary_that_a_crash_cut_off_is_made_on_return(apart: dict[str, Any]) -> None:
    async with Session(model=ScriptedModel(SCRIPT), **apart) as session:
        await session.run("how many lines?")
        await session.compact()
    events = recorded(apart, session.id)
    cut = [event for event in events if event.run != "2" or isinstance(event, RunStarted)]
    journal = MemoryJournal()
    await journal.append(*cut)
    model = ScriptedModel(
        lambda request: "in short: two" if SUMMARY_PROMPT in words(request)[-1] else "as I said"
    )
    async with Session(
        model=model, **dict[str, Any](apart, journal=journal, resume=session.id)
    ) as again:
        assert again.unfinished_runs == ("2",)
        await again.run("what did you say?")
    assert (words(model.requests[0])[0], words(model.requests[0])[-1]) == (
        "how many lines?",
        SUMMARY_PROMPT,
    )
    assert words(model.requests[1]) == [SUMMARY_PROMPT, "in short: two", "what did you say?"]


async def test_rewinding_to_before_a_summary_gives_the_whole_conversation_back(
    apart: dict[str, Any],
) -> None:
    model = ScriptedModel(["two lines", "in short: two", "still two"])
    async with Session(model=model, **apart) as session:
        await session.run("how many lines?")
        summary = await session.compact()
        session.rewind(summary.run_id)
        await session.run("and now?")
    assert words(model.requests[-1]) == ["how many lines?", "two lines", "and now?"]


async def test_a_compacted_session_replays_byte_for_byte(apart: dict[str, Any]) -> None:
    async with Session(model=ScriptedModel([*SCRIPT, "in shorter", "bye"]), **apart) as session:
        await session.run("how many lines?")
        await session.compact()
        await session.run("what did you say?")
        await session.compact()
        await session.run("good bye")
    events = recorded(apart, session.id)
    again = await replay(events)
    assert [event.report.text for event in again if isinstance(event, RunFinished)] == [
        "two lines",
        "they counted the lines: two",
        "as I said",
        "in shorter",
        "bye",
    ]


async def test_nothing_was_said_yet(apart: dict[str, Any]) -> None:
    async with Session(model=ScriptedModel([]), **apart) as session:
        with pytest.raises(UsageError, match="no conversation"):
            await session.compact()


def recorded(apart: dict[str, Any], session: str) -> list[StoredEvent]:
    return list(open_reader(session_path(apart["home"], session)).read())
