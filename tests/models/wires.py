"""The five wires, and how a test reads their bodies and writes their answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

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
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
)
from mudroom._core.ports import RequestConfig, StreamChunk
from mudroom._core.tools import Tool, ToolResult
from mudroom.testing.clock import FakeClock
from mudroom.testing.wire_formats import (
    WireAnswer,
    anthropic_stream,
    google_stream,
    openai_stream,
    responses_stream,
)

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


def write_ollama(answer: WireAnswer) -> Iterator[bytes]:
    """Yield an answer of Ollama's own API, one line an event."""
    for block in answer.blocks:
        match block:
            case TextBlock():
                fields = [{"content": text} for text in _cut(block.text)]
            case ThinkingBlock():
                fields = [{"thinking": text} for text in _cut(block.text)]
            case ToolCallBlock():
                function = {"name": block.name, "arguments": block.arguments}
                fields = [{"tool_calls": [{"id": block.id, "function": function}]}]
        for each in fields:
            message = {"role": "assistant", "content": ""} | each
            yield _line({"model": answer.model, "message": message, "done": False})
    counts = {
        "prompt_eval_count": answer.usage.input_tokens,
        "eval_count": answer.usage.output_tokens,
    }
    reason = "length" if answer.stop_reason is StopReason.LENGTH else "stop"
    yield _line({"model": answer.model, "done": True, "done_reason": reason, **counts})


def _cut(text: str) -> list[str]:
    return [text[at : at + 24] for at in range(0, len(text), 24)]


def _line(value: Json) -> bytes:
    return json.dumps(value).encode() + b"\n"


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
    errors=[
        ({"error": {"code": 503, "message": "slow down", "status": "UNAVAILABLE"}}, 503),
    ],
    arguments_are_text=False,
)
OLLAMA = Wire(
    kind=OllamaModel,
    model="qwen3:8b",
    messages="messages",
    write=write_ollama,
    key_header=("Authorization", "Bearer secret"),
    stops={"stop": StopReason.END, "length": StopReason.LENGTH, "load": StopReason.OTHER},
    end_with=lambda reason: [
        {"model": "qwen3:8b", "message": {"content": "a"}, "done": True, "done_reason": reason}
    ],
    errors=[({"error": "slow down"}, 500)],
    usage=Usage(26, 8),
    arguments_are_text=False,
    parser=LineParser,
)
WIRES = (ANTHROPIC, OPENAI, RESPONSES, GOOGLE, OLLAMA)
