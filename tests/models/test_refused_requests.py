"""Refusals on record: refused calls of Groq, full context windows and bad keys of all providers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mudroom import Reason, Report, Session
from mudroom._adapters.models._errors import ProviderHints, classify_status
from mudroom.errors import ContextOverflow, ModelRefused
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer

from .wires import WIRES, Wire, ask, get_name, refuse

REASON = "Tool call validation failed: parameters for tool read did not match schema"
STREAM = "text/event-stream"


def make_groq_error(generation: str) -> dict[str, Any]:
    error = {"message": REASON, "type": "invalid_request_error", "code": "tool_use_failed"}
    return {"error": error | {"failed_generation": generation, "status_code": 400}}


async def run_with_groq(folder: Path, first: ServerAnswer) -> tuple[Report, list[dict[str, Any]]]:
    """Run a prompt whose first answer is given; return the report and the last messages sent."""
    answers = [first]
    async with ModelServer(lambda _: answers.pop() if answers else "Done.") as server:
        environ = {"GROQ_API_KEY": "k", "GROQ_BASE_URL": f"{server.url}/openai/v1"}
        async with Session(
            model="groq:m", cwd=str(folder), journal="memory", environ=environ
        ) as session:
            report = await session.run("Read it.")
    return report, server.requests[-1].json["messages"]


@pytest.mark.parametrize("in_stream", [False, True])
async def test_a_call_that_groq_refuses_is_told_to_the_model(
    in_stream: bool, tmp_path: Path
) -> None:
    generation = json.dumps({"name": "read", "arguments": {"invalid": "test"}})
    body = json.dumps(make_groq_error(generation)).encode()
    fault = Fault(status=400, body=body)
    if in_stream:
        fault = Fault(body=b"event: error\ndata: %b\n\n" % body, content_type=STREAM)
    report, messages = await run_with_groq(tmp_path, fault)
    assert (report.reason, report.text) == (Reason.GOAL, "Done.")
    call, result, _note = messages[-3:]
    function = call["tool_calls"][0]["function"]
    assert (function["name"], json.loads(function["arguments"])) == ("read", {"invalid": "test"})
    assert "Invalid arguments for read" in result["content"]


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        ('<function=read>{"file_path": "a"</function>', "were not a JSON object"),
        ("I would rather", "There is no tool 'unknown' here"),
        ('[{"name": "reed", "parameters": {}}]', "There is no tool 'reed' here. Did you mean read"),
    ],
)
async def test_a_generation_in_another_form_is_told_to_the_model(
    generation: str, expected: str, tmp_path: Path
) -> None:
    body = json.dumps(make_groq_error(generation)).encode()
    report, messages = await run_with_groq(tmp_path, Fault(status=400, body=body))
    assert report.reason is Reason.GOAL
    assert expected in messages[-2]["content"]


async def test_the_fourth_refused_answer_in_a_row_is_an_error(tmp_path: Path) -> None:
    generation = json.dumps({"name": "read", "arguments": {"invalid": "test"}})
    fault = Fault(status=400, body=json.dumps(make_groq_error(generation)).encode())
    async with ModelServer(lambda _: fault) as server:
        environ = {"GROQ_API_KEY": "k", "GROQ_BASE_URL": f"{server.url}/openai/v1"}
        async with Session(
            model="groq:m", cwd=str(tmp_path), journal="memory", environ=environ
        ) as session:
            report = await session.run("Read it.")
    assert (report.reason, server.request_count) == (Reason.ERROR, 4)
    assert REASON in report.error


@pytest.mark.parametrize("wire", WIRES, ids=get_name)
async def test_a_full_window_is_an_error_of_its_own_on_every_wire(wire: Wire) -> None:
    fault = refuse("Your input exceeds the context window of this model.")
    async with ModelServer(lambda _: fault) as server:
        model = wire.make_model(base_url=server.url)
        with pytest.raises(ContextOverflow) as caught:
            await ask(model)
        await model.close()
    assert "/compact" in caught.value.remedy


@pytest.mark.parametrize(
    "text",
    ["Invalid max_tokens value", "max_tokens: 9 > 8, which is the maximum allowed number", "no"],
)
def test_other_refusals_are_neither_a_full_window_nor_a_bad_key(text: str) -> None:
    error = classify_status(ProviderHints(key_env="K"), "https://x.example", 400, text).error
    assert type(error) is ModelRefused
    assert not error.remedy


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "API key not valid. Please pass a valid API key."),
        (401, "Unauthorized"),
        (403, "Forbidden"),
        (422, "Missing API key"),
    ],
)
def test_a_bad_key_is_named_whatever_the_status(status: int, text: str) -> None:
    error = classify_status(ProviderHints(key_env="K"), "https://x.example", status, text).error
    assert error.remedy == "Check the key in K."


def test_tools_that_chat_completions_refuses_name_the_other_protocol() -> None:
    text = "Function tools with reasoning_effort are not supported. Use /v1/responses."
    error = classify_status(ProviderHints(), "https://x.example", 400, text).error
    assert error.remedy == "Name the model as openai-responses:MODEL."
