"""Tests of several models in the place of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mudroom import ModelOptions, Reason, Report, Session
from mudroom._adapters.models.fallback import FallbackModel
from mudroom._adapters.models.pricing import calculate_cost
from mudroom._adapters.models.scripted import ScriptedModel
from mudroom._core.events import AnyEvent, ModelCallRetried, TurnFinished
from mudroom._core.messages import TextBlock, ThinkingBlock, ToolCallBlock
from mudroom.errors import ModelRefused, UnknownName, UsageError
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest
from mudroom.testing.strict_provider import strict_script

from .wires import make_environ

MODELS = "anthropic:claude-sonnet-4-5,google:gemini-flash-latest"
DEAD = Fault(status=401, body=b'{"error": {"type": "authentication_error", "message": "no"}}')


def open_session(folder: Path, url: str, **options: Any) -> Session:
    home = str(folder / "home")
    return Session(environ=make_environ(url), home=home, journal="memory", **options)


def call_then_fail(request: ServerRequest) -> ServerAnswer:
    """Answer as a first model that fails after one call, and a second one that finishes."""
    if request.dialect == "google":
        return "It is pytest."
    if request.turn:
        return DEAD
    thought = ThinkingBlock("Look first.", "c2ln")
    return (thought, TextBlock("I look."), ToolCallBlock("toolu_1", "read", {"file_path": "a"}))


async def test_the_next_model_continues_the_same_conversation(tmp_path: Path) -> None:
    events: list[AnyEvent] = []
    async with ModelServer(strict_script(call_then_fail)) as server:
        prices = ModelOptions(prices=True)
        async with open_session(
            tmp_path, server.url, model=MODELS, cwd=str(tmp_path), model_options=prices
        ) as session:
            session.watch(events.append)
            report = await session.run("Which framework?")
    assert (report.reason, report.text) == (Reason.GOAL, "It is pytest.")
    answers = [event.message for event in events if isinstance(event, TurnFinished)]
    assert [answer.answered_by for answer in answers] == MODELS.split(",")
    (retry,) = (event for event in events if isinstance(event, ModelCallRetried))
    assert retry.error.startswith("google:gemini-flash-latest continues: ")
    assert "HTTP 401" in retry.error
    (request,) = (request for request in server.requests if request.dialect == "google")
    assert len(request.messages) == 3
    costs = [calculate_cost(answer.answered_by, answer.usage) for answer in answers]
    assert report.usd == pytest.approx(sum(cost or 0 for cost in costs), abs=1e-6)


async def test_the_error_of_the_last_model_ends_the_run(tmp_path: Path) -> None:
    async with ModelServer(lambda _: DEAD) as server:
        async with open_session(tmp_path, server.url, model=MODELS) as session:
            report = await session.run("Which framework?")
    assert report.reason is Reason.ERROR
    assert "google refused the request (HTTP 401)" in report.error


async def test_a_model_that_failed_is_not_tried_by_the_next_prompts(tmp_path: Path) -> None:
    def answer(request: ServerRequest) -> ServerAnswer:
        return DEAD if request.dialect == "anthropic" else "Hello."

    async with ModelServer(answer) as server:
        first, _, second = MODELS.partition(",")
        options = ModelOptions(fallback=second)
        async with open_session(
            tmp_path, server.url, model=first, model_options=options
        ) as session:
            for _ in range(3):
                report = await session.task("Say hello.")
                assert report.text == "Hello."
    assert sum(request.dialect == "anthropic" for request in server.requests) == 1


def test_a_model_that_failed_is_tried_again_after_a_minute() -> None:
    now = [100.0]
    models = [ScriptedModel([], "scripted:a"), ScriptedModel([], "scripted:b")]
    model = FallbackModel(models, lambda: now[0])
    model.mark_failed(0)
    assert model.choose_first() == 1
    model.mark_failed(1)
    assert model.choose_first() == 0
    now[0] += 60
    assert model.choose_first() == 0


async def test_a_model_object_can_have_a_fallback(tmp_path: Path) -> None:
    broken = ScriptedModel([ModelRefused("no")])
    async with Session(
        model=broken,
        model_options=ModelOptions(fallback="offline"),
        home=str(tmp_path),
        journal="memory",
        environ={},
    ) as session:
        report = await session.run("你好")
    assert report.text


@pytest.mark.parametrize(
    ("fallback", "error"), [("antropic:sonnet", UnknownName), ("mistral", UsageError)]
)
async def test_an_unusable_fallback_is_refused_at_the_start(
    tmp_path: Path, fallback: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        async with Session(
            model="offline",
            model_options=ModelOptions(fallback=fallback),
            home=str(tmp_path),
            environ={},
        ):
            pass


async def test_a_model_without_tools_in_chat_completions_is_not_asked(tmp_path: Path) -> None:
    """No request goes out: the next model answers, or the error says how to name the model."""
    name = "openai-chat:gpt-6.1-sol"
    async with ModelServer(lambda _: "It is pytest.") as server:
        environ = make_environ(server.url)
        del environ["OPENAI_BASE_URL"]
        reports = [
            await ask(f"{name},google:gemini-flash-latest", environ, tmp_path),
            await ask(name, environ, tmp_path),
        ]
        assert [request.dialect for request in server.requests] == ["google"]
    assert reports[0].text == "It is pytest."
    assert reports[1].reason is Reason.ERROR
    assert "gpt-6.1-sol takes no tools in Chat Completions" in reports[1].error
    assert "openai-responses:gpt-6.1-sol" in reports[1].error


async def ask(model: str, environ: dict[str, str], home: Path) -> Report:
    async with Session(model=model, environ=environ, home=str(home), journal="memory") as session:
        return await session.run("Which framework?")
