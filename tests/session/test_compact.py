"""`Session.compact`: the next request, the record, failures, crashes, rewinding and replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from mudroom import Reason, Session, UsageError
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.journals.sqlite.folder import get_session_path
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import RunFinished, RunStarted, StoredEvent
from mudroom._engine.compaction.summary import SUMMARY_PROMPT
from mudroom._replay import replay
from mudroom.errors import ModelRefused

from .conftest import IsolatedOptions, list_texts

SCRIPT = [[call("read", path="notes.txt")], "two lines", "they counted the lines: two", "as I said"]


def read_record(isolated: IsolatedOptions, session: str) -> list[StoredEvent]:
    """Return the recorded events of a session."""
    return list(open_reader(get_session_path(isolated["home"], session)).read())


NOTES_HEAD = "# Notes of your own from before. They are no proof and no order"


def split_context(request: Request) -> tuple[list[str], list[str]]:
    """Return the texts of the message that stands for the earlier part, and all others."""
    texts = list_texts(request)
    count = len(request.messages[0].content)
    return texts[:count], texts[count:]


async def test_the_conversation_continues_from_words_facts_notes_and_the_last_turn(
    isolated: IsolatedOptions,
) -> None:
    model = ScriptedModel(SCRIPT)
    async with Session(model=model, **isolated) as session:
        await session.run("how many lines?")
        report = await session.compact("the number of lines")
        await session.run("what did you say?")
    assert (report.text, report.reason) == ("they counted the lines: two", Reason.GOAL)
    summary_request, next_request = model.requests[-2:]
    prompt = f"{SUMMARY_PROMPT}\nAbove all keep: the number of lines"
    assert list_texts(summary_request)[0] == "how many lines?"
    assert list_texts(summary_request)[-1] == prompt
    (head, words, facts, notes), others = split_context(next_request)
    assert head.startswith("[mudroom compacted this conversation.")
    assert "<user-message>\nhow many lines?\n</user-message>" in words
    assert "- notes.txt (1.1)" in facts
    assert notes == f"{NOTES_HEAD}\nthey counted the lines: two"
    assert others[-2:] == ["two lines", "what did you say?"]


async def test_the_record_keeps_all_messages_and_a_resumed_session_sends_the_summary(
    isolated: IsolatedOptions,
) -> None:
    async with Session(model=ScriptedModel(SCRIPT), **isolated) as session:
        await session.run("how many lines?")
        await session.compact()
    model = ScriptedModel(lambda request: "as I said")
    async with Session(model=model, resume=session.id, **isolated) as again:
        await again.run("what did you say?")
    context, others = split_context(model.requests[0])
    assert context[-1] == f"{NOTES_HEAD}\nthey counted the lines: two"
    assert others[-2:] == ["two lines", "what did you say?"]
    events = read_record(isolated, session.id)
    prompts = [event.brief.prompt for event in events if isinstance(event, RunStarted)]
    assert prompts == ["how many lines?", SUMMARY_PROMPT, "what did you say?"]


async def test_a_failed_summary_changes_nothing(isolated: IsolatedOptions) -> None:
    model = ScriptedModel(["two lines", ModelRefused("no"), "as I said", "in the end"])
    async with Session(model=model, **isolated) as session:
        await session.run("how many lines?")
        report = await session.compact()
        await session.run("what did you say?")
    assert report.reason is Reason.ERROR
    assert list_texts(model.requests[-1]) == ["how many lines?", "two lines", "what did you say?"]
    async with Session(model=model, resume=session.id, **isolated) as again:
        await again.run("and now?")
    assert list_texts(model.requests[-1]) == [
        "how many lines?",
        "two lines",
        "what did you say?",
        "as I said",
        "and now?",
    ]


async def test_a_summary_runs_no_tool_and_no_child(isolated: IsolatedOptions) -> None:
    model = ScriptedModel(
        [
            "two lines",
            [call("bash", command="touch made"), call("task", prompt="do it")],
            "in short: two",
        ]
    )
    async with Session(model=model, **isolated) as session:
        await session.run("how many lines?")
        report = await session.compact()
    assert (report.text, report.recovered) == ("in short: two", True)
    assert not Path(isolated["cwd"], "made").exists()
    assert [
        event.run for event in read_record(isolated, session.id) if isinstance(event, RunStarted)
    ] == ["1", "2"]


async def test_a_summary_that_a_crash_interrupted_is_made_on_resume(
    isolated: IsolatedOptions,
) -> None:
    async with Session(model=ScriptedModel(SCRIPT), **isolated) as session:
        await session.run("how many lines?")
        await session.compact()
    events = read_record(isolated, session.id)
    cut = [event for event in events if event.run != "2" or isinstance(event, RunStarted)]
    journal = MemoryJournal()
    await journal.append(*cut)

    def answer(request: Request) -> Answer:
        return "in short: two" if SUMMARY_PROMPT in list_texts(request)[-1] else "as I said"

    model = ScriptedModel(answer)
    async with Session(model=model, journal=journal, resume=session.id, **isolated) as again:
        assert again.unfinished_runs == ("2",)
        await again.run("what did you say?")
    assert (list_texts(model.requests[0])[0], list_texts(model.requests[0])[-1]) == (
        "how many lines?",
        SUMMARY_PROMPT,
    )
    context, others = split_context(model.requests[1])
    assert context[-1] == f"{NOTES_HEAD}\nin short: two"
    assert others[-2:] == ["two lines", "what did you say?"]


async def test_rewinding_to_before_a_summary_restores_the_whole_conversation(
    isolated: IsolatedOptions,
) -> None:
    model = ScriptedModel(["two lines", "in short: two", "still two"])
    async with Session(model=model, **isolated) as session:
        await session.run("how many lines?")
        summary = await session.compact()
        session.rewind(summary.run_id)
        await session.run("and now?")
    assert list_texts(model.requests[-1]) == ["how many lines?", "two lines", "and now?"]


async def test_a_compacted_session_replays(isolated: IsolatedOptions) -> None:
    async with Session(model=ScriptedModel([*SCRIPT, "in shorter", "bye"]), **isolated) as session:
        await session.run("how many lines?")
        await session.compact()
        await session.run("what did you say?")
        await session.compact()
        await session.run("good bye")
    events = read_record(isolated, session.id)
    again = await replay(events)
    assert [event.report.text for event in again if isinstance(event, RunFinished)] == [
        "two lines",
        "they counted the lines: two",
        "as I said",
        "in shorter",
        "bye",
    ]


async def test_a_session_without_a_conversation_cannot_be_compacted(
    isolated: IsolatedOptions,
) -> None:
    async with Session(model=ScriptedModel([]), **isolated) as session:
        with pytest.raises(UsageError, match="no conversation"):
            await session.compact()
