"""Hooks of UserPromptSubmit for messages of the user that arrive while a run works."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.test_hook_functions import Recorder, make_options

from mudroom import Integrations, Reason, Session
from mudroom._core.events import Delta, MessageDelivered, MessageSent, NoteInjected, StoredEvent
from mudroom._engine.inbox import REFUSED_MESSAGE
from mudroom._replay import replay
from mudroom.testing import Answer, MemoryJournal, Request, ScriptedModel, call


def judge(hook_input: dict[str, Any]) -> dict[str, Any] | None:
    """Refuse a secret, stop at "halt", and add a text to what is about tests."""
    prompt = hook_input["prompt"]
    if "secret" in prompt:
        return {"decision": "block", "reason": "Secrets stay here."}
    if "halt" in prompt:
        return {"continue": False, "stopReason": "enough"}
    if "tests" in prompt:
        return {"hookSpecificOutput": {"additionalContext": "Run them with pytest."}}
    return None


def make_session(
    folder: Path, hooks: Recorder, *messages: str, to: str, worker: str = "local"
) -> tuple[Session, Any]:
    """Return a session in which a run gets messages during its first turn, and its model."""

    def answer(request: Request) -> Answer:
        is_child = "CHILD" in request.prompt
        if request.turn == 0 and to == "1.1.1" and not is_child:
            return call("task", prompt="CHILD")
        if request.turn == 0:
            for message in messages:
                assert session.runs.send(to, message)
            return call("glob", pattern="*")
        return "end"

    model = ScriptedModel(answer)
    options = make_options(
        folder, model=model, integrations=Integrations(hooks=hooks.on("UserPromptSubmit"))
    )
    session = Session(**options, worker=worker)
    return session, model


@pytest.mark.parametrize(
    ("to", "worker"), [("1", "local"), ("1.1.1", "local"), ("1.1.1", "process:1")]
)
async def test_hooks_judge_messages_to_a_run_that_works(
    to: str, worker: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hooks = Recorder(UserPromptSubmit=judge)
    messages = ("Use my secret.", "Add tests.", "Be quick.")
    session, model = make_session(tmp_path, hooks, *messages, to=to, worker=worker)
    seen: list[Any] = []
    session.watch(seen.append)
    async with session:
        assert (await session.run("Work.")).reason is Reason.GOAL
    read = [event for event in seen if type(event) in (MessageDelivered, NoteInjected)]
    again = await replay([event for event in seen if not isinstance(event, Delta)])
    assert [event for event in again if type(event) in (MessageDelivered, NoteInjected)] == read
    judged = [each for each in hooks.inputs if each["prompt"] in messages]
    assert [each["prompt"] for each in judged] == list(messages)
    assert {each.get("agent_id", "1") for each in judged} == {to}
    texts = [str(request.messages) for request in model.requests]
    assert not any("my secret" in text for text in texts)
    assert any("Add tests." in text and "Run them with pytest." in text for text in texts)
    delivered = [event.text for event in seen if isinstance(event, MessageDelivered)]
    assert delivered == [REFUSED_MESSAGE, "Add tests.", "Be quick."]
    notes = [event.text for event in seen if type(event) is NoteInjected and event.origin == "hook"]
    assert notes == ["[hook UserPromptSubmit] Run them with pytest."]
    assert "a hook refused your message: Secrets stay here." in caplog.text


async def test_a_hook_stops_the_run_that_a_message_is_for(tmp_path: Path) -> None:
    session, model = make_session(tmp_path, Recorder(UserPromptSubmit=judge), "halt", to="1")
    async with session:
        report = await session.run("Work.")
        assert report.reason is Reason.ERROR
        assert "enough" in report.error
        assert (await session.run("Again.")).reason is Reason.GOAL
    assert not any("halt" in str(request.messages) for request in model.requests)


async def test_a_message_that_comes_while_hooks_judge_is_judged_too(tmp_path: Path) -> None:
    entered = asyncio.Event()

    async def hook(hook_input: dict[str, Any]) -> None:
        seen.append(hook_input["prompt"])
        if hook_input["prompt"] == "first":
            session.runs.send("1", "second")
            entered.set()

    def answer(request: Request) -> Answer:
        if request.turn == 0:
            session.runs.send("1", "first")
            return call("glob", pattern="*")
        return "end"

    seen: list[str] = []
    options = make_options(tmp_path, model=ScriptedModel(answer))
    session = Session(**options, integrations=Integrations(hooks={"UserPromptSubmit": [hook]}))
    async with session:
        await session.run("Work.")
    assert entered.is_set()
    assert seen == ["Work.", "first", "second"]


async def test_a_message_that_hooks_have_not_seen_stays_unread(tmp_path: Path) -> None:
    """It comes after the hooks have judged, while older messages are stored."""
    hooks = Recorder(UserPromptSubmit=judge)
    session: Session
    is_late = False

    class LateMessage(MemoryJournal):
        """Journal in whose slow write of a child's message the user sends another."""

        async def append(self, *events: StoredEvent) -> int:
            nonlocal is_late
            if not is_late and any(type(event) is MessageSent for event in events):
                is_late = True
                await asyncio.sleep(0.05)
                session.runs.send("1", "my secret")
            return await super().append(*events)

    def answer(request: Request) -> Answer:
        if "CHILD" in request.prompt:
            return "done"
        if request.turn == 0:
            return call("task", prompt="CHILD", background=True)
        return call("glob", pattern="*") if request.turn == 1 else "end"

    model = ScriptedModel(answer)
    options = make_options(
        tmp_path, model=model, integrations=Integrations(hooks=hooks.on("UserPromptSubmit"))
    )
    options["journal"] = LateMessage()
    session = Session(**options)
    async with session:
        await session.run("Work.")
    assert is_late
    assert [each["prompt"] for each in hooks.inputs] == ["Work.", "my secret"]
    assert not any("my secret" in str(request.messages) for request in model.requests)
