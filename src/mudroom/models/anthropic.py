"""Anthropic Messages: the wire of Claude, and of every server that speaks it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from .._core.messages import (
    AssistantMessage,
    Message,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
    UserMessage,
)
from .._core.ports import RequestConfig, RetryNotice, StreamChunk
from .._core.tools import Tool
from ..errors import ModelGarbled
from ._http import HttpClient, StreamCut, StreamError
from ._json import clean, encode, make_decoder, parse_arguments
from ._request_prefix import PrefixCache
from ._tool_names import ILLEGAL_CHARACTERS, ToolNames

WIRE = "anthropic"
BASE_URL = "https://api.anthropic.com"
_VERSION = "2023-06-01"
"""The later version of the API differs for us only in refusing sampling for older models too; compatible servers know this one."""
_MARK = {"cache_control": {"type": "ephemeral"}}
_MARK_BYTES = b',"cache_control":{"type":"ephemeral"}'


class AnthropicModel:
    """A model behind the Messages API.

    Arguments:
        model: the name the server knows it by. http: connections and gate of this provider.
        key: sent as `x-api-key`; auth_token: sent as bearer token. base_url: everything before `/v1/messages`.
        headers: sent beside our own. name: the model string; "anthropic:MODEL" by default.
    """

    def __init__(
        self,
        model: str,
        *,
        http: HttpClient,
        key: str = "",
        auth_token: str = "",
        base_url: str = BASE_URL,
        headers: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> None:
        self.model, self.http, self.name = model, http, name or f"anthropic:{model}"
        self.url = base_url.rstrip("/").removesuffix("/v1") + "/v1/messages"
        own = {"Content-Type": "application/json", "anthropic-version": _VERSION}
        own |= ({"x-api-key": key} if key else {}) | (
            {"Authorization": f"Bearer {auth_token}"} if auth_token else {}
        )
        self.headers = {**own, **(headers or {})}
        self.prefixes = PrefixCache(lambda setup, names: _head(model, setup, names))

    def start_conversation(self, setup: RequestConfig) -> AnthropicConversation:
        """Begin a conversation; costs no request."""
        return AnthropicConversation(self, setup)

    async def close(self) -> None:
        """Let go of connections."""
        await self.http.close()


class AnthropicConversation:
    """One conversation: a head that never changes, the messages' bytes, each encoded once, and the last one with a cache mark."""

    def __init__(self, model: AnthropicModel, setup: RequestConfig) -> None:
        self._model, self._head = model, model.prefixes.get(setup)
        self._kept = bytearray()
        self._last, self._marked = b"", False

    def append(self, message: Message) -> None:
        """Append a message; one in which nothing may be sent is passed over."""
        blocks = (
            _from_user(message)
            if isinstance(message, UserMessage)
            else _from_assistant(message, self._head.names)
        )
        if not blocks:
            return
        if self._last:
            self._kept += self._last + b","
        role = b"user" if isinstance(message, UserMessage) else b"assistant"
        self._last = b'{"role":"%b","content":%b}' % (role, encode(blocks))
        self._marked = blocks[-1]["type"] not in _UNMARKED

    def request_answer(
        self, *, tools: bool = True
    ) -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
        """Ask for the next answer. Raises ModelError."""
        model, names = self._model, self._head.names
        return model.http.stream_answer(
            model.url,
            model.headers,
            self.build_body(tools=tools),
            lambda: AnthropicReader(model.model, names),
        )

    def build_body(self, *, tools: bool = True) -> bytes:
        """The request as it is sent."""
        tail = b"]}" if tools or not self._head.has_tools else b'],"tool_choice":{"type":"none"}}'
        last = memoryview(self._last)
        marked = (last[:-3], _MARK_BYTES, last[-3:]) if self._marked else (last,)
        return b"".join((self._head.data, self._kept, *marked, tail))


_UNMARKED = frozenset({"thinking", "redacted_thinking"})


def _head(model: str, setup: RequestConfig, names: ToolNames) -> bytes:
    fields: dict[str, Any] = {
        "model": model,
        "max_tokens": setup.max_tokens or _most_tokens(model),
        "stream": True,
    }
    fields |= _sampling(model, setup)
    if tools := [_declare(tool, names) for tool in setup.tools]:
        tools[-1] |= _MARK
        fields["tools"] = tools
    if (system := clean(setup.system)).strip():
        fields["system"] = [{"type": "text", "text": system, **_MARK}]
    return encode(fields)[:-1] + b',"messages":['


def _declare(tool: Tool, names: ToolNames) -> dict[str, Any]:
    return {
        "name": names.to_wire(tool.name),
        "description": tool.description,
        "input_schema": tool.parameters,
    }


def _version(model: str) -> tuple[int, int]:
    """Which Claude it is; (0, 0) for another model."""
    found = re.search(r"claude-(?:[a-z]+-)?(\d{1,2})(?:-(\d{1,2}))?(?!\d)", model)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def _sampling(model: str, setup: RequestConfig) -> dict[str, float]:
    """What of the sampling this model accepts: from Claude 4.7 on nothing, since 4 one of the two, all before and elsewhere."""
    version = _version(model)
    asked = {"temperature": setup.temperature, "top_p": setup.top_p}
    given = {name: value for name, value in asked.items() if value is not None}
    if version >= (4, 7):
        return {}
    if len(given) == 2 and version >= (4, 0):
        del given["top_p"]
    return given


_LIMITS = {
    (4, 6): 64_000,
    (4, 5): 32_000,
    (4, 0): 16_000,
    (3, 5): 8_192,
    (3, 0): 4_096,
    (0, 0): 8_192,
}


def _most_tokens(model: str) -> int:
    """How long an answer may be when nobody says: half of what the model can at most, less where the prompt must fit beside it."""
    version = _version(model)
    return next(most for since, most in _LIMITS.items() if version >= since)


def _from_user(message: UserMessage) -> list[dict[str, Any]]:
    """Results first, as the API wants them; then the words."""
    results = [_result(block) for block in message.content if isinstance(block, ToolResultBlock)]
    return results + [
        _text(text)
        for block in message.content
        if isinstance(block, TextBlock) and (text := clean(block.text)).strip()
    ]


def _from_assistant(message: AssistantMessage, names: ToolNames) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for block in message.content:
        match block:
            case TextBlock():
                blocks += [_text(text)] if (text := clean(block.text)).strip() else []
            case ToolCallBlock():
                given = {"INVALID_JSON": block.malformed} if block.malformed else block.arguments
                blocks.append(
                    {
                        "type": "tool_use",
                        "id": _id(block.id),
                        "name": names.to_wire(block.name),
                        "input": given,
                    }
                )
            case ThinkingBlock() if message.wire != WIRE:
                pass
            case ThinkingBlock() if block.redacted:
                blocks.append({"type": "redacted_thinking", "data": block.redacted})
            case ThinkingBlock():
                blocks.append(
                    {"type": "thinking", "thinking": block.text, "signature": block.signature}
                )
    return blocks


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _result(result: ToolResultBlock) -> dict[str, Any]:
    wired: dict[str, Any] = {"type": "tool_result", "tool_use_id": _id(result.call_id)}
    if (text := clean(result.text)).strip():
        wired["content"] = text
    return wired | {"is_error": True} if result.error else wired


def _id(call_id: str) -> str:
    return ILLEGAL_CHARACTERS.sub("_", call_id)


class _Counts(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: dict[str, Any] | None = None


_COUNTED = _Counts.__struct_fields__[:4]


class _Envelope(Struct):
    id: str = ""
    model: str = ""
    usage: _Counts | None = None


class _Block(Struct):
    type: str = ""
    id: str = ""
    name: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    input: dict[str, Any] = {}


class _Change(Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Trouble(Struct):
    type: str = ""
    message: str = ""


class _Event(Struct):
    """All events in one: which fields are there depends on `type`. Unknown types and fields are passed over."""

    type: str = ""
    index: int = 0
    message: _Envelope | None = None
    content_block: _Block | None = None
    delta: _Change | None = None
    usage: _Counts | None = None
    error: _Trouble | None = None


_decode = make_decoder(_Event)
_STOPS = {
    "end_turn": StopReason.END,
    "stop_sequence": StopReason.END,
    "tool_use": StopReason.CALLS,
    "max_tokens": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
    "refusal": StopReason.REFUSAL,
}
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class _Growing:
    """A block while it arrives. The kinds of a provider's own tools are kept out of the message."""

    def __init__(self, block: _Block) -> None:
        self.start, self.pieces, self.signature = (
            block,
            [block.text or block.thinking],
            block.signature,
        )

    def grow(self, delta: _Change) -> StreamChunk | None:
        """Take a delta; the piece to show, if there is one."""
        match delta.type:
            case "text_delta":
                piece = StreamChunk("text", delta.text)
            case "thinking_delta":
                piece = StreamChunk("thinking", delta.thinking)
            case "input_json_delta":
                piece = StreamChunk("call", delta.partial_json)
            case _:
                self.signature += delta.signature
                return None
        self.pieces.append(piece.text)
        return piece if piece.text else None

    def whole(self, names: ToolNames) -> TextBlock | ThinkingBlock | ToolCallBlock | None:
        """The block, now that it is whole."""
        text, start = "".join(self.pieces), self.start
        match start.type:
            case "text":
                return TextBlock(clean(text)) if text else None
            case "thinking":
                return ThinkingBlock(clean(text), self.signature)
            case "redacted_thinking":
                return ThinkingBlock("", redacted=start.data)
            case "tool_use":
                given, malformed = parse_arguments(text) if text else (start.input, "")
                return ToolCallBlock(start.id, names.from_wire(start.name), given, malformed)
            case _:
                return None


class AnthropicReader:
    """Reads one streamed Messages answer; it is whole when `message_stop` has come."""

    def __init__(self, model: str, names: ToolNames) -> None:
        self._model, self._names = model, names
        self._envelope: _Envelope | None = None
        self._blocks: dict[int, _Growing] = {}
        self._usage: dict[str, int] = {}
        self._stop: str | None = None
        self._events = 0
        self.is_done = False

    def feed(self, data: bytes) -> Sequence[StreamChunk]:
        """Take one event."""
        if self.is_done:
            return ()
        event = _decode(data)
        self._events += 1
        if event.type == "content_block_delta":
            growing = self._blocks.get(event.index)
            piece = (
                growing.grow(event.delta)
                if growing is not None and event.delta is not None
                else None
            )
            return (piece,) if piece is not None else ()
        return self._frame(event)

    def finish(self) -> AssistantMessage:
        """The whole message. Raises Cut, ModelGarbled."""
        if self._events and self._envelope is None:
            raise ModelGarbled("no event of a Messages stream came")
        if self._envelope is None or not self.is_done:
            raise StreamCut
        blocks = (self._blocks[index].whole(self._names) for index in sorted(self._blocks))
        content = _distinct([block for block in blocks if block is not None])
        stop = _STOPS.get(self._stop or "end_turn", StopReason.OTHER)
        if stop is StopReason.END and any(isinstance(block, ToolCallBlock) for block in content):
            stop = StopReason.CALLS
        return AssistantMessage(
            content,
            stop,
            _usage(self._usage),
            self._envelope.model or self._model,
            WIRE,
            self._envelope.id,
        )

    def _frame(self, event: _Event) -> Sequence[StreamChunk]:
        match event.type:
            case "message_start" if event.message is not None and self._envelope is None:
                self._envelope = event.message
                self._count(event.message.usage)
            case "message_start":
                raise ModelGarbled("two messages in one stream")
            case "content_block_start" if event.content_block is not None:
                self._blocks[event.index] = _Growing(event.content_block)
                return (
                    (StreamChunk("text", event.content_block.text),)
                    if event.content_block.text
                    else ()
                )
            case "message_delta":
                self._stop = event.delta.stop_reason if event.delta is not None else None
                self._count(event.usage)
            case "message_stop":
                self.is_done = True
            case "error":
                error = event.error or _Trouble()
                raise StreamError(_STATUS.get(error.type, 500), error.message or error.type)
            case _:
                pass
        return ()

    def _count(self, counts: _Counts | None) -> None:
        """Take figures as they stand: each event reports totals, and may leave some out."""
        if counts is not None:
            *figures, details = astuple(counts)
            self._usage.update(
                [(name, n) for name, n in zip(_COUNTED, figures, strict=True) if n is not None]
            )
            if details and (thought := details.get("thinking_tokens")) is not None:
                self._usage["thinking"] = thought


def _distinct(
    blocks: list[TextBlock | ThinkingBlock | ToolCallBlock],
) -> tuple[TextBlock | ThinkingBlock | ToolCallBlock, ...]:
    """The blocks with an id of its own for each call."""
    seen: set[str] = set()
    for at, block in enumerate(blocks):
        if isinstance(block, ToolCallBlock):
            if not block.id or block.id in seen:
                block = blocks[at] = ToolCallBlock(
                    f"{block.id or 'call'}_{at}", block.name, block.arguments, block.malformed
                )
            seen.add(block.id)
    return tuple(blocks)


def _usage(counts: Mapping[str, int]) -> Usage:
    read, written = (
        counts.get("cache_read_input_tokens", 0),
        counts.get("cache_creation_input_tokens", 0),
    )
    prompt = counts.get("input_tokens", 0) + read + written
    return Usage(prompt, counts.get("output_tokens", 0), read, written, counts.get("thinking", 0))
