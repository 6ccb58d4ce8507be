"""`mudroom doctor --model`: one request with one tool says what a model and its server can do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mudroom import ThinkingBlock, ToolCallBlock
from mudroom._cli.actions.doctor import Check, check_model
from mudroom._cli.main import run
from mudroom.testing import Fault, ModelServer, ServerRequest
from mudroom.testing.model_server import ServerAnswer

NOTE = ToolCallBlock("c1", "note", {"text": "ok"})
WRITTEN = '<tool_call>\n{"name": "note", "arguments": {"text": "ok"}}\n</tool_call>'


async def examine(
    answers: list[ServerAnswer], model: str = "openai:m"
) -> tuple[dict[str, Check], list[ServerRequest]]:
    async with ModelServer(lambda _: answers.pop(0)) as server:
        bases = {"OPENAI": f"{server.url}/v1", "ANTHROPIC": server.url, "OLLAMA": server.url}
        environ = {f"{name}_API_KEY": "k" for name in bases}
        environ |= {f"{name}_BASE_URL": url for name, url in bases.items()}
        checks = await check_model(model, environ)
    return {check.name: check for check in checks}, server.requests


@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        ((NOTE,), "ok", "the server parsed the call"),
        (WRITTEN, "fail", "does not parse calls"),
        ("ok", "warn", "answered in words"),
        ((ToolCallBlock("c1", "other", {}),), "warn", "it called other"),
    ],
)
async def test_it_says_whether_calls_are_parsed(
    answer: ServerAnswer, state: str, words: str
) -> None:
    checks, requests = await examine([answer])
    assert len(requests) == 1
    assert requests[0].tools == ["note"]
    assert checks["tools"].state == state
    assert words in checks["tools"].result
    assert ("tool parser" in checks["tools"].remedy) is (state == "fail")


async def test_it_says_the_window_the_price_images_and_reasoning() -> None:
    thought = ThinkingBlock("hm", "sig")
    checks, _ = await examine([(thought, NOTE)], "anthropic:claude-sonnet-5-5")
    found = {name: check.result for name, check in checks.items()}
    assert found["context window"] == "1,000,000 tokens"
    assert found["price"] == "$2.00 per million tokens read, $10.00 per million written"
    assert found["images"] == "it gets images"
    assert found["reasoning"] == "signed by the provider"


async def test_it_says_the_price_of_short_requests() -> None:
    checks, _ = await examine([(NOTE,)], "anthropic:claude-haiku-5-5")
    expected = "$0.10 per million tokens read, $0.50 per million written"
    assert checks["price"].result == expected


async def test_it_names_the_field_of_the_reasoning_and_an_unknown_price() -> None:
    checks, _ = await examine([(ThinkingBlock("hm"), NOTE)])
    assert checks["reasoning"].result == "in the field reasoning_content"
    assert checks["price"].state == "warn"
    assert "limit its tokens" in checks["price"].remedy


async def test_it_works_on_the_wire_of_ollama() -> None:
    checks, requests = await examine([(NOTE,)], "ollama:qwen3:8b")
    assert requests[0].dialect == "ollama"
    assert checks["tools"].state == "ok"
    assert checks["price"].result.startswith("$0.00")


async def test_a_request_that_had_to_be_repaired_is_told() -> None:
    text = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    refusal = Fault(status=400, body=json.dumps({"error": {"message": text}}).encode())
    checks, requests = await examine([refusal, (NOTE,)], "openai:doctor-repair")
    assert len(requests) == 2
    assert "max_completion_tokens is sent" in checks["repaired request"].result
    assert checks["tools"].state == "ok"


@pytest.mark.parametrize(
    ("status", "text", "remedy"),
    [
        (401, "Incorrect API key provided", "Check the key"),
        (402, "Insufficient Balance", "Add credit"),
        (400, "m does not support tools", "Use a model that takes them"),
        (404, "The model `m` does not exist", "Check the model's name"),
    ],
)
async def test_a_refusal_is_told_with_its_remedy(status: int, text: str, remedy: str) -> None:
    body = json.dumps({"error": {"message": text}}).encode()
    checks, _ = await examine([Fault(status=status, body=body)])
    (check,) = checks.values()
    assert (check.name, check.state) == ("model request", "fail")
    assert text in check.result
    assert remedy in check.remedy


def test_an_unknown_model_is_an_error_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["doctor", "--model", "zebra-9", "--json"]) == 1
    (check,) = json.loads(capsys.readouterr().out)["checks"]
    assert "unknown model" in check["found"]
