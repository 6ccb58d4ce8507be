"""Tests of Ollama's own API: bodies, answers and windows, in the form of its documentation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mudroom import Reason, Session
from mudroom._adapters.models._http import LineParser
from mudroom._adapters.models.ollama import OllamaModel
from mudroom._adapters.models.openai.chat import OpenAIModel
from mudroom._core.messages import (
    AssistantMessage,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
    UserMessage,
    user_message,
)
from mudroom._core.ports import RequestConfig
from mudroom._session.model_registry import ModelRegistry
from mudroom.errors import ContextOverflow
from mudroom.testing import load_replay_model
from mudroom.testing.clock import FakeClock
from mudroom.testing.model_server import Fault, ModelServer

from .wires import OLLAMA, SCHEMA, ask, make_tool, serve_pages

WIRE = "ollama:127.0.0.1:1"
LAST = {"model": "qwen3:8b", "done": True, "prompt_eval_count": 26, "eval_count": 8}
CALL = ToolCallBlock("c1", "read", {"file_path": "notes.txt"})
PAGES: dict[str, object] = {
    "/api/tags": {"models": [{"name": name} for name in ("llama3.2:latest", "qwen3:8b")]}
}
TOO_LONG = {
    "error": {
        "code": 400,
        "message": "request (8889 tokens) exceeds the available context size (4096 tokens), "
        "try increasing it",
        "type": "exceed_context_size_error",
    }
}


def make_chunk(done: Mapping[str, Any] | None = None, **message: object) -> dict[str, Any]:
    """Return one line of an answer, or the last one."""
    fields = {"role": "assistant", "content": ""} | message
    return {"model": "qwen3:8b", "message": fields, "done": False} | dict(done or {})


def to_lines(*values: object) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def test_the_body_sets_the_window_and_forbids_a_silent_cut() -> None:
    body = OLLAMA.build(
        user_message("Hi."),
        context_window=16_384,
        config=RequestConfig(system="S", temperature=0.5),
    )
    assert body == {
        "model": "qwen3:8b",
        "stream": True,
        "truncate": False,
        "shift": False,
        "options": {"num_ctx": 16_384, "num_predict": 4_096, "temperature": 0.5},
        "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi."}],
        "tools": [],
    }


def test_a_conversation_goes_back_with_thinking_calls_and_results() -> None:
    answer = AssistantMessage((ThinkingBlock("Look."), TextBlock("I look."), CALL), wire=WIRE)
    foreign = AssistantMessage((ThinkingBlock("Hm."), CALL), wire="anthropic")
    results = UserMessage((ToolResultBlock("c1", "read", "red"), TextBlock("Go."), IMAGE))
    config = RequestConfig(system="", tools=(make_tool("read"),))
    body = OLLAMA.build(answer, results, foreign, config=config)
    call = {"id": "c1", "function": {"name": "read", "arguments": {"file_path": "notes.txt"}}}
    assert body["messages"] == [
        {"role": "assistant", "content": "I look.", "thinking": "Look.", "tool_calls": [call]},
        {"role": "tool", "tool_name": "read", "tool_call_id": "c1", "content": "red"},
        {"role": "user", "content": "Go.", "images": ["iVBORw=="]},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]
    function = {"name": "read", "description": "Does read.", "parameters": SCHEMA}
    assert body["tools"] == [{"type": "function", "function": function}]
    assert "tools" not in OLLAMA.build(answer, tools=False, config=config)


IMAGE = ImageBlock("image/png", b"\x89PNG")


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_lines_arrive_whole_in_chunks_of_any_size(size: int) -> None:
    data = b'{"a":1}\n\n{"b":2}\r\n{"c":3}'
    parser = LineParser()
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    lines = [line for piece in pieces for line in parser.feed(piece)] + parser.flush()
    assert [json.loads(line) for line in lines] == [{"a": 1}, {"b": 2}, {"c": 3}]
    assert LineParser().flush() == []


@pytest.mark.parametrize(
    ("shown", "environ", "window"),
    [
        ({"parameters": "stop  x\nnum_ctx                        65536"}, {}, 65_536),
        ({"model_info": {"llama.context_length": 131_072}}, {}, 32_768),
        ({"model_info": {"bert.context_length": 2_048}}, {}, 2_048),
        (
            {"model_info": {"llama.context_length": 131_072}},
            {"OLLAMA_CONTEXT_LENGTH": "64000"},
            64_000,
        ),
        ({}, {}, 32_768),
        ({"parameters": 7}, {"OLLAMA_CONTEXT_LENGTH": "64000"}, 64_000),
    ],
    ids=["Modelfile", "long model", "short model", "environment", "unknown", "no answer"],
)
async def test_the_model_gets_a_window_that_fits_it(
    shown: dict[str, Any], environ: Mapping[str, str], window: int
) -> None:
    async with serve_pages(PAGES | {"/api/show": shown}) as url:
        environ = {"OLLAMA_HOST": url, **environ}
        registry = ModelRegistry(environ, FakeClock(), load_replay_model)
        assert await registry.choose_default() == "ollama:qwen3:8b"
        await registry.ask_servers("ollama:llama3.2")
        for name in ("ollama:qwen3:8b", "ollama:llama3.2"):
            model = registry.get_model(name)
            assert isinstance(model, OllamaModel)
            assert model.facts.context_window == window


async def test_each_of_several_models_keeps_its_window() -> None:
    async with serve_pages(PAGES | {"/api/show": {"parameters": "num_ctx 2048"}}) as url:
        registry = ModelRegistry({"OLLAMA_HOST": url}, FakeClock(), load_replay_model)
        await registry.ask_servers("ollama:llama3.2:latest")
        await registry.ask_servers("ollama:qwen3:8b")
    assert registry.windows["ollama:llama3.2:latest"] == 2048
    assert registry.windows["ollama:qwen3:8b"] == 2048


def test_a_model_that_was_not_asked_for_has_the_default_window() -> None:
    registry = ModelRegistry({"OLLAMA_HOST": "gpu.example"}, FakeClock(), load_replay_model)
    model = registry.get_model("ollama:qwen3")
    assert isinstance(model, OllamaModel)
    assert (model.url, model.facts.context_window) == ("http://gpu.example:11434/api/chat", 32_768)


def test_an_address_that_ends_in_v1_is_the_compatible_api() -> None:
    environ = {"OLLAMA_BASE_URL": "http://gpu.example:11434/v1/"}
    model = ModelRegistry(environ, FakeClock(), load_replay_model).get_model("ollama:qwen3")
    assert isinstance(model, OpenAIModel)
    assert model.url == "http://gpu.example:11434/v1/chat/completions"


async def test_a_session_runs_a_call(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("a red door")
    function = {"name": "read", "arguments": {"file_path": "notes.txt"}}
    call = to_lines(make_chunk(tool_calls=[{"function": function}]), make_chunk(LAST))
    text = to_lines(make_chunk(content="A door."), make_chunk({**LAST, "done_reason": "stop"}))
    bodies: list[Any] = []
    shown = {"capabilities": ["completion", "tools"]}
    pages = {"/api/show": shown, "/api/chat": [call, text]}
    async with serve_pages(PAGES | pages, bodies) as url:
        async with Session(
            model="ollama:llama3.2",
            environ={"OLLAMA_HOST": url},
            cwd=str(tmp_path),
            home=str(tmp_path / "home"),
            journal="memory",
        ) as session:
            report = await session.run("What is in notes.txt?")
    assert (report.reason, report.text) == (Reason.GOAL, "A door."), report.error
    assert report.usage == Usage(52, 16)
    assert "a red door" in bodies[1]["messages"][-1]["content"]
    assert [body["options"]["num_ctx"] for body in bodies] == [32_768, 32_768]


async def test_a_prompt_that_is_too_long_is_an_overflow_with_a_remedy() -> None:
    fault = Fault(status=400, body=json.dumps({"error": json.dumps(TOO_LONG)}).encode())
    async with ModelServer(lambda _: fault) as server:
        model = OLLAMA.make_model(base_url=server.url)
        with pytest.raises(ContextOverflow, match=r"8889 tokens.*4096 tokens") as caught:
            await ask(model)
        await model.close()
    assert "/compact" in caught.value.remedy
