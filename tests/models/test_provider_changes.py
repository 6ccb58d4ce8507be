"""A conversation that changes its provider between turns: each one receives what it accepts."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mudroom import Reason, Session
from mudroom._core.events import AnyEvent, TurnFinished
from mudroom._core.messages import TextBlock, ThinkingBlock, ToolCallBlock
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest
from mudroom.testing.strict_provider import find_refusals

from .wires import make_environ

MODELS = {
    "anthropic": "anthropic:claude-sonnet-5-5",
    "openai-responses": "openai-responses:gpt-5.5",
    "google": "google:gemini-flash-latest",
    "openai": "mistral:mistral-large-4",
}
CALL_IDS = {
    "anthropic": "toolu_01A09q90qw90lq917835lq{}",
    "openai-responses": "call_7dLcmw0CKwWgRYTSYlqz{}",
    "google": "",
    "openai": "D681Pev0{}",
}
ID_FORMS = {
    "anthropic": r"[a-zA-Z0-9_-]+",
    "openai-responses": ".{1,64}",
    "google": ".+",
    "openai": "[a-zA-Z0-9]{9}",
}
DEAD = Fault(status=401, body=b'{"error": {"type": "authentication_error", "message": "no"}}')


class Providers:
    """Four providers behind one address, each of which thinks, writes and calls tools.

    Attributes:
        requests: number of requests by dialect.
        refusals: reasons why a real provider refuses a request.
        signatures, thoughts: what each provider sent, by dialect.
        texts: all texts of user, models and tools that each request must hold.
        fails: each provider but the last one fails at its second request.
    """

    def __init__(self, *, fails: str = "") -> None:
        self.requests: Counter[str] = Counter()
        self.refusals: list[str] = []
        self.signatures: dict[str, list[str]] = {dialect: [] for dialect in MODELS}
        self.thoughts: dict[str, list[str]] = {dialect: [] for dialect in MODELS}
        self.texts = ["written in a", "written in b"]
        self.last = fails

    def answer(self, request: ServerRequest) -> ServerAnswer:
        """Answer with calls at the first request of a leg, and end or fail at the second one."""
        dialect = request.dialect
        self.requests[dialect] += 1
        count = self.requests[dialect]
        self.check(request)
        if count % 2 == 0 and self.last and self.last != dialect:
            return DEAD
        signature = f"U0lHTkFUVVJF{dialect.replace('-', '')}{count}=="
        thought = f"Thought {count} of {dialect}."
        text = f"Text {count} of {dialect}."
        if dialect != "openai":
            self.signatures[dialect].append(signature)
        self.thoughts[dialect].append(thought)
        self.texts.append(text)
        blocks = (ThinkingBlock(thought, signature), TextBlock(text))
        if count % 2 == 0:
            return blocks
        first, second = (
            ToolCallBlock(CALL_IDS[dialect].format(number), "read", {"file_path": name})
            for number, name in enumerate("ab", 2 * count)
        )
        if dialect == "google":
            self.signatures[dialect].append(f"{signature}call")
            first = ToolCallBlock("", "read", {"file_path": "a"}, signature=f"{signature}call")
        return (*blocks, first, second)

    def check(self, request: ServerRequest) -> None:
        """Compare a request with the rules of its provider."""
        where = f"request {self.requests[request.dialect]} to {request.dialect}"
        body = request.body.decode()
        problems = [*find_refusals(request), *CHECKS[request.dialect](request.messages)]
        if len(self.texts) > 2:
            problems += [f"{text!r} is lost" for text in self.texts if text not in body]
        for dialect in MODELS:
            for value in self.signatures[dialect] + self.thoughts[dialect]:
                if (value in body) != (dialect == request.dialect):
                    problems.append(f"{value!r} of {dialect}")
        form = ID_FORMS[request.dialect]
        ids = re.findall(r'"(?:id|call_id|tool_use_id|tool_call_id)":"([^"]*)"', body)
        problems += [f"call id {each!r}" for each in ids if not re.fullmatch(form, each)]
        self.refusals += [f"{where}: {problem}" for problem in problems]


def check_anthropic(messages: list[dict[str, Any]]) -> list[str]:
    blocks = [block for message in messages for block in message["content"]]
    thinking = (block for block in blocks if block["type"] == "thinking")
    return ["thinking without signature" for block in thinking if not block["signature"]]


def check_responses(items: list[dict[str, Any]]) -> list[str]:
    reasoning = (item for item in items if item["type"] == "reasoning")
    return ["reasoning without content" for item in reasoning if not item["encrypted_content"]]


def check_google(contents: list[dict[str, Any]]) -> list[str]:
    calls = [[part for part in each["parts"] if "functionCall" in part] for each in contents]
    return [
        f"no signature on the first call of {found}"
        for found in calls
        if found and not found[0].get("thoughtSignature")
    ]


def check_mistral(messages: list[dict[str, Any]]) -> list[str]:
    roles = " ".join(message["role"] for message in messages)
    known = {"role", "content", "tool_calls", "tool_call_id", "reasoning_content"}
    problems = [f"field {name}" for message in messages for name in message.keys() - known]
    return [*problems, *(["a user message after a result"] if "tool user" in roles else [])]


CHECKS = {
    "anthropic": check_anthropic,
    "openai-responses": check_responses,
    "google": check_google,
    "openai": check_mistral,
}


def open_session(folder: Path, url: str, **options: Any) -> Session:
    for name in "ab":
        (folder / name).write_text(f"written in {name}")
    home, environ = str(folder / "home"), make_environ(url)
    return Session(cwd=str(folder), home=home, environ=environ, sandbox="off", **options)


def rotate(start: str) -> list[str]:
    """Return the dialects in their order, from one of them on."""
    dialects = list(MODELS)
    at = dialects.index(start)
    return dialects[at:] + dialects[:at]


@pytest.mark.parametrize("start", MODELS)
async def test_a_resumed_session_continues_with_every_provider(tmp_path: Path, start: str) -> None:
    providers = Providers()
    order = [*rotate(start), start]
    async with ModelServer(providers.answer) as server:
        resume = ""
        for number, dialect in enumerate(order):
            prompt = f"Prompt {number}."
            if number:
                providers.texts.append(prompt)
            async with open_session(
                tmp_path, server.url, model=MODELS[dialect], resume=resume
            ) as session:
                report = await session.run(prompt)
            assert (report.reason, report.model) == (Reason.GOAL, MODELS[dialect]), report.error
            assert report.text == providers.texts[-1]
            resume = session.id
    assert not providers.refusals
    assert sum(providers.requests.values()) == 2 * len(order)


@pytest.mark.parametrize("start", MODELS)
async def test_a_fallback_continues_with_every_provider(tmp_path: Path, start: str) -> None:
    order = rotate(start)
    providers = Providers(fails=order[-1])
    events: list[AnyEvent] = []
    async with ModelServer(providers.answer) as server:
        async with open_session(
            tmp_path, server.url, model=",".join(MODELS[dialect] for dialect in order)
        ) as session:
            session.watch(events.append)
            report = await session.run("Prompt.")
    assert not providers.refusals
    assert (report.reason, report.text) == (Reason.GOAL, providers.texts[-1])
    answered = [event.message.answered_by for event in events if isinstance(event, TurnFinished)]
    assert answered == [MODELS[dialect] for dialect in [*order, order[-1]]]


@pytest.mark.parametrize("dialect", MODELS)
async def test_signatures_go_only_to_the_server_that_made_them(
    tmp_path: Path, dialect: str
) -> None:
    """A second server with another address counts as another provider."""
    providers = [Providers(), Providers()]
    async with ModelServer(providers[0].answer) as first, ModelServer(providers[1].answer) as other:
        async with open_session(tmp_path, first.url, model=MODELS[dialect]) as session:
            await session.run("Prompt 0.")
        async with open_session(
            tmp_path, other.url, model=MODELS[dialect], resume=session.id
        ) as session:
            report = await session.run("Prompt 1.")
        requests = [request.body.decode() for request in other.requests]
    assert report.reason is Reason.GOAL, report.error
    assert not providers[1].refusals
    foreign = providers[0].signatures[dialect] + providers[0].thoughts[dialect]
    own = providers[1].signatures[dialect] + providers[1].thoughts[dialect]
    # The first answer of each server is the same, so marks of the second answers tell them apart.
    assert [mark for mark in foreign if mark in requests[0]] == []
    assert [mark for mark in own[:2] if mark in requests[1]]
