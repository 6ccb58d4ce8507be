"""Tests of the default model when the environment names a server of the user."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mudroom import Children, ImageBlock, ModelOptions, Session, TextBlock, Usage
from mudroom._adapters.models.openai.chat import OpenAIModel
from mudroom._core.messages import StopReason
from mudroom._core.ports import RequestConfig
from mudroom._session.model_registry import ModelRegistry
from mudroom.errors import UsageError
from mudroom.testing import load_replay_model
from mudroom.testing.clock import FakeClock
from mudroom.testing.wire_formats import WireAnswer, openai_stream

from ..worker_kinds import WORKERS
from .wires import serve_pages

QWEN = {"/v1/models": {"object": "list", "data": [{"id": "qwen3-8b"}]}}


async def choose(environ: Mapping[str, str]) -> str | None:
    return await ModelRegistry(environ, FakeClock(), load_replay_model).choose_default()


async def request_max_tokens(environ: Mapping[str, str]) -> int:
    """Return the output limit in the body of a request to the default model."""
    registry = ModelRegistry(environ, FakeClock(), load_replay_model)
    name = await registry.choose_default()
    assert name is not None
    model = registry.get_model(name)
    assert isinstance(model, OpenAIModel)
    body = model.start_conversation(RequestConfig(system="")).build_body()
    return json.loads(body)["max_tokens"]


@pytest.mark.parametrize("provider", ["OPENAI", "VLLM", "LLAMACPP", "LMSTUDIO", "OLLAMA"])
async def test_an_address_alone_takes_the_model_that_the_server_lists(provider: str) -> None:
    async with serve_pages(QWEN) as url:
        name = await choose({f"{provider}_BASE_URL": f"{url}/v1"})
    assert name == f"{provider.lower()}:qwen3-8b"


async def test_the_default_model_stays_when_the_server_lists_it() -> None:
    models = {"data": [{"id": "other"}, {"id": "gpt-6.1-sol"}]}
    async with serve_pages({"/v1/models": models}) as url:
        assert await choose({"OPENAI_BASE_URL": f"{url}/v1"}) == "openai:gpt-6.1-sol"


@pytest.mark.parametrize("variable", ["OPENAI_MODEL", "MUDROOM_OPENAI_MODEL"])
async def test_a_named_model_is_not_replaced(variable: str) -> None:
    async with serve_pages(QWEN) as url:
        environ = {"OPENAI_BASE_URL": f"{url}/v1", variable: "llama"}
        assert await choose(environ) == "openai:llama"


@pytest.mark.parametrize(
    "pages",
    [
        {},
        {"/v1/models": "nonsense"},
        {"/v1/models": {"data": []}},
        {"/v1/models": b'{"data":' + b"[" * 100_000},
        {"/v1/models": b'{"other":' + b"[" * 100_000},
    ],
    ids=["nothing", "text", "empty list", "deep list", "deep value"],
)
async def test_a_server_that_lists_nothing_keeps_the_default(pages: Mapping[str, object]) -> None:
    async with serve_pages(pages) as url:
        assert await choose({"OPENAI_BASE_URL": f"{url}/v1"}) == "openai:gpt-6.1-sol"


@pytest.mark.parametrize(
    ("pages", "expected"),
    [
        ({"/v1/models": {"data": [{"id": "m", "max_model_len": 8192}]}}, 2048),
        ({**QWEN, "/props": {"default_generation_settings": {"n_ctx": 4096}}}, 1024),
        (QWEN, 8192),
    ],
    ids=["vLLM", "llama.cpp", "a server that does not say"],
)
async def test_the_window_of_the_server_bounds_the_answer(
    pages: Mapping[str, object], expected: int
) -> None:
    async with serve_pages(pages) as url:
        assert await request_max_tokens({"OPENAI_BASE_URL": f"{url}/v1"}) == expected


async def test_a_session_uses_the_served_model(tmp_path: Path) -> None:
    answer = WireAnswer((TextBlock("Hello."),), "qwen3-8b", "r1", Usage(9, 2), StopReason.END)
    stream = b"".join(openai_stream(answer))
    async with serve_pages({**QWEN, "/v1/chat/completions": stream}) as url:
        environ = {"VLLM_BASE_URL": f"{url}/v1"}
        async with Session(environ=environ, home=str(tmp_path), journal="memory") as session:
            report = await session.run("Who are you?")
    assert (report.text, report.model) == ("Hello.", "vllm:qwen3-8b")


@pytest.mark.parametrize("worker", WORKERS)
@pytest.mark.parametrize(
    "options",
    [
        {"model": "vllm:m"},
        {"model": "offline", "children": Children(model="explore=vllm:m")},
        {"model": "groq:m", "model_options": ModelOptions(fallback="vllm:m")},
    ],
    ids=["model", "rule", "fallback"],
)
async def test_children_know_the_window_of_a_local_server(
    tmp_path: Path, worker: str, options: dict[str, Any]
) -> None:
    answer = WireAnswer((TextBlock("Hello."),), "m", "r1", Usage(9, 2), StopReason.END)
    pages = {
        "/v1/models": {"data": [{"id": "m", "max_model_len": 4096}]},
        "/v1/chat/completions": b"".join(openai_stream(answer)),
    }
    bodies: list[Any] = []
    async with serve_pages(pages, bodies) as url:
        environ = {
            "VLLM_BASE_URL": f"{url}/v1",
            "GROQ_BASE_URL": f"{url}/no",
            "GROQ_API_KEY": "k",
        }
        async with Session(
            cwd=str(tmp_path),
            home=str(tmp_path / "home"),
            environ=environ,
            journal="memory",
            worker=worker,
            **options,
        ) as session:
            report = await session.task("Say hello.", agent="explore")
    assert report.text == "Hello.", report.error
    assert bodies[-1]["max_tokens"] == 1024


async def test_a_named_model_of_a_local_server_has_the_window_of_the_server(tmp_path: Path) -> None:
    answer = WireAnswer((TextBlock("Hello."),), "m", "r1", Usage(9, 2), StopReason.END)
    pages = {
        "/v1/models": {"data": [{"id": "other"}, {"id": "m", "max_model_len": 4096}]},
        "/v1/chat/completions": b"".join(openai_stream(answer)),
    }
    async with serve_pages(pages) as url:
        registry = ModelRegistry({"VLLM_BASE_URL": f"{url}/v1"}, FakeClock(), load_replay_model)
        await registry.ask_servers("vllm:m,vllm:other,openai:gpt-5,no such model")
        model = registry.get_model("vllm:m")
        other = registry.get_model("vllm:other")
    assert isinstance(model, OpenAIModel)
    assert isinstance(other, OpenAIModel)
    assert (model.facts.context_window, other.facts.context_window) == (4096, 0)
    assert model.facts.choose_max_tokens(None) == 1024


PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
IMAGE_PROMPT = [TextBlock("What is this?"), ImageBlock("image/png", PNG)]
OLLAMA_CHAT = b"".join(
    json.dumps(line).encode() + b"\n"
    for line in (
        {"model": "m:latest", "message": {"role": "assistant", "content": "Red."}, "done": False},
        {"model": "m:latest", "message": {"content": ""}, "done": True, "done_reason": "stop"},
    )
)


def describe_server(kind: str, *, has_vision: bool | None) -> tuple[str, dict[str, object]]:
    """Return a model string and the pages of a server that says whether the model takes images."""
    answer = WireAnswer((TextBlock("Red."),), "m", "r1", Usage(9, 2), StopReason.END)
    pages: dict[str, object] = {"/v1/chat/completions": b"".join(openai_stream(answer))}
    if kind == "ollama":
        shown = {} if has_vision is None else {"capabilities": ["vision"] if has_vision else []}
        listed = {"models": [{"name": "m:latest"}]}
        return "ollama:m", {"/api/tags": listed, "/api/show": shown, "/api/chat": OLLAMA_CHAT}
    if kind == "llamacpp":
        modalities = {} if has_vision is None else {"modalities": {"vision": has_vision}}
        pages["/props"] = {"default_generation_settings": {"n_ctx": 8192}} | modalities
        return "llamacpp:m", pages | {"/v1/models": {"data": [{"id": "m"}]}}
    inputs = {"input_modalities": ["text", "image"] if has_vision else ["text"]}
    more = {} if has_vision is None else {"architecture": inputs}
    return "vllm:m", pages | {"/v1/models": {"data": [{"id": "m", "max_model_len": 9} | more]}}


@pytest.mark.parametrize(
    ("kind", "worker"),
    [("ollama", "local"), ("llamacpp", "local"), *(("vllm", each) for each in WORKERS[:2])],
)
async def test_images_go_to_a_served_model_that_takes_them(
    kind: str, worker: str, tmp_path: Path
) -> None:
    model, pages = describe_server(kind, has_vision=True)
    bodies: list[Any] = []
    async with serve_pages(pages, bodies) as url:
        async with open_session(model, url, tmp_path, worker=worker) as session:
            report = await session.task(IMAGE_PROMPT, agent="explore")
    assert report.text == "Red.", report.error
    assert base64.b64encode(PNG).decode() in json.dumps(bodies[-1])


@pytest.mark.parametrize("kind", ["ollama", "llamacpp", "vllm"])
async def test_an_image_for_a_served_model_without_images_is_an_error_before_the_request(
    kind: str, tmp_path: Path
) -> None:
    model, pages = describe_server(kind, has_vision=False)
    bodies: list[Any] = []
    async with serve_pages(pages, bodies) as url:
        async with open_session(model, url, tmp_path) as session:
            for send in (session.run, session.task):
                with pytest.raises(UsageError, match=f"{model} takes no images") as caught:
                    await send(IMAGE_PROMPT)
                assert "--takes-images" in caught.value.remedy
            assert not bodies
            report = await session.run("Without an image?")
        async with open_session(
            model, url, tmp_path, model_options=ModelOptions(takes_images=True)
        ) as session:
            await session.run(IMAGE_PROMPT)
    assert report.text == "Red.", report.error
    assert base64.b64encode(PNG).decode() in json.dumps(bodies[-1])


@pytest.mark.parametrize("kind", ["ollama", "llamacpp", "vllm"])
async def test_a_placeholder_for_an_image_is_logged_once(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, pages = describe_server(kind, has_vision=None)
    async with serve_pages(pages) as url:
        async with open_session(model, url, tmp_path) as session:
            await session.run(IMAGE_PROMPT)
            report = await session.run(IMAGE_PROMPT)
    assert report.text == "Red.", report.error
    (line,) = [record.getMessage() for record in caplog.records if record.name == "mudroom"]
    assert line.startswith(f"{model}: images are sent as a text")
    assert "--takes-images" in line


def list_endpoints(*parameters: list[str]) -> dict[str, object]:
    endpoints = [{"supported_parameters": each} for each in parameters]
    return {"/v1/models/maker/m/endpoints": {"data": {"endpoints": endpoints}}}


@pytest.mark.parametrize(
    ("pages", "takes_tools"),
    [
        (list_endpoints(["top_p"]), False),
        (list_endpoints(["top_p"], ["tools", "top_p"]), True),
        (list_endpoints(), True),
        ({"/v1/models": {"data": [{"id": "maker/m", "supported_parameters": ["top_p"]}]}}, False),
        ({"/v1/models": {"data": [{"id": "maker/m", "supported_parameters": ["tools"]}]}}, True),
        ({"/v1/models": {"data": [{"id": "maker/other", "supported_parameters": ["x"]}]}}, True),
        ({}, True),
    ],
)
async def test_a_gateway_that_says_what_its_models_take_is_asked_first(
    pages: dict[str, object], takes_tools: bool, tmp_path: Path
) -> None:
    bodies: list[Any] = []
    answer = WireAnswer((TextBlock("Hello."),), "m", "r1", Usage(9, 2), StopReason.END)
    pages = {**pages, "/v1/chat/completions": b"".join(openai_stream(answer))}
    async with serve_pages(pages, bodies) as url:
        environ = {"OPENROUTER_API_KEY": "k", "OPENROUTER_BASE_URL": f"{url}/v1"}
        folders: Any = {"cwd": str(tmp_path), "home": str(tmp_path / "home"), "journal": "memory"}
        async with Session(model="openrouter:maker/m", environ=environ, **folders) as session:
            report = await session.run("Hello.")
    assert bool(bodies) is takes_tools
    if not takes_tools:
        assert "the server says that maker/m takes no tools" in report.error
        assert "Use a model that takes them" in report.error


def open_session(model: str, url: str, folder: Path, **options: Any) -> Session:
    environ = {"OLLAMA_HOST": url, "LLAMACPP_BASE_URL": f"{url}/v1", "VLLM_BASE_URL": f"{url}/v1"}
    home = str(folder / "home")
    folders = {"cwd": str(folder), "home": home, "journal": "memory"}
    return Session(model=model, environ=environ, **folders, **options)


@pytest.mark.parametrize(
    ("abilities", "takes_tools"), [(["completion"], False), (["completion", "tools"], True)]
)
async def test_a_model_without_tools_is_an_error_before_the_request(
    abilities: list[str], takes_tools: bool, tmp_path: Path
) -> None:
    listed = {"models": [{"name": "m:latest"}]}
    shown = {"capabilities": abilities}
    pages = {"/api/tags": listed, "/api/show": shown, "/api/chat": OLLAMA_CHAT}
    bodies: list[Any] = []
    async with serve_pages(pages, bodies) as url:
        async with open_session("ollama:m", url, tmp_path) as session:
            report = await session.run("Hello.")
    assert bool(bodies) is takes_tools
    if not takes_tools:
        assert "the server says that m takes no tools" in report.error
        assert "Use a model that takes them" in report.error
