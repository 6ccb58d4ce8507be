"""The five wires, and how a test reads their bodies and writes their answers."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest
from aiohttp import web
from msgspec import Struct

from mudroom._adapters.models._http import HttpClient, LineParser, SseParser
from mudroom._adapters.models._tool_names import ToolNames
from mudroom._adapters.models._wire import WireConversation, WireModel
from mudroom._adapters.models.anthropic import AnthropicModel
from mudroom._adapters.models.google import GoogleModel
from mudroom._adapters.models.ollama import OllamaModel
from mudroom._adapters.models.openai.chat import OpenAIModel
from mudroom._adapters.models.openai.responses import ResponsesModel
from mudroom._core.messages import (
    AssistantMessage,
    Message,
    StopReason,
    Usage,
    user_message,
)
from mudroom._core.ports import Model, RequestConfig, RetryNotice, StreamChunk
from mudroom._core.tools import Tool, ToolResult
from mudroom.testing.clock import FakeClock
from mudroom.testing.model_server import Fault
from mudroom.testing.wire_formats import (
    WireAnswer,
    anthropic_stream,
    google_stream,
    ollama_stream,
    openai_stream,
    responses_stream,
)

if TYPE_CHECKING:
    # The import takes seconds.
    from pydantic_ai.models import Model as PydanticModel

ADDRESS = "http://127.0.0.1:1"
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}}
Json = dict[str, Any]


class Wire(Struct, frozen=True, kw_only=True):
    """One wire.

    Arguments:
        kind: the adapter.
        model: a model of the wire's own provider that thinks and takes sampling settings.
        messages: the field of a body that holds the conversation.
        write: writes an answer as the server streams it.
        key_header: the header that carries the key "secret".
        stops: what the server calls the end of an answer, and what it means.
        end_with: the events of an answer that ends so.
        errors: events that report an error, with the HTTP status it would have had.
        usage: tokens of an answer, as far as the server counts them.
        seal: signature of thinking that goes back to the server.
        forbids: fields of a body that forbid calls; None if the tools are left out instead.
        arguments_are_text: a call's arguments come as text, which may be no JSON.
    """

    kind: type[WireModel]
    model: str
    messages: str
    write: Callable[[WireAnswer], Iterable[bytes]]
    key_header: tuple[str, str]
    stops: Mapping[str, StopReason]
    end_with: Callable[[str], list[Json]]
    errors: list[tuple[Json, int]]
    forbids: Json | None
    usage: Usage = Usage(100, 9, 64, 0, 4)
    seal: str = "c2VhbA=="
    arguments_are_text: bool = True
    parser: type[SseParser] | type[LineParser] = SseParser

    def make_model(self, model: str = "", **options: Any) -> WireModel:
        options = {"base_url": ADDRESS} | options
        return self.kind(model or self.model, http=HttpClient(clock=FakeClock()), **options)

    def start(self, *messages: Message, config: RequestConfig, **options: Any) -> WireConversation:
        conversation = self.make_model(**options).start_conversation(config)
        for message in messages:
            conversation.append(message)
        return conversation

    def build(
        self,
        *messages: Message,
        config: RequestConfig | None = None,
        tools: bool = True,
        **options: Any,
    ) -> Json:
        """Return the body of a request."""
        conversation = self.start(*messages, config=config or RequestConfig(system=""), **options)
        return json.loads(conversation.build_body(tools=tools))

    def get_messages(self, *messages: Message, **options: Any) -> list[Json]:
        return self.build(*messages, **options)[self.messages]

    def split(self, data: bytes) -> list[bytes]:
        """Return the events of a stream."""
        parser = self.parser()
        return [*parser.feed(data), *parser.flush()]

    def read(self, *events: Json | bytes) -> tuple[AssistantMessage, list[StreamChunk]]:
        reader = self.make_model().make_reader(ToolNames(["read", "self.emitvalue"]))
        chunks: list[StreamChunk] = []
        for event in events:
            chunks += reader.feed(event if isinstance(event, bytes) else json.dumps(event).encode())
        return reader.finish(), chunks

    def read_parts(self, *parts: bytes) -> AssistantMessage:
        """Read a stream that arrives in these parts."""
        parser = self.parser()
        events = [event for part in parts for event in parser.feed(part)]
        return self.read(*events)[0]


def make_tool(name: str, schema: Json = SCHEMA) -> Tool:
    async def run(_context: object, _arguments: object) -> ToolResult:
        return ToolResult("")

    return Tool(name=name, description=f"Does {name}.", parameters=schema, parse=dict, run=run)


async def ask(
    model: Model, *messages: Message, config: RequestConfig | None = None
) -> list[StreamChunk | RetryNotice | AssistantMessage]:
    """Send a conversation; return all parts of the answer."""
    conversation = model.start_conversation(config or RequestConfig(system=""))
    for message in messages or (user_message("Hello."),):
        conversation.append(message)
    return [part async for part in conversation.request_answer()]


def refuse(text: str, status: int = 400) -> Fault:
    return Fault(status=status, body=json.dumps({"error": {"message": text}}).encode())


PYDANTIC_PROVIDERS = {
    "anthropic": ("anthropic", ""),
    "openai": ("openai-chat", "/v1"),
    "openai-responses": ("openai-responses", "/v1"),
    "google": ("google", ""),
}


def make_pydantic_model(wire: str, model: str, url: str) -> PydanticModel:
    """Return the model of pydantic-ai, which sends with the official SDK of the wire."""
    from pydantic_ai.models import infer_model
    from pydantic_ai.providers import infer_provider_class

    name, path = PYDANTIC_PROVIDERS[wire]

    def make_provider(provider: str) -> Any:
        return cast("Any", infer_provider_class(provider))(api_key="k", base_url=url + path)

    return infer_model(f"{name}:{model}", make_provider)


def find_fields(value: object, *names: str) -> list[Any]:
    """Return the values of these fields, at any depth; JSON in a string is decoded."""
    found: list[Any] = []
    if isinstance(value, dict):
        for name, item in cast("Json", value).items():
            if name in names:
                found.append(json.loads(item) if isinstance(item, str) else item)
            else:
                found += find_fields(item, *names)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            found += find_fields(item, *names)
    return found


def find_arguments(messages: object) -> list[Any]:
    """Return the arguments of all calls in a conversation."""
    return find_fields(messages, "input", "arguments", "args")


# --- answers


def _end_anthropic(reason: str) -> list[Json]:
    delta = {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {}}
    message = {"id": "m", "usage": {"input_tokens": 3}}
    return [{"type": "message_start", "message": message}, delta, {"type": "message_stop"}]


def _end_responses(reason: str) -> list[Json]:
    response = {"incomplete_details": {"reason": reason}}
    return [{"type": "response.incomplete", "response": response}]


def _end_google(reason: str) -> list[Json]:
    content = {"role": "model", "parts": [{"text": "a"}]}
    return [{"candidates": [{"content": content, "finishReason": reason}]}]


ANTHROPIC = Wire(
    kind=AnthropicModel,
    model="claude-haiku-4-5",
    messages="messages",
    write=anthropic_stream,
    key_header=("x-api-key", "secret"),
    stops={
        "end_turn": StopReason.END,
        "stop_sequence": StopReason.END,
        "max_tokens": StopReason.LENGTH,
        "refusal": StopReason.REFUSAL,
        "pause_turn": StopReason.OTHER,
        "new_reason": StopReason.OTHER,
    },
    end_with=_end_anthropic,
    forbids={"tool_choice": {"type": "none"}},
    usage=Usage(1000, 50, 700, 200),
    errors=[
        ({"type": "error", "error": {"type": kind, "message": "slow down"}}, status)
        for kind, status in {
            "invalid_request_error": 400,
            "authentication_error": 401,
            "billing_error": 402,
            "permission_error": 403,
            "not_found_error": 404,
            "request_too_large": 413,
            "rate_limit_error": 429,
            "timeout_error": 504,
            "overloaded_error": 529,
        }.items()
    ],
)
OPENAI = Wire(
    kind=OpenAIModel,
    model="m",
    messages="messages",
    write=openai_stream,
    key_header=("Authorization", "Bearer secret"),
    stops={
        "length": StopReason.LENGTH,
        "content_filter": StopReason.REFUSAL,
        "eos": StopReason.END,
        "COMPLETE": StopReason.END,
        "something_new": StopReason.OTHER,
        "stop": StopReason.END,
    },
    end_with=lambda reason: [
        {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": reason}]}
    ],
    errors=[
        ({"error": {"code": 502, "message": "slow down"}}, 502),
        ({"error": {"code": "429", "message": "slow down"}}, 429),
        ({"error": {"code": "rate_limit_exceeded", "message": "slow down"}}, 429),
        ({"error": {"code": None, "type": "invalid_request_error", "message": "slow down"}}, 400),
        ({"error": {"type": "server_error", "message": "slow down"}}, 500),
        ({"error": "slow down"}, 500),
    ],
    forbids={"tool_choice": "none"},
    seal="reasoning_content",
)
RESPONSES = Wire(
    kind=ResponsesModel,
    model="gpt-5",
    messages="input",
    write=responses_stream,
    key_header=("Authorization", "Bearer secret"),
    stops={
        "max_output_tokens": StopReason.LENGTH,
        "content_filter": StopReason.REFUSAL,
        "something_new": StopReason.OTHER,
    },
    end_with=_end_responses,
    forbids={"tool_choice": "none"},
    errors=[
        ({"type": "error", "error": {"code": "insufficient_quota", "message": "slow down"}}, 429),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow down"}, 429),
        (
            {
                "type": "response.failed",
                "response": {"error": {"code": "server_error", "message": "slow down"}},
            },
            500,
        ),
    ],
)
GOOGLE = Wire(
    kind=GoogleModel,
    model="gemini-2.5-flash",
    messages="contents",
    write=google_stream,
    key_header=("x-goog-api-key", "secret"),
    stops={
        "MAX_TOKENS": StopReason.LENGTH,
        "SAFETY": StopReason.REFUSAL,
        "OTHER": StopReason.OTHER,
        "STOP": StopReason.END,
    },
    end_with=_end_google,
    forbids={"toolConfig": {"functionCallingConfig": {"mode": "NONE"}}},
    errors=[
        ({"error": {"code": 503, "message": "slow down", "status": "UNAVAILABLE"}}, 503),
    ],
    arguments_are_text=False,
)
OLLAMA = Wire(
    kind=OllamaModel,
    model="qwen3:8b",
    messages="messages",
    write=ollama_stream,
    key_header=("Authorization", "Bearer secret"),
    stops={"stop": StopReason.END, "length": StopReason.LENGTH, "load": StopReason.OTHER},
    end_with=lambda reason: [
        {"model": "qwen3:8b", "message": {"content": "a"}, "done": True, "done_reason": reason}
    ],
    errors=[({"error": "slow down"}, 500)],
    forbids=None,
    usage=Usage(26, 8),
    arguments_are_text=False,
    parser=LineParser,
)
WIRES = (ANTHROPIC, OPENAI, RESPONSES, GOOGLE, OLLAMA)


def get_name(wire: Wire) -> str:
    return wire.kind.WIRE


def pair_up(wires: Sequence[Wire], *texts: str) -> list[Any]:
    """Return each wire with one of the texts, and each text with one of the wires."""
    count = max(len(wires), len(texts))
    pairs = [(wires[at % len(wires)], texts[at % len(texts)]) for at in range(count)]
    return [pytest.param(*pair, id=f"{get_name(pair[0])}-{pair[1][:30]}") for pair in pairs]


@asynccontextmanager
async def serve_pages(
    pages: Mapping[str, object], bodies: list[Any] | None = None
) -> AsyncGenerator[str]:
    """Serve JSON values and streams (bytes) by path; yield the URL.

    Arguments:
        pages: a list has the answers of a path in their order.
        bodies: the JSON bodies of requests to `/chat` and `/completions` are added here.
    """

    async def answer(request: web.BaseRequest) -> web.Response:
        if bodies is not None and request.path.endswith(("/chat", "/completions")):
            bodies.append(json.loads(await request.read()))
        page = pages.get(request.path)
        if isinstance(page, list):
            page = cast("list[object]", page).pop(0)
        if page is None:
            return web.Response(status=404)
        if isinstance(page, bytes):
            is_stream = page.startswith(b"data:")
            kind = "text/event-stream" if is_stream else "application/x-ndjson"
            return web.Response(body=page, content_type=kind)
        return web.json_response(page)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def make_environ(url: str) -> dict[str, str]:
    """Return variables by which the providers of all wires are one server."""
    paths = {"ANTHROPIC": "", "OPENAI": "/v1", "GEMINI": "/v1beta", "MISTRAL": "/v1"}
    keys = {f"{name}_API_KEY": "k" for name in paths}
    return keys | {f"{name}_BASE_URL": f"{url}{path}" for name, path in paths.items()}
