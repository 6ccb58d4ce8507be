"""Messages to named children, cut off after each record: each read once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.records import read_record, write_record

from mudroom import Report, Session
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import (
    MessageDelivered,
    RunFinished,
    RunStarted,
    StoredEvent,
    TeamMessageSent,
)
from mudroom._replay import replay
from mudroom.testing.invariants import find_violations

from .conftest import Figure
from .killed import LONG

NAMES = ("ann", "ben", "cat", "dan", "eve", "fay", "gus", "hal")
MESSAGES_PER_TURN = 5
TURNS = 25 if LONG else 5


def make_script(names: tuple[str, ...], turns: int) -> ScriptedModel:
    """Return a model: each child writes to others for some turns, and ends.

    It answers from the messages alone, so a resumed process continues in the same way.
    """

    def answer(request: Request) -> Answer:
        if request.prompt == "PARENT":
            if request.turn == 0:
                return [call("task", prompt=f"CHILD {n}", name=n, background=True) for n in names]
            return "I wait."
        name = request.prompt.split()[1]
        if request.turn >= turns:
            return f"{name} is done"
        chance = random.Random(f"{name} {request.turn}")
        others = [other for other in names if other != name]
        calls = [
            call("send_message", to=chance.choice(others), message=f"{name} {request.turn}.{n}")
            for n in range(MESSAGES_PER_TURN)
        ]
        return [*calls, call("todo", todos=[])]

    return ScriptedModel(answer)


def list_read_texts(events: list[StoredEvent]) -> dict[str, list[str]]:
    """Return the texts that each name has read, in order."""
    names: dict[str, str] = {}
    sent = {e.message.id: e.message.text for e in events if isinstance(e, TeamMessageSent)}
    read: dict[str, list[str]] = {}
    for event in events:
        if isinstance(event, RunStarted) and event.brief.name:
            names[event.run] = event.brief.name
            texts = read.setdefault(event.brief.name, [])
            texts += [sent[message_id] for message_id in event.brief.message_ids]
        elif isinstance(event, MessageDelivered) and event.message_id in sent:
            read[names[event.run]].append(sent[event.message_id])
    return read


def check_team_record(events: list[StoredEvent]) -> int:
    """Check that each message was read once, in the order of its pair; return their number."""
    assert not find_violations(events)
    sent = [event for event in events if isinstance(event, TeamMessageSent)]
    assert max(Counter(event.message.id for event in sent).values(), default=1) == 1
    read = list_read_texts(events)
    for name, texts in read.items():
        expected = [event.message.text for event in sent if event.to == name]
        assert Counter(texts) == Counter(expected), name
        for sender in NAMES:
            own = [text for text in texts if text.startswith(sender)]
            assert own == [text for text in expected if text.startswith(sender)], (name, sender)
    return len(sent)


async def run_to_end(
    folder: Path, work: Path, model: ScriptedModel, resumed: str = ""
) -> tuple[str, Report | None]:
    """Run the prompt, or the rest of a session; return its id and report."""
    async with Session(
        model=model, cwd=str(work), home=str(folder), resume=resumed, sandbox="off"
    ) as session:
        if resumed:
            return session.id, await session.resume_unfinished()
        return session.id, await session.run("PARENT")


@pytest.mark.timeout(1_200)
async def test_s11_many_messages_of_eight_names_are_each_read_once(
    tmp_path: Path, figure: Figure
) -> None:
    home = tmp_path / "home"
    began = asyncio.get_running_loop().time()
    session, report = await run_to_end(home, tmp_path, make_script(NAMES, TURNS))
    seconds = asyncio.get_running_loop().time() - began
    assert report and report.ok and report.unread_messages == {}
    events = read_record(home, session)
    count = len(NAMES) * TURNS * MESSAGES_PER_TURN
    assert check_team_record(events) == count
    assert await replay(events) == events
    chance = random.Random(7)
    cuts = sorted(chance.sample(range(20, len(events) - 1), 100 if LONG else 2))
    for cut in cuts:
        await check_cut(tmp_path / str(cut), tmp_path, events[:cut], session, NAMES, TURNS)
    figure(
        f"{count:,} messages among 8 names", f"{seconds:.1f} s; {len(cuts)} cuts, each read once"
    )


async def check_cut(
    folder: Path,
    work: Path,
    events: list[StoredEvent],
    session: str,
    names: tuple[str, ...],
    turns: int,
) -> None:
    """Continue a record that ends early; each message must be read once."""
    await write_record(folder, session, *events)
    await run_to_end(folder, work, make_script(names, turns), session)
    record = read_record(folder, session)
    assert check_team_record(record) == len(names) * turns * MESSAGES_PER_TURN, len(events)
    assert await replay(record) == record, f"cut off after {len(events)} records"


@pytest.mark.timeout(1_200)
async def test_s11_messages_are_read_once_after_a_cut_at_each_record(tmp_path: Path) -> None:
    home = tmp_path / "home"
    names = NAMES[:3]
    session, _ = await run_to_end(home, tmp_path, make_script(names, 2))
    events = read_record(home, session)
    assert check_team_record(events) == 30
    first = next(n for n, event in enumerate(events) if isinstance(event, RunStarted)) + 1
    for cut in range(first, len(events) - 1, 1 if LONG else 11):
        await check_cut(tmp_path / str(cut), tmp_path, events[:cut], session, names, 2)


def answer_in_two_prompts(request: Request) -> Answer:
    """Two names begin in the first prompt; in the second one they write to each other."""
    if request.prompt == "PARENT":
        texts = [str(message.content) for message in request.messages]
        if "SECOND" not in "".join(texts):
            names = ("ann", "ben")
            return [[call("task", prompt=n, name=n) for n in names], "both are idle"][request.turn]
        if "SECOND" in texts[-1]:
            return [call("send_message", to="ann", message="write to ben")]
        return "I wait."
    if "write to ben" in str(request.messages[-1]):
        return [call("send_message", to="ben", message="from ann")]
    return f"{request.prompt} has {len(request.messages)} messages"


@pytest.mark.timeout(600)
async def test_names_work_in_a_later_process_after_a_cut_at_each_record(tmp_path: Path) -> None:
    home = tmp_path / "home"
    options: dict[str, Any] = {"cwd": str(tmp_path), "sandbox": "off"}
    async with Session(model=ScriptedModel(answer_in_two_prompts), home=str(home), **options) as s:
        await s.run("PARENT")
    async with Session(
        model=ScriptedModel(answer_in_two_prompts), home=str(home), resume=s.id, **options
    ) as resumed:
        assert [(each.name, each.state) for each in resumed.runs.teammates] == [
            ("ann", "idle"),
            ("ben", "idle"),
        ]
        await resumed.run("SECOND")
    events = read_record(home, s.id)
    check_second_prompt(events)
    first = next(n for n, event in enumerate(events) if event.run == "2") + 1
    for cut in range(first, len(events) - 1):
        folder = tmp_path / str(cut)
        await write_record(folder, s.id, *events[:cut])
        await run_to_end(folder, tmp_path, ScriptedModel(answer_in_two_prompts), s.id)
        record = read_record(folder, s.id)
        check_second_prompt(record)
        assert await replay(record) == record, f"cut off after {cut} records"


def check_second_prompt(events: list[StoredEvent]) -> None:
    assert check_team_record(events) == 2
    reports = {e.run: e.report.text for e in events if isinstance(e, RunFinished)}
    assert reports.keys() == {"1", "1.1.1", "1.1.2", "2", "2.1.1", "2.0.ben~1"}
    assert reports["2.0.ben~1"] == "ben has 3 messages"
