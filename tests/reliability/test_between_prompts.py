"""Messages of the user to idle named children while no prompt runs: read once, at the next one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.records import read_record, write_record

from mudroom import Budget, Session
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._core.events import RunFinished, RunStarted, TeamMessageSent
from mudroom._replay import replay
from mudroom.errors import UnknownName
from mudroom.testing.invariants import find_violations

from .recorded import open_scripted

TEXT = "and the window"


def script(request: Request) -> Answer:
    if request.prompt.startswith("ALICE"):
        return f"alice read {str(request.messages).count(TEXT)}"
    if "task" in str(request.messages):
        return "the end"
    return [call("task", prompt="ALICE", name="alice", plan=request.prompt == "PLAN")]


def open_session(folder: Path, **options: Any) -> Session:
    return open_scripted(folder, script, sandbox="off", budget=Budget(depth=1), **options)


async def check(folder: Path, session: str) -> None:
    events = read_record(folder / "home", session)
    assert not find_violations(events)
    briefs = [e.brief for e in events if isinstance(e, RunStarted) and e.brief.message_ids]
    assert [(brief.run_id, len(brief.message_ids)) for brief in briefs] == [("2.0.alice~1", 1)]
    reports = {e.run: e.report for e in events if isinstance(e, RunFinished)}
    assert reports["2.0.alice~1"].text == "alice read 1" and reports["2"].ok
    assert await replay(events) == events


async def test_a_message_between_prompts_is_read_at_the_next_prompt(tmp_path: Path) -> None:
    async with open_session(tmp_path) as session:
        await session.run("FIRST")
        with pytest.raises(UnknownName, match=r"unknown teammate 'bob'.*Known: alice"):
            await session.runs.send_durably("bob", TEXT)
        assert not await session.runs.send_durably("alice", approve=True)
        assert await session.runs.send_durably("@Alice", TEXT)
        (alice,) = session.runs.teammates
        assert len(alice.unread) == 1
        await session.run("SECOND")
        assert not session.runs.teammates[0].unread
        assert (await session.run("THIRD")).ok
    await check(tmp_path, session.id)


async def test_s11_a_message_between_prompts_is_read_once_after_a_cut_at_each_record(
    tmp_path: Path,
) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    async with open_session(whole) as session:
        await session.run("FIRST")
        assert await session.runs.send_durably("alice", TEXT)
        await session.run("SECOND")
    await check(whole, session.id)
    events = read_record(whole / "home", session.id)
    sent = next(n for n, event in enumerate(events) if isinstance(event, TeamMessageSent))
    assert events[sent].run == "" and events[sent - 1].run
    for cut in range(sent + 1, len(events) - 1):
        folder = tmp_path / str(cut)
        await write_record(folder / "home", session.id, *events[:cut])
        async with open_session(folder, resume=session.id) as resumed:
            if not resumed.unfinished_runs and cut == sent + 1:
                await resumed.run("SECOND")
            await resumed.resume_unfinished()
        await check(folder, session.id)


async def test_a_rewind_removes_a_message_between_prompts(tmp_path: Path) -> None:
    async with open_session(tmp_path) as session:
        await session.run("FIRST")
        await session.run("SECOND")
        assert await session.runs.send_durably("alice", TEXT)
        session.rewind("2")
        await session.run("THIRD")
    events = read_record(tmp_path / "home", session.id)
    assert not any(isinstance(e, RunStarted) and e.brief.message_ids for e in events)


@pytest.mark.parametrize("is_approved", [True, False])
async def test_a_plan_is_answered_between_prompts(tmp_path: Path, *, is_approved: bool) -> None:
    async with open_session(tmp_path) as session:
        await session.run("PLAN")
        assert session.runs.teammates[0].state == "waits for approval"
        assert await session.runs.send_durably("alice", approve=is_approved)
        await session.run("SECOND")
        last = session.runs.teammates[0].briefs[-1]
    assert (last.run_id, last.is_plan) == ("2.0.alice~1", not is_approved)
    events = read_record(tmp_path / "home", session.id)
    assert not find_violations(events) and await replay(events) == events
