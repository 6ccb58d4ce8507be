"""Questions of MCP servers to the user: both eras, forms, addresses, and without a user."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mudroom import Agent, ApprovalDecision, ApprovalRequest, Permissions, Reason, ServerSpec
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom.events import AnyEvent, InputAnswered, ToolCallFinished
from mudroom.permissions.rules import Rule, Verdict

from ...worker_kinds import WORKERS
from .servers import make_quick
from .test_session_servers import open_session

COLOR = {
    "type": "object",
    "properties": {
        "color": {"type": "string", "enum": ["red", "blue"]},
        "count": {"type": "integer", "default": 2},
    },
    "required": ["color"],
}
FORM = {"mode": "form", "message": "Which color?", "requestedSchema": COLOR}
ALLOW = Permissions(rules=(Rule(Verdict.ALLOW, "mcp__*"),))


class Person:
    """An approver that answers forms.

    Arguments:
        decision: None waits for ever.
    """

    def __init__(self, decision: ApprovalDecision | None) -> None:
        self.decision = decision
        self.requests: list[ApprovalRequest] = []
        self.is_asked = asyncio.Event()
        self.is_withdrawn = False

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        self.requests.append(request)
        self.is_asked.set()
        if self.decision is None:
            try:
                await asyncio.Event().wait()
            finally:
                self.is_withdrawn = True
        assert self.decision
        return self.decision


def make_asking(question: dict[str, Any], **more: Any) -> ServerSpec:
    return make_quick(env={"ASK": json.dumps(question)}, **more)


async def ask(
    folder: Path,
    server: ServerSpec,
    person: Person | None,
    tool: str = "mcp__quick__ask",
    worker: str = "local",
) -> tuple[str, list[AnyEvent]]:
    """Let a child call a tool that asks; return its result and the events."""
    agent = Agent(name="asker", instructions="", tools=(tool,))
    results: list[str] = []

    def answer(request: Request) -> Answer:
        if request.prompt == "Ask.":
            results.extend(result.text for result in request.results)
            return "asked" if request.turn else [call(tool)]
        return "done" if request.turn else [call("task", agent="asker", prompt="Ask.")]

    async with open_session(
        folder,
        answer,
        [server],
        agents=[agent],
        approver=person,
        permissions=ALLOW,
        worker=worker,
    ) as session:
        stream = session.stream("Delegate.")
        events = [event async for event in stream]
    return results[0], events


@pytest.mark.parametrize("worker", WORKERS)
async def test_the_user_answers_a_server_of_the_old_era(worker: str, tmp_path: Path) -> None:
    person = Person(ApprovalDecision(True, "the user answered", arguments={"color": "blue"}))
    result, events = await ask(tmp_path, make_asking(FORM), person, worker=worker)
    assert json.loads(result) == {"action": "accept", "content": {"color": "blue", "count": 2}}
    (request,) = person.requests
    assert (request.run_id, request.agent, request.tool) == ("1.1.1", "asker", "mcp__quick__ask")
    assert request.form and (request.form.server, request.form.message) == ("quick", "Which color?")
    (answered,) = [event for event in events if isinstance(event, InputAnswered)]
    assert (answered.run, answered.allowed, answered.values) == ("1.1.1", True, {"color": "blue"})
    finished = next(event for event in events if isinstance(event, ToolCallFinished))
    assert answered.call_id == finished.call_id
    assert events.index(answered) < events.index(finished)


async def test_without_a_user_a_question_is_declined_at_once(tmp_path: Path) -> None:
    result, events = await ask(tmp_path, make_asking(FORM), None)
    assert json.loads(result) == {"action": "decline"}
    (answered,) = [event for event in events if isinstance(event, InputAnswered)]
    assert (not answered.allowed and "nobody" in answered.why) or answered.why


async def test_an_answer_that_does_not_fit_is_declined(tmp_path: Path) -> None:
    for values in ({"color": "green"}, {}, {"color": "red", "count": "many"}):
        person = Person(ApprovalDecision(True, arguments=values))
        result, _ = await ask(tmp_path, make_asking(FORM), person)
        assert json.loads(result) == {"action": "decline"}


async def test_the_user_agrees_to_open_an_address(tmp_path: Path) -> None:
    question = {
        "mode": "url",
        "message": "Log in.",
        "url": "https://example.com/login",
        "elicitationId": "e1",
    }
    person = Person(ApprovalDecision(True))
    result, _ = await ask(tmp_path, make_asking(question), person)
    assert json.loads(result) == {"action": "accept"}
    form = person.requests[0].form
    assert form and form.url == "https://example.com/login"


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (
            {"mode": "url", "message": "Open.", "url": "file:///etc/passwd", "elicitationId": "e"},
            "is none of the web",
        ),
        (
            {
                "message": "Log in.",
                "requestedSchema": {
                    "type": "object",
                    "properties": {"x": {"type": "string", "title": "Your password"}},
                },
            },
            "x is a secret",
        ),
    ],
)
async def test_a_question_that_no_server_may_ask_reaches_no_user(
    question: dict[str, Any], why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    person = Person(ApprovalDecision(True))
    result, _ = await ask(tmp_path, make_asking(question), person)
    assert json.loads(result) == {"action": "decline"}
    assert not person.requests
    assert why in caplog.text


async def test_an_open_question_stops_the_time_limits_of_its_call(tmp_path: Path) -> None:
    class Slow(Person):
        async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
            await asyncio.sleep(0.3)
            return await super().decide(request)

    person = Slow(ApprovalDecision(True, arguments={"color": "blue"}))
    result, _ = await ask(tmp_path, make_asking(FORM, call_timeout=0.25), person)
    assert json.loads(result)["action"] == "accept"


async def test_the_end_of_the_run_withdraws_its_question(tmp_path: Path) -> None:
    person = Person(None)
    agent = Agent(name="asker", instructions="", tools=("mcp__quick__ask",))
    async with open_session(
        tmp_path,
        [[call("mcp__quick__ask")]],
        [make_asking(FORM)],
        agent=agent,
        approver=person,
        permissions=ALLOW,
    ) as session:
        running = asyncio.create_task(session.run("Ask."))
        await person.is_asked.wait()
        session.runs.cancel()
        assert (await running).reason is Reason.CANCELLED
        assert person.is_withdrawn
