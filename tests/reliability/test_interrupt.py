"""An interrupted prompt, cut off after each record: it waits again; each report is read once."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.records import read_record, write_record

from mudroom import AnyEvent, Budget, Reason, Report, Session
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._core.events import (
    MessageDelivered,
    RunFinished,
    RunWaiting,
    StoredEvent,
    ToolCallFinished,
)
from mudroom._replay import replay
from mudroom.testing.invariants import find_violations

from ..waiting import wait_until
from .recorded import list_cuts, open_scripted

PROMPTS = ["PARENT", "and the roof", "and the door"]
CHILDREN = ("1.1.1", "1.1.2")


class Play:
    """A scripted parent with two background children and a child that it waits for.

    Arguments:
        holds: true if the children, and the second answer of the parent, wait for `gate`.
    """

    def __init__(self, *, holds: bool) -> None:
        self.gate = asyncio.Event()
        self.asked = Counter[str]()
        if not holds:
            self.gate.set()

    async def answer(self, request: Request) -> Answer:
        word = request.prompt.split()[0]
        self.asked[word] += 1
        if word == "CHILD":
            await self.gate.wait()
            return [[call("todo", todos=[])], f"{request.prompt} is done."][request.turn]
        if word == "FRONT":
            await self.gate.wait()
            return "the front is done"
        if request.turn == 0:
            return [call("task", prompt=f"CHILD {name}", background=True) for name in "ab"]
        text = "\n".join(str(message.content) for message in request.messages)
        if text.count("task-id") < 2 * len(CHILDREN):
            await asyncio.sleep(0)
        if PROMPTS[1] not in text:
            return "I wait."
        if PROMPTS[2] not in text and "FRONT" not in text:
            return [call("task", prompt="FRONT")]
        return "All is done."


def open_session(folder: Path, play: Play, resume: str = "") -> Session:
    options: dict[str, Any] = {"resume": resume} if resume else {"budget": Budget(depth=1)}
    return open_scripted(folder, play.answer, sandbox="off", **options)


async def record(folder: Path) -> tuple[str, list[StoredEvent]]:
    """Interrupt a prompt in its wait, and its next turn in a call; return id and events."""
    folder.mkdir()
    play = Play(holds=True)
    seen: list[AnyEvent] = []
    async with open_session(folder, play) as session:
        session.watch(seen.append)
        running = asyncio.create_task(session.run(PROMPTS[0]))
        await wait_until(lambda: any(isinstance(event, RunWaiting) for event in seen))
        await wait_until(lambda: play.asked["CHILD"] == len(CHILDREN))
        assert session.interrupt()
        assert (await running).is_interrupted
        running = asyncio.create_task(session.run(PROMPTS[1]))
        await wait_until(lambda: play.asked["FRONT"])
        assert session.interrupt()
        assert (await running).is_interrupted
        play.gate.set()
        await wait_until(lambda: sum(isinstance(e, RunFinished) for e in seen) == 1 + len(CHILDREN))
        assert (await session.run(PROMPTS[2])).ok
    return session.id, read_record(folder / "home", session.id)


async def resume(folder: Path, session_id: str, events: list[StoredEvent]) -> Report | None:
    """Continue from a record that ends early, with the prompts that it lacks."""
    await write_record(folder / "home", session_id, *events)
    texts = str(events)
    async with open_session(folder, Play(holds=False), session_id) as session:
        report = await session.resume_unfinished()
        for prompt in PROMPTS[1:]:
            if report and report.is_interrupted and prompt not in texts:
                report = await session.run(prompt)
    return report


def check_record(events: list[StoredEvent]) -> None:
    assert not find_violations(events)
    read = {event.message_id for event in events if isinstance(event, MessageDelivered)}
    assert {f"{run}#end" for run in CHILDREN} <= read


@pytest.mark.timeout(600)
async def test_s11_an_interrupted_prompt_continues_after_a_cut_at_each_record(
    tmp_path: Path,
) -> None:
    session_id, events = await record(tmp_path / "whole")
    check_record(events)
    assert await replay(events) == events
    interrupts = [n for n, e in enumerate(events) if isinstance(e, RunWaiting) and e.is_interrupted]
    assert len(interrupts) == 2
    assert isinstance(events[interrupts[1] - 1], ToolCallFinished)
    ends = {e.run: e.report.reason for e in events if isinstance(e, RunFinished)}
    assert Counter(ends.values()) == {Reason.GOAL: 3, Reason.CANCELLED: 1}
    for cut in [*list_cuts(events, 2), len(events) - 1]:
        if cut in interrupts[1:]:
            continue  # the result of the call and the interrupt are one durable step
        folder = tmp_path / str(cut)
        report = await resume(folder, session_id, events[:cut])
        after = read_record(folder / "home", session_id)
        assert after[:cut] == events[:cut]
        if any(isinstance(event, RunFinished) and event.run == "1" for event in after):
            check_record(after)
            assert await replay(after) == after, f"cut off after {cut} records"
        else:
            assert report is not None and report.is_interrupted, f"cut off after {cut} records"


async def test_a_session_that_is_left_continues_its_work_when_it_is_resumed(tmp_path: Path) -> None:
    play = Play(holds=True)
    seen: list[AnyEvent] = []
    async with open_session(tmp_path, play) as session:
        session.watch(seen.append)
        running = asyncio.create_task(session.run(PROMPTS[0]))
        await wait_until(lambda: any(isinstance(event, RunWaiting) for event in seen))
        await wait_until(lambda: play.asked["CHILD"] == len(CHILDREN))
        assert session.interrupt()
        assert (await running).is_interrupted
    assert not any(isinstance(e, RunFinished) for e in read_record(tmp_path / "home", session.id))
    play = Play(holds=True)
    async with open_session(tmp_path, play, session.id) as resumed:
        assert resumed.unfinished_runs == ("1",)
        report = await resumed.resume_unfinished()
        assert report and report.is_interrupted and not resumed.unfinished_runs
        await wait_until(lambda: play.asked["CHILD"] == len(CHILDREN))
        assert not play.asked["PARENT"]
        play.gate.set()
        assert (await resumed.run(PROMPTS[2])).ok
    events = read_record(tmp_path / "home", session.id)
    check_record(events)
    assert await replay(events) == events
