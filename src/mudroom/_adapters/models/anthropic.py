"""Anthropic Messages: the wire of Claude and all servers that speak its protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple, replace

from ..._core.messages import (
    AssistantBlock,
    AssistantMessage,
    ImageBlock,
    Message,
    ProviderBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
    UserMessage,
    get_sendable_arguments,
)
from ..._core.ports import RequestConfig, RetryNotice, StreamChunk
from ..._core.tools import Tool
from ..._projections.web_searches import FOUND, read_anthropic_step
from ...errors import ModelGarbled
from ._cache_marks import MarkedConversation, get_cache_mark
from ._http import CONTEXT_FULL, WINDOW_IS_FULL, StreamCut, StreamError, make_stream_error
from ._json import clean, encode, make_decoder, parse_arguments, read_arguments
from ._tool_names import ILLEGAL_CHARACTERS, ToolNames
from ._wire import WireModel, describe_stop, get_sampling

WIRE = "anthropic"


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: dict[str, Any] | None = None
    server_tool_use: dict[str, Any] | None = None
    cache_creation: dict[str, Any] | None = None


_COUNT_NAMES = _Usage.__struct_fields__[:4]


class _MessageStart(Struct):
    id: str = ""
    model: str = ""
    usage: _Usage | None = None


class _BlockStart(Struct):
    type: str = ""
    id: str = ""
    name: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    input: Raw = Raw()


class _Delta(Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    citation: dict[str, Any] | None = None
    stop_reason: str | None = None


class _Event(Struct):
    """All events in one struct, which decodes quickly; `type` determines which fields are set."""

    type: str = ""
    index: int | None = None
    message: _MessageStart | None = None
    content_block: _BlockStart | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: Any = None


class _RawEvent(Struct):
    content_block: dict[str, Any]


_decode = make_decoder(_Event)
_decode_raw = make_decoder(_RawEvent)
_STOP_REASONS = {
    "end_turn": StopReason.END,
    "stop_sequence": StopReason.END,
    "tool_use": StopReason.CALLS,
    "max_tokens": StopReason.LENGTH,
    "refusal": StopReason.REFUSAL,
}


class _PartialBlock:
    """A block being received; `raw` is the whole start of a web search, else empty."""

    def __init__(self, start: _BlockStart, raw: dict[str, Any]) -> None:
        self._start = start
        self._raw = raw
        self._citations: list[dict[str, Any]] = []
        self._texts = [start.text or start.thinking]
        self._signature = start.signature

    def add(self, delta: _Delta) -> StreamChunk | None:
        match delta.type:
            case "text_delta":
                chunk = StreamChunk("text", delta.text)
            case "thinking_delta":
                chunk = StreamChunk("thinking", delta.thinking)
            case "input_json_delta":
                chunk = StreamChunk("call", delta.partial_json)
            case "citations_delta" if delta.citation:
                self._citations.append(delta.citation)
                return None
            case _:
                self._signature += delta.signature
                return None
        self._texts.append(chunk.text)
        return chunk if chunk.text else None

    def finish(self, names: ToolNames, previous: AssistantBlock | None) -> AssistantBlock | None:
        text = "".join(self._texts)
        start = self._start
        match start.type:
            case "text":
                # A text with citations arrives in several blocks. The citations are kept in the
                # signature, because the API wants them back.
                citations = encode(self._citations).decode() if self._citations else ""
                is_continuation = isinstance(previous, TextBlock)
                return TextBlock(clean(text), citations, is_continuation) if text else None
            case "thinking":
                return ThinkingBlock(clean(text), self._signature)
            case "redacted_thinking":
                return ThinkingBlock("", redacted=start.data)
            case "tool_use":
                arguments, malformed = parse_arguments(text or read_arguments(start.input))
                return ToolCallBlock(start.id, names.from_wire(start.name), arguments, malformed)
            case _:
                return self.finish_search()

    def finish_search(self) -> ProviderBlock | None:
        """Make the block of a web search or its result; None for any other block."""
        raw = self._raw
        if not raw:
            return None
        arguments = "".join(self._texts)
        return read_anthropic_step(
            raw | {"input": parse_arguments(arguments)[0]} if arguments else raw
        )


class AnthropicReader:
    """Reads a streamed Messages answer, which is complete after `message_stop`."""

    def __init__(self, model: str, names: ToolNames, wire: str = WIRE) -> None:
        self._model = model
        self._names = names
        self._wire = wire
        self._start: _MessageStart | None = None
        self._blocks: dict[int, _PartialBlock] = {}
        self._counts: dict[str, int] = {}
        self._stop: str | None = None
        self._has_events = False
        self._search = ""
        self.is_done = False

    def feed(self, data: bytes) -> Sequence[StreamChunk]:
        if self.is_done:
            return ()
        event = _decode(data)
        self._has_events = True
        if event.type != "content_block_delta":
            return self._read_frame(event, data)
        index = next(reversed(self._blocks), 0) if event.index is None else event.index
        block = self._blocks.get(index)
        if block is None or event.delta is None:
            return ()
        chunk = block.add(event.delta)
        return () if chunk is None else (chunk,)

    def finish(self) -> AssistantMessage:
        if self._has_events and self._start is None:
            raise ModelGarbled("no event of a Messages stream arrived")
        if self._start is None or not self.is_done:
            raise StreamCut
        blocks: list[AssistantBlock] = []
        for index in sorted(self._blocks):
            previous = blocks[-1] if blocks else None
            block = self._blocks[index].finish(self._names, previous)
            blocks += [block] if block is not None else []
        content = _ensure_unique_ids(blocks)
        return AssistantMessage(
            content,
            usage=_to_usage(self._counts),
            model=self._start.model or self._model,
            wire=self._wire,
            id=self._start.id,
            **describe_stop(self._stop or "end_turn", _STOP_REASONS, content),
        )

    def _read_search(self, start: _BlockStart, data: bytes) -> dict[str, Any]:
        """Decode the complete start of a web search block; {} for any other block."""
        is_call = start.type == "server_tool_use" and start.name == "web_search"
        is_search = is_call or start.type == "web_search_tool_result"
        return _decode_raw(data).content_block if is_search else {}

    def _read_frame(self, event: _Event, data: bytes) -> Sequence[StreamChunk]:
        match event.type:
            case "content_block_start" if event.content_block is not None:
                index = len(self._blocks) if event.index is None else event.index
                raw = self._read_search(event.content_block, data)
                self._blocks[index] = _PartialBlock(event.content_block, raw)
                if event.content_block.text:
                    return (StreamChunk("text", event.content_block.text),)
                return self._announce_search(index, is_start=False)
            case "content_block_stop" if event.index is not None:
                return self._announce_search(event.index, is_start=True)
            case "message_start" if event.message is not None and self._start is None:
                self._start = event.message
                self._add_counts(event.message.usage)
            case "message_start":
                raise ModelGarbled("two messages in one stream")
            case "message_delta":
                self._stop = event.delta.stop_reason if event.delta is not None else None
                self._add_counts(event.usage)
                if self._stop in CONTEXT_FULL:
                    raise StreamError(400, f"{WINDOW_IS_FULL} ({self._stop})")
            case "message_stop":
                self.is_done = True
            case "error":
                raise make_stream_error(event.error)
            case _:
                pass
        return ()

    def _announce_search(self, index: int, *, is_start: bool) -> Sequence[StreamChunk]:
        """Announce a search once its query is complete, and again when its result arrives."""
        block = self._blocks.get(index)
        search = block.finish_search() if block else None
        if search is None or (search.kind == "server_tool_use") is not is_start:
            return ()
        if is_start:
            self._search = search.text
            return (StreamChunk("search_start", search.text.replace("searched", "searching", 1)),)
        is_success = search.text.startswith(FOUND)
        return (StreamChunk("search_end", self._search if is_success else search.text),)

    def _add_counts(self, usage: _Usage | None) -> None:
        """Replace the counts that are set: each event reports totals and may leave some out."""
        if usage is None:
            return
        *counts, details, searched, writes = astuple(usage)
        for name, count in zip(_COUNT_NAMES, counts, strict=True):
            if count is not None:
                self._counts[name] = count
        if details and (thinking := details.get("thinking_tokens")) is not None:
            self._counts["thinking"] = thinking
        if searched and (searches := searched.get("web_search_requests")) is not None:
            self._counts["searches"] = searches
        if writes and (tokens := writes.get("ephemeral_1h_input_tokens")) is not None:
            self._counts["hour"] = tokens


def _ensure_unique_ids(
    blocks: list[AssistantBlock],
) -> tuple[AssistantBlock, ...]:
    # Some compatible servers send no ids, or the same one twice; results are matched to calls by
    # id.
    used: set[str] = set()
    result: list[AssistantBlock] = []
    for position, block in enumerate(blocks):
        if isinstance(block, ToolCallBlock):
            if not block.id or block.id in used:
                call_id = f"{block.id or 'call'}_{position}"
                block = ToolCallBlock(call_id, block.name, block.arguments, block.malformed)
            used.add(block.id)
        result.append(block)
    return tuple(result)


def _to_usage(counts: Mapping[str, int]) -> Usage:
    cache_read = counts.get("cache_read_input_tokens", 0)
    cache_written = counts.get("cache_creation_input_tokens", 0)
    return Usage(
        input_tokens=counts.get("input_tokens", 0) + cache_read + cache_written,
        output_tokens=counts.get("output_tokens", 0),
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_written,
        reasoning_tokens=counts.get("thinking", 0),
        searches=counts.get("searches", 0),
        cache_hour_tokens=counts.get("hour", 0),
    )


# The version that compatible servers accept. Later versions also refuse sampling parameters for
# older models.
_API_VERSION = "2023-06-01"
_PAUSE = "pause_turn"
_MAX_PAUSES = 8  # how often an answer is continued


class AnthropicModel(WireModel):
    WIRE = WIRE
    BASE_URL = "https://api.anthropic.com"
    TOOLS_OFF = b'"tool_choice":{"type":"none"}'
    # Later versions of the tool also run code, and few models have them.
    PROVIDER_TOOLS = MappingProxyType(
        {"web_search": {"type": "web_search_20250305", "name": "web_search"}}
    )

    def build_url(self, base_url: str) -> str:
        # A base URL may or may not end in /v1.
        return base_url.removesuffix("/v1") + "/v1/messages"

    def build_auth_headers(self, key: str) -> dict[str, str]:
        headers = {"anthropic-version": _API_VERSION}
        return headers | ({"x-api-key": key} if key else {})

    def make_conversation(self, config: RequestConfig) -> AnthropicConversation:
        return AnthropicConversation(self, config)

    def encode_prefix(self, config: RequestConfig, names: ToolNames) -> bytes:
        fields: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self.facts.choose_max_tokens(config.max_tokens),
            "stream": True,
            **get_sampling(config, self.facts),
        }
        if effort := self.get_effort(config):
            fields["output_config"] = {"effort": effort}
        mark = get_cache_mark(self.facts)
        tools = [_encode_tool(tool, names) for tool in config.tools]
        tools += self.encode_provider_tools(config)
        if tools:
            tools[-1] |= mark
            fields["tools"] = tools
        system = clean(config.system)
        if system.strip():
            fields["system"] = [{**_encode_text(system), **mark}]
        return encode(fields)[:-1] + b',"messages":['

    def encode_message(self, message: Message, names: ToolNames) -> list[dict[str, Any]]:
        if isinstance(message, UserMessage):
            role = "user"
            blocks = _encode_user_message(message)
        else:
            role = "assistant"
            blocks = _encode_assistant_message(message, names, self.wire)
        return [{"role": role, "content": blocks}] if blocks else []

    def make_reader(self, names: ToolNames) -> AnthropicReader:
        return AnthropicReader(self.model, names, self.wire)


class AnthropicConversation(MarkedConversation):
    _paused: AssistantMessage | None = None
    _paused_at = 0
    _pauses = 0
    _ends_before_pause = (0, 0)

    def append(self, message: Message) -> None:
        self._forget_pause()
        super().append(message)

    def request_answer(
        self, *, tools: bool = True, max_tokens: int | None = None
    ) -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
        self._forget_pause()
        return super().request_answer(tools=tools, max_tokens=max_tokens)

    def _check_answer(self, answer: AssistantMessage) -> AssistantMessage | None:
        pauses = self._pauses
        if before := self._paused:
            content = (*before.content, *answer.content)
            answer = replace(answer, content=content, usage=before.usage + answer.usage)
            self._forget_pause()
        if answer.provider_stop_reason != _PAUSE or pauses >= _MAX_PAUSES:
            return super()._check_answer(answer)
        ends = (self._last_end, self._answered_end)
        self._paused_at = len(self._messages)
        names = self._prefix.names
        blocks = _encode_assistant_message(answer, names, self._model.wire, is_paused=True)
        if not blocks:
            return super()._check_answer(answer)
        self.append_entry({"role": "assistant", "content": blocks})
        self._paused = answer
        self._pauses = pauses + 1
        self._ends_before_pause = ends
        return None

    def _remove_refused(self, refusal: str) -> str:
        # The API wants the paused part of an answer back unchanged.
        return "" if self._paused else super()._remove_refused(refusal)

    def _forget_pause(self) -> None:
        """Remove the sent part of a paused answer, because the whole answer will be appended."""
        if self._paused:
            del self._messages[self._paused_at :]
            self._last_end, self._answered_end = self._ends_before_pause
            self._paused = None
            self._pauses = 0


def _encode_tool(tool: Tool, names: ToolNames) -> dict[str, Any]:
    return {
        "name": names.to_wire(tool.name),
        "description": tool.description,
        "input_schema": tool.parameters,
    }


def _encode_user_message(message: UserMessage) -> list[dict[str, Any]]:
    """Encode a user message; the API wants tool results before all other blocks."""
    results: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            results.append(_encode_result(block))
        elif isinstance(block, ImageBlock):
            others.append(_encode_image(block))
        elif (text := clean(block.text)).strip():
            others.append(_encode_text(text))
    return results + others


def _encode_assistant_message(
    message: AssistantMessage, names: ToolNames, wire: str, *, is_paused: bool = False
) -> list[dict[str, Any]]:
    """Encode an answer without other servers' thinking and searches.

    The API continues a paused answer, with the search that has no result yet.
    """
    is_own = message.wire == wire
    searches = _decode_searches(message, with_open=is_paused) if is_own else {}
    blocks: list[dict[str, Any]] = []
    for block in message.content:
        match block:
            case TextBlock():
                text = clean(block.text)
                if text.strip():
                    citations = block.signature if searches else ""
                    blocks.append(_encode_text(text) | _encode_citations(citations))
            case ProviderBlock():
                if search := searches.get(block):
                    blocks.append(search)
            case ToolCallBlock():
                blocks.append(_encode_tool_call(block, names))
            case ThinkingBlock() if is_own:
                blocks.append(_encode_thinking(block))
            case ThinkingBlock():
                pass
    return blocks


def _encode_citations(citations: str) -> dict[str, Any]:
    return {"citations": msgspec.Raw(citations.encode())} if citations else {}


def _decode_searches(
    message: AssistantMessage, *, with_open: bool
) -> dict[ProviderBlock, dict[str, Any]]:
    # An interrupted search has no result, so the API takes it back only to continue it.
    blocks: dict[ProviderBlock, dict[str, Any]] = {
        block: msgspec.json.decode(block.data)
        for block in message.content
        if isinstance(block, ProviderBlock)
    }
    if with_open or not blocks:
        return blocks
    ids = Counter(block.get("tool_use_id") or block.get("id") for block in blocks.values())
    return {
        block: data
        for block, data in blocks.items()
        if ids[data.get("tool_use_id") or data.get("id")] == 2
    }


def _encode_tool_call(call: ToolCallBlock, names: ToolNames) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": _encode_id(call.id),
        "name": names.to_wire(call.name),
        "input": get_sendable_arguments(call),
    }


def _encode_thinking(block: ThinkingBlock) -> dict[str, Any]:
    if block.redacted:
        return {"type": "redacted_thinking", "data": block.redacted}
    return {"type": "thinking", "thinking": block.text, "signature": block.signature}


def _encode_text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _encode_result(result: ToolResultBlock) -> dict[str, Any]:
    encoded: dict[str, Any] = {"type": "tool_result", "tool_use_id": _encode_id(result.call_id)}
    text = clean(result.text)
    # The API accepts only text in the result of a failed call.
    if result.images and not result.error:
        blocks = [_encode_text(text)] if text.strip() else []
        encoded["content"] = blocks + [_encode_image(image) for image in result.images]
    elif text.strip():
        encoded["content"] = text
    if result.error:
        encoded["is_error"] = True
    return encoded


def _encode_image(image: ImageBlock) -> dict[str, Any]:
    # The JSON encoder writes bytes as base64.
    source = {"type": "base64", "media_type": image.media_type, "data": image.data}
    return {"type": "image", "source": source}


def _encode_id(call_id: str) -> str:
    return ILLEGAL_CHARACTERS.sub("_", call_id)
