"""Session.pause: work stops without an end, and a later session continues it (S17)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.records import read_record
from tests.session.conftest import pause_during

from mudroom import ApprovalDecision, ApprovalRequest, Integrations, Report, Session
from mudroom._core.events import (
    MessageSent,
    RunFinished,
    RunResumed,
    StoredEvent,
    TurnFailed,
    TurnStarted,
)
from mudroom._replay import replay
from mudroom.errors import SessionPaused, UsageError
from mudroom.permissions import Permissions
from mudroom.ports import Hooks
from mudroom.scope import ModelConfig, PromptConfig, RunConfig
from mudroom.testing import Answer, MemoryJournal, Request, ScriptedModel, call
from mudroom.testing.invariants import find_violations


class Model:
    """A scripted model that waits at its second request while it is held."""

    def __init__(self) -> None:
        self.is_held = True
        self.waiting = asyncio.Event()
        self.prompts: list[str] = []

    async def answer(self, request: Request) -> Answer:
        self.prompts.append(request.prompt)
        if request.turn and self.is_held:
            self.waiting.set()
            await asyncio.sleep(60)
        return [[call("todo", todos=[])], f"{request.prompt} is done"][min(request.turn, 1)]

    def make(self) -> ScriptedModel:
        return ScriptedModel(self.answer)


def open_session(tmp_path: Path, model: ScriptedModel, **options: Any) -> Session:
    home = str(tmp_path / "home")
    return Session(model=model, cwd=str(tmp_path), home=home, sandbox="off", **options)


async def start_scope(session: Session) -> object:
    prompt = PromptConfig(system_prompt="SCOPE")
    return await session.scope("scope", prompt, ModelConfig(), RunConfig())


CALLS: dict[str, Callable[[Session], Coroutine[Any, Any, object]]] = {
    "run": lambda session: session.run("P"),
    "task": lambda session: session.task("T"),
    "map": lambda session: session.map(["M1", "M2"]),
    "waiting map": lambda session: session.map(["M1", "M2"], parallel=1),
    "scope": start_scope,
}


@pytest.mark.parametrize("kind", CALLS)
async def test_a_pause_ends_each_kind_of_call_and_records_no_end(tmp_path: Path, kind: str) -> None:
    model = Model()
    async with open_session(tmp_path, model.make()) as session:
        assert not session.pause(), "nothing works"
    async with open_session(tmp_path, model.make()) as session:
        await pause_during(session, CALLS[kind](session), model.waiting)
        with pytest.raises(SessionPaused):
            await session.run("later")
        assert not session.pause()
    events = read_record(tmp_path / "home", session.id)
    assert not [event for event in events if isinstance(event, RunFinished)]
    model.is_held = False
    async with open_session(tmp_path, model.make(), resume=session.id) as resumed:
        assert resumed.unfinished_runs
        report = await resumed.resume_unfinished()
    assert report and report.text.endswith("is done")
    events = read_record(tmp_path / "home", session.id)
    assert not find_violations(events)
    assert await replay(events) == events


async def test_a_wrong_prompt_is_refused_before_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    model = Model()
    async with open_session(tmp_path, model.make()) as session:
        await pause_during(session, session.run("P"), model.waiting)
    model.is_held = False
    async with open_session(tmp_path, model.make(), resume=session.id) as resumed:
        with pytest.raises(UsageError, match="the prompt is empty"):
            await resumed.run(" ")
        assert resumed.unfinished_runs == ("1",)


class ResumeJournal(MemoryJournal):
    """A journal that calls a function when a run goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.on_resume: Callable[[], object] = lambda: None

    async def append(self, *events: StoredEvent) -> int:
        position = await super().append(*events)
        if any(isinstance(event, RunResumed) for event in events):
            self.on_resume()
        return position


async def test_processes_that_are_paused_before_their_first_request_replay(tmp_path: Path) -> None:
    """The first process is killed after a call was cut off, and only the last one repeats it."""
    model = Model()
    whole = MemoryJournal()
    async with open_session(tmp_path, model.make(), journal=whole) as session:
        running = asyncio.create_task(session.run("P"))
        await model.waiting.wait()
        session.runs.wrap_up("1")
        model.is_held = False
        await running
    end = next(n for n, event in enumerate(whole.events, 1) if isinstance(event, TurnFailed))
    events = whole.events[:end]
    for is_paused in (True, True, False):
        journal = ResumeJournal()
        await journal.append(*events)
        options: dict[str, Any] = {"journal": journal, "resume": session.id}
        async with open_session(tmp_path, model.make(), **options) as resumed:
            if is_paused:
                journal.on_resume = resumed.pause
            with suppress(SessionPaused):
                await resumed.resume_unfinished()
        events = journal.events
    kinds = [type(event) for event in events if isinstance(event, RunResumed | TurnStarted)]
    assert (RunResumed, RunResumed) in pairwise(kinds)
    assert isinstance(events[-2], RunFinished)
    assert not find_violations(events)
    assert await replay(events) == events


async def test_a_call_that_waits_for_approval_is_asked_about_again(tmp_path: Path) -> None:
    asked = asyncio.Event()
    questions = 0

    class Approver:
        async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
            nonlocal questions
            questions += 1
            asked.set()
            if questions == 1:
                await asyncio.sleep(60)
            return ApprovalDecision(True)

    def answer(request: Request) -> Answer:
        return [[call("bash", command="echo x >> effects.txt")], "done"][request.turn]

    options: dict[str, Any] = {
        "approver": Approver(),
        "permissions": Permissions.of(ask=["Bash"]),
    }
    async with open_session(tmp_path, ScriptedModel(answer), **options) as session:
        await pause_during(session, session.run("P"), asked)
    assert not (tmp_path / "effects.txt").exists()
    async with open_session(
        tmp_path, ScriptedModel(answer), resume=session.id, **options
    ) as resumed:
        report = await resumed.resume_unfinished()
    assert report and report.ok and questions == 2
    assert (tmp_path / "effects.txt").read_text() == "x\n"
    events = read_record(tmp_path / "home", session.id)
    assert await replay(events) == events


async def test_what_was_accepted_before_a_pause_is_recorded(tmp_path: Path) -> None:
    model = Model()
    model.is_held = False
    async with open_session(tmp_path, model.make()) as session:
        first = await session.run("FIRST")
        model.is_held = True
        running = asyncio.create_task(session.run("SECOND"))
        await model.waiting.wait()
        assert session.runs.send("2", "a message of the user")
        session.pause()
        with pytest.raises(SessionPaused):
            await running
    sent = [
        each.message.text
        for each in read_record(tmp_path / "home", session.id)
        if isinstance(each, MessageSent)
    ]
    assert sent == ["a message of the user"]
    async with open_session(tmp_path, model.make(), resume=session.id) as resumed:
        model.is_held = False
        await resumed.resume_unfinished()
        resumed.rewind(first.run_id)
        resumed.pause()
    async with open_session(tmp_path, model.make(), resume=session.id) as again:
        with pytest.raises(UsageError, match="no conversation"):
            await again.compact()


async def test_hooks_hear_of_no_end_of_a_run_that_is_paused(tmp_path: Path) -> None:
    model = Model()
    ended: list[str] = []

    class Ends(Hooks):
        async def on_run_end(self, brief: Any, report: Report) -> None:
            ended.append(brief.run_id)

        async def on_session_end(self, reason: str) -> None:
            ended.append("session")

    async with open_session(
        tmp_path, model.make(), integrations=Integrations(hooks=Ends())
    ) as session:
        await pause_during(session, session.run("P"), model.waiting)
    assert ended == ["session"]
