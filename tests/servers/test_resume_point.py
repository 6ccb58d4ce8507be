"""The message at which a host of the agent SDKs continues a conversation."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from mudroom import Session
from mudroom._core.events import AnyEvent, Delta, RunFinished, StoredEvent, TurnFinished
from mudroom._core.messages import ToolCallBlock
from mudroom.errors import UsageError
from mudroom.testing import Request, ScriptedModel, call
from mudroom_hosts.agent_sdk.resume_point import ResumePoint, make_message_id

from .conftest import MakeHost


def make_point(answer: TurnFinished, events: list[StoredEvent]) -> ResumePoint:
    point = ResumePoint(make_message_id(answer))
    for event in events:
        point.observe(event)
    return point


def list_answers(events: list[AnyEvent]) -> tuple[list[StoredEvent], list[TurnFinished]]:
    stored = [event for event in events if not isinstance(event, Delta)]
    return stored, [event for event in stored if isinstance(event, TurnFinished)]


async def test_the_prompts_after_a_message_are_left_out(tmp_path: Path) -> None:
    model = ScriptedModel(
        ["One.", call("task", prompt="Go.", agent="general"), "Child.", "Two.", "Three.", "Last."]
    )
    events: list[AnyEvent] = []
    async with Session(
        model=model, cwd=str(tmp_path), home=str(tmp_path / "home"), sandbox="off"
    ) as session:
        session.watch(events.append)
        for prompt in ("First?", "Second?", "Third?"):
            await session.run(prompt)
        stored, answers = list_answers(events)
        chosen = (answers[4], answers[3], answers[1])
        notices = [await make_point(answer, stored).apply(session) for answer in chosen]
        await session.run("Again?")
        of_child = ResumePoint(make_message_id(answers[2]))
        with pytest.raises(UsageError, match="no answer with the uuid"):
            await of_child.apply(session)
    assert notices[:2] == ["", ""]
    assert "inside a prompt; the whole prompt is kept" in notices[2]
    asked = str(model.requests[-1].messages)
    assert "Second?" in asked and "Two." in asked and "Third?" not in asked


async def test_a_prompt_that_a_rewind_left_out_is_refused_if_none_follows_it(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(["One.", "Two.", "Three.", "Four.", "Five.", "Last."])
    events: list[AnyEvent] = []
    async with Session(
        model=model, cwd=str(tmp_path), home=str(tmp_path / "home"), sandbox="off"
    ) as session:
        session.watch(events.append)
        for prompt in ("First?", "Second?", "Third?"):
            await session.run(prompt)
        session.rewind("2")
        for _ in range(2):  # with the rewind as the last event, and with a prompt after it
            stored, answers = list_answers(events)
            with pytest.raises(UsageError, match="was left out by a rewind") as caught:
                await make_point(answers[2], stored).apply(session)
            assert caught.value.where == "--resume-session-at" and caught.value.remedy
            await session.run("Fourth?")
        stored, answers = list_answers(events)
        assert await make_point(answers[1], stored).apply(session) == ""
        await session.run("Again?")
    asked = str(model.requests[-1].messages)
    assert "Second?" in asked and "Third?" not in asked and "Fourth?" not in asked


async def test_a_later_prompt_that_was_interrupted_ends_and_is_left_out(tmp_path: Path) -> None:
    working = asyncio.Event()

    async def answer(request: Request) -> str | ToolCallBlock:
        if "Child?" in str(request.messages[-1]):
            working.set()
            await asyncio.Event().wait()
        if "Second?" in str(request.messages[-1]):
            return call("task", prompt="Child?", agent="general")
        return "One."

    events: list[AnyEvent] = []
    options: dict[str, Any] = {"cwd": str(tmp_path), "sandbox": "off"}
    async with Session(
        model=ScriptedModel(answer), home=str(tmp_path / "home"), **options
    ) as session:
        session.watch(events.append)
        await session.run("First?")
        prompt = asyncio.create_task(session.run("Second?"))
        await working.wait()
        shutil.copytree(tmp_path / "home", tmp_path / "killed")
        session.runs.cancel()
        await prompt
    _, answers = list_answers(events)
    options |= {"home": str(tmp_path / "killed"), "resume": session.id}
    for notice in ("prompt 2 was interrupted; it is left out, too", ""):
        model = ScriptedModel(["Again."])
        resumed = Session(model=model, **options)
        point = make_point(answers[0], [])
        resumed.watch_history(point.observe)
        recorded: list[AnyEvent] = []
        resumed.watch(recorded.append)
        async with resumed:
            assert await point.apply(resumed) == notice
            assert not model.requests and not resumed.unfinished_runs
            ended = {each.run for each in recorded if isinstance(each, RunFinished)}
            assert ended == ({"2", "2.1.1"} if notice else set())
            await resumed.run("Again?")
        (request,) = model.requests
        assert "First?" in str(request.messages) and "Second?" not in str(request.messages)


async def test_a_refused_message_closes_the_session_again(make_host: MakeHost) -> None:
    host = make_host([], resumes_at="no-such-uuid")
    fired: list[str] = []
    host.answers["hook_callback"] = lambda request: fired.append(
        request["input"]["hook_event_name"]
    )
    hooks = {"SessionEnd": [{"hookCallbackIds": ["hook_0"]}]}
    with pytest.raises(UsageError, match="no answer with the uuid"):
        async with host.serve():
            response = await host.request("initialize", hooks=hooks)
            assert "no answer with the uuid" in response["error"]
    assert fired == ["SessionEnd"]
