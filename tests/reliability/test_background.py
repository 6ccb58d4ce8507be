"""Background children, cut off after each record: no report is lost or read twice."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from mudroom import Budget, Report, Session
from mudroom._core.events import (
    MessageDelivered,
    RunStarted,
    StoredEvent,
    TurnFinished,
)
from mudroom.journals.sqlite.folder import get_session_path
from mudroom.journals.sqlite.journal import SqliteJournal
from mudroom.journals.sqlite.reader import open_reader
from mudroom.models.scripted import Answer, Request, ScriptedModel, call
from mudroom.replay import replay
from mudroom.testing.invariants import find_violations

LONG = bool(os.environ.get("MUDROOM_LONG"))
CHILDREN = ("1.1.1", "1.1.2", "1.2.1")


def count_notifications(request: Request) -> int:
    texts = [str(message.content) for message in request.messages]
    return sum(text.count("<task-id>") for text in texts)


def script(request: Request) -> Answer:
    """Answer from the messages alone; the parent ends when it has all three reports."""
    if request.prompt != "PARENT":
        return [[call("todo", todos=[])], f"{request.prompt} is done."][request.turn]
    if request.turn == 0:
        return [call("task", prompt=f"CHILD {name}", background=True) for name in "ab"]
    if request.turn == 1:
        return [call("task", prompt="CHILD c", background=True), call("todo", todos=[])]
    if count_notifications(request) < len(CHILDREN):
        return "I wait."
    return "All are done."


async def resume(folder: Path, session: str, events: list[StoredEvent]) -> Report | None:
    """Continue a session from a record that ends early."""
    path = get_session_path(folder, session)
    journal = SqliteJournal.open(path, session=session, create=True)
    await journal.append(*events)
    await journal.close()
    async with Session(
        model=ScriptedModel(script), home=str(folder), resume=session, sandbox="off"
    ) as resumed:
        return await resumed.resume_unfinished()


def check_record(events: list[StoredEvent]) -> None:
    """Check that each report was read once, and that nothing was started or bought twice."""
    assert not find_violations(events)
    started = Counter(event.run for event in events if isinstance(event, RunStarted))
    assert started == Counter(("1", *CHILDREN))
    read = Counter(event.message_id for event in events if isinstance(event, MessageDelivered))
    assert read == Counter(f"{run}#end" for run in CHILDREN)
    answers = Counter(
        (event.run, event.turn) for event in events if isinstance(event, TurnFinished)
    )
    assert set(answers.values()) == {1}


@pytest.mark.timeout(600)
async def test_s11_each_report_is_read_once_after_a_cut_at_each_record(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Session(
        model=ScriptedModel(script),
        cwd=str(tmp_path),
        home=str(home),
        budget=Budget(children=3, depth=1),
        sandbox="off",
    ) as session:
        whole = await session.run("PARENT")
    events = list(open_reader(get_session_path(home, session.id)).read())
    check_record(events)
    assert await replay(events) == events
    first = next(n for n, event in enumerate(events) if isinstance(event, RunStarted)) + 1
    for cut in range(first, len(events) - 1, 1 if LONG else 2):
        folder = tmp_path / str(cut)
        report = await resume(folder, session.id, events[:cut])
        record = list(open_reader(get_session_path(folder, session.id)).read())
        check_record(record)
        assert await replay(record) == record, f"cut off after {cut} records"
        assert report is None or report.text == whole.text
