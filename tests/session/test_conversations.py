"""Conversations: compacted, and rewound; what later prompts, resumed sessions and screens know."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from tests.records import read_record
from tests.waiting import wait_until

from mudroom import JournalError, Reason, Session, UsageError
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._cli.interactive.plain_ui import PlainUI
from mudroom._core.events import (
    ConversationRewound,
    RunFinished,
    RunStarted,
    SessionClosed,
    StoredEvent,
)
from mudroom._engine.compaction.summary import SUMMARY_PROMPT
from mudroom._projections.run_tree import RunTree
from mudroom._replay import replay
from mudroom._session.config import Settings
from mudroom.errors import ModelRefused
from mudroom.testing import Answer, MemoryJournal, Request, ScriptedModel, call

from ..shown_session import show
from .conftest import IsolatedOptions, list_texts

SCRIPT = [[call("read", path="notes.txt")], "two lines", "they counted the lines: two", "as I said"]


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
    events = read_record(isolated["home"], session.id)
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
        event.run
        for event in read_record(isolated["home"], session.id)
        if isinstance(event, RunStarted)
    ] == ["1", "2"]


async def test_a_summary_that_a_crash_interrupted_is_made_on_resume(
    isolated: IsolatedOptions,
) -> None:
    async with Session(model=ScriptedModel(SCRIPT), **isolated) as session:
        await session.run("how many lines?")
        await session.compact()
    events = read_record(isolated["home"], session.id)
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
    events = read_record(isolated["home"], session.id)
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


async def test_a_resumed_session_continues_where_a_rewind_returned_to(
    isolated: IsolatedOptions,
) -> None:
    model = ScriptedModel([f"answer {n}" for n in range(9)])
    async with Session(model=model, **isolated) as session:
        for text in ("first", "second", "third"):
            await session.run(text)
        session.rewind("3")
    async with Session(model=model, resume=session.id, **isolated) as again:
        again.rewind("2")  # nothing else is recorded
    async with Session(model=model, resume=session.id, **isolated):
        pass  # nothing is recorded
    history: list[StoredEvent] = []
    last = Session(model=model, resume=session.id, **isolated)
    last.watch_history(history.append)
    async with last:
        await last.run("fourth")
    assert list_texts(model.requests[-1]) == ["first", "answer 0", "fourth"]
    rewound = [event.latest_run for event in history if isinstance(event, ConversationRewound)]
    assert rewound == ["2", "1"]
    assert sum(isinstance(event, SessionClosed) for event in history) == 2
    assert [run.run_id for run in RunTree.from_events(history).list_conversation()] == ["1"]
    async with Session(model=model, resume=session.id, **isolated) as again:
        await again.run("fifth")
    assert list_texts(model.requests[-1])[-3:] == ["fourth", "answer 3", "fifth"]


async def test_s1_a_rewind_is_not_lost_when_the_process_is_killed(
    isolated: IsolatedOptions, tmp_path: Path
) -> None:
    model = ScriptedModel([f"answer {n}" for n in range(9)])
    killed = tmp_path / "killed"

    def has_rewind() -> bool:
        if killed.exists():
            shutil.rmtree(killed)
        shutil.copytree(isolated["home"], killed)  # what a killed process leaves
        ((record, *_),) = [list(killed.glob("sessions/*.db"))]
        return any(isinstance(e, ConversationRewound) for e in open_reader(record).read())

    async with Session(model=model, **isolated) as session:
        await session.run("first")
        await session.run("second")
        session.rewind("2")
        await wait_until(has_rewind)
    resumed: IsolatedOptions = {**isolated, "home": str(killed)}
    async with Session(model=model, resume=session.id, **resumed) as again:
        await again.run("third")
    assert list_texts(model.requests[-1]) == ["first", "answer 0", "third"]


async def test_a_rewind_is_recorded_before_the_prompt_that_follows_at_once(
    isolated: IsolatedOptions,
) -> None:
    journal = MemoryJournal()
    async with Session(model=ScriptedModel("abcd"), journal=journal, **isolated) as session:
        await session.run("first")
        await session.run("second")
        session.rewind("2")
        await session.run("third")
    events = [event async for event in journal.read()]
    (place,) = (i for i, event in enumerate(events) if isinstance(event, ConversationRewound))
    after = events[place + 1]
    assert isinstance(after, RunStarted) and after.brief.continues == "1"


async def test_a_rewind_that_cannot_be_recorded_fails_the_next_prompt(
    isolated: IsolatedOptions,
) -> None:
    class FullJournal(MemoryJournal):
        is_full = False

        async def append(self, *events: StoredEvent) -> int:
            if self.is_full:
                raise JournalError("the disk is full")
            return await super().append(*events)

    journal = FullJournal()
    async with Session(model=ScriptedModel("abcd"), journal=journal, **isolated) as session:
        await session.run("first")
        journal.is_full = True
        session.rewind("1")
        await asyncio.sleep(0)
        with pytest.raises(JournalError, match="the disk is full"):
            await session.run("second")
        journal.is_full = False
        await session.run("third")
    kinds = [type(event) async for event in journal.read()]
    assert kinds.count(ConversationRewound) == 1


async def test_a_rewind_is_never_recorded_after_a_later_prompt(isolated: IsolatedOptions) -> None:
    class UnsteadyJournal(MemoryJournal):
        """It stores the prompt while the rewind waits, and then refuses the rewind."""

        async def append(self, *events: StoredEvent) -> int:
            if any(isinstance(event, ConversationRewound) for event in events):
                await is_stored.wait()
                raise JournalError("the connection was lost")
            is_stored.set()
            return await super().append(*events)

    journal, is_stored = UnsteadyJournal(), asyncio.Event()
    async with Session(model=ScriptedModel("abcd"), journal=journal, **isolated) as session:
        await session.run("first")
        await session.run("second")
        is_stored.clear()
        session.rewind("2")
        await asyncio.sleep(0)
        await session.run("third")
    events = [event async for event in journal.read()]
    assert not any(isinstance(event, ConversationRewound) for event in events)
    assert RunTree.from_events(events).latest_root == "3"


async def test_undo_removes_one_prompt_after_the_other(
    isolated: IsolatedOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ScriptedModel([f"answer {n}" for n in range(9)])
    settings = Settings(home=isolated["home"])
    ui = PlainUI(settings)
    session = Session(model=model, **isolated)
    async with show(session, settings, ui) as conversation:
        for line in ("first", "second", "third", "/undo", "/undo", "/rewind 3"):
            await conversation.handle_line(line)
        shown = capsys.readouterr().out
        assert "Removed prompt 3 and all" in shown and "Removed prompt 2 and all" in shown
        assert "no prompt of the conversation has the number 3. The prompts are 1." in shown
        await conversation.handle_line("fourth")
        assert list_texts(model.requests[-1]) == ["first", "answer 0", "fourth"]
        capsys.readouterr()
    again = Session(model=model, resume=session.id, **isolated)
    async with show(again, settings, ui) as conversation:
        conversation.recap.print(ui.scrollback, session.id)
    lines = capsys.readouterr().out.split("\n")
    assert [line for line in lines if line] == ["> first", "answer 0", "> fourth", "answer 3"]
