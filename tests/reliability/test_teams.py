"""Messages to named children, cut off after each record: each read once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest
from tests.records import read_record

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
from .recorded import (
    get_session_id,
    list_cuts,
    open_scripted,
    record_session,
    resume_record,
)

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


@pytest.mark.timeout(1_200)
async def test_s11_many_messages_of_eight_names_are_each_read_once(
    tmp_path: Path, figure: Figure
) -> None:
    began = asyncio.get_running_loop().time()
    report, events = await record_session(tmp_path, make_script(NAMES, TURNS))
    seconds = asyncio.get_running_loop().time() - began
    assert report.ok and report.unread_messages == {}
    count = len(NAMES) * TURNS * MESSAGES_PER_TURN
    assert check_team_record(events) == count
    assert await replay(events) == events
    chance = random.Random(7)
    cuts = sorted(chance.sample(range(20, len(events) - 1), 100 if LONG else 2))
    for cut in cuts:
        script = make_script(NAMES, TURNS)
        _, record = await resume_record(tmp_path / str(cut), events[:cut], script)
        assert check_team_record(record) == count, cut
    figure(
        f"{count:,} messages among 8 names", f"{seconds:.1f} s; {len(cuts)} cuts, each read once"
    )


@pytest.mark.timeout(1_200)
async def test_s11_messages_are_read_once_after_a_cut_at_each_record(tmp_path: Path) -> None:
    names = NAMES[:3]
    _, events = await record_session(tmp_path, make_script(names, 2))
    assert check_team_record(events) == 30
    for cut in list_cuts(events, 11):
        script = make_script(names, 2)
        _, record = await resume_record(tmp_path / str(cut), events[:cut], script)
        assert check_team_record(record) == 30, cut


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
    script = answer_in_two_prompts
    _, first = await record_session(tmp_path, script)
    session = get_session_id(first)
    async with open_scripted(tmp_path, script, resume=session, sandbox="off") as resumed:
        found = [(each.name, each.state) for each in resumed.runs.teammates]
        assert found == [("ann", "idle"), ("ben", "idle")]
        await resumed.run("SECOND")
    events = read_record(tmp_path / "home", session)
    check_second_prompt(events)
    begin = next(n for n, event in enumerate(events) if event.run == "2") + 1
    for cut in range(begin, len(events) - 1):
        _, record = await resume_record(tmp_path / str(cut), events[:cut], script)
        check_second_prompt(record)


def check_second_prompt(events: list[StoredEvent]) -> None:
    assert check_team_record(events) == 2
    reports = {e.run: e.report.text for e in events if isinstance(e, RunFinished)}
    assert reports.keys() == {"1", "1.1.1", "1.1.2", "2", "2.1.1", "2.0.ben~1"}
    assert reports["2.0.ben~1"] == "ben has 3 messages"
