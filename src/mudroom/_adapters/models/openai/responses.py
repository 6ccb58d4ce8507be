"""OpenAI Responses: the wire of OpenAI's own models."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import asdict, replace

from ...._core.messages import (
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
from ...._core.ports import RequestConfig, StreamChunk
from ...._core.tools import Tool
from ...._projections.web_searches import get_search_action, read_responses_search
from ....errors import ModelGarbled
from .._http import StreamCut, make_stream_error
from .._images import make_data_url
from .._json import clean, encode, make_decoder, read_arguments
from .._tool_names import ToolNames, fit_call_id
from .._wire import WireConversation, WireModel, describe_stop, format_result_text, get_sampling
from ._chat_stream import build_tool_call

WIRE = "openai-responses"


class _Part(Struct):
    text: str = ""
    refusal: str = ""


class _ItemType(Struct):
    type: Any = ""


class _Item(Struct):
    type: str = ""
    id: str | None = None
    status: str | None = None
    action: Any = None
    content: list[_Part] | None = None
    summary: list[_Part] | None = None
    encrypted_content: str | None = None
    phase: Any = None
    call_id: str | None = None
    name: str | None = None
    arguments: Raw = Raw()


class _InputDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(Struct):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _IncompleteDetails(Struct):
    reason: str | None = None


class _Response(Struct):
    id: str | None = None
    model: str | None = None
    output: list[Raw] | None = None
    usage: _Usage | None = None
    error: Any = None
    incomplete_details: _IncompleteDetails | None = None


class _Event(Struct):
    type: str = ""
    delta: Any = None
    output_index: int | None = None
    summary_index: int = 0
    item: Raw = Raw()
    response: _Response | None = None
    error: Any = None
    code: Any = None
    message: Any = None


_decode = make_decoder(_Event)
_decode_type = make_decoder(_ItemType)
_decode_item = make_decoder(_Item)
_USED_ITEMS = frozenset({"message", "reasoning", "function_call", "web_search_call"})

_CHUNK_KINDS = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "thinking",
    "response.reasoning_text.delta": "thinking",
    "response.function_call_arguments.delta": "call",
}
_LAST_EVENTS = frozenset({"response.completed", "response.incomplete"})
_STOP_REASONS = {
    "completed": StopReason.END,
    "max_output_tokens": StopReason.LENGTH,
    "content_filter": StopReason.REFUSAL,
    "refusal": StopReason.REFUSAL,
}


class ResponsesReader:
    """Reads a streamed answer.

    The answer is built from finished items; deltas are only shown. Items of server-side tools other
    than the web search are ignored.
    """

    def __init__(self, model: str, names: ToolNames, wire: str = WIRE) -> None:
        self._model = model
        self._names = names
        self._wire = wire
        self._items: dict[int, _Item] = {}
        self._last: _Response | None = None
        self._has_valid_event = False
        self._has_event = False

    @property
    def is_done(self) -> bool:
        return self._last is not None

    def feed(self, data: bytes) -> Sequence[StreamChunk]:
        if self.is_done or data.strip() == b"[DONE]":
            return ()
        event = _decode(data)
        kind = event.type
        self._has_event = True
        if kind == "error" or (not kind and event.error):
            raise make_stream_error(event.error or {"code": event.code, "message": event.message})
        if kind.startswith("response."):
            self._has_valid_event = True
        if chunk_kind := _CHUNK_KINDS.get(kind):
            return [StreamChunk(chunk_kind, event.delta)] if isinstance(event.delta, str) else ()
        if kind == "response.reasoning_summary_part.added" and event.summary_index:
            return [StreamChunk("thinking", _SUMMARY_SEPARATOR)]
        if item := _read_item(event.item):
            return self._add_item(event, item)
        if kind == "response.failed":
            raise make_stream_error(event.response.error if event.response else None)
        if kind in _LAST_EVENTS:
            self._last = event.response or _Response()
        return ()

    def _add_item(self, event: _Event, item: _Item) -> Sequence[StreamChunk]:
        is_search = item.type == "web_search_call"
        if event.type == "response.output_item.added" and is_search:
            return [StreamChunk("search_start", "searching the web")]
        if event.type != "response.output_item.done":
            return ()
        index = len(self._items) if event.output_index is None else event.output_index
        self._items[index] = item
        return [StreamChunk("search_end", _to_search_block(item).text)] if is_search else ()

    def finish(self) -> AssistantMessage:
        if self._has_event and not self._has_valid_event:
            raise ModelGarbled("no part of the answer is an event of the Responses API")
        response = self._last
        if response is None:
            raise StreamCut
        items = [self._items[index] for index in sorted(self._items)]
        items = items or [item for raw in response.output or () if (item := _read_item(raw))]
        content: list[AssistantBlock] = []
        used_ids: set[str] = set()
        for item in items:
            if item.type == "function_call":
                call_id = item.call_id or ""
                name = item.name or ""
                arguments = read_arguments(item.arguments)
                call = build_tool_call(call_id, name, arguments, self._names, used_ids)
                content.append(call)
            elif block := _to_block(item):
                content.append(block)
        return AssistantMessage(
            tuple(content),
            usage=replace(_to_usage(response.usage or _Usage()), searches=_count_searches(items)),
            model=response.model or self._model,
            wire=self._wire,
            id=response.id or "",
            **describe_stop(_find_stop_reason(response, items), _STOP_REASONS, content),
        )


_SUMMARY_SEPARATOR = "\n\n"


def _read_item(raw: Raw) -> _Item | None:
    """Decode an item; None for types that are not used, whatever their fields contain."""
    data = bytes(raw)
    if data in (b"", b"null"):
        return None
    kind = _decode_type(data).type
    return _decode_item(data) if isinstance(kind, str) and kind in _USED_ITEMS else None


def _to_block(item: _Item) -> TextBlock | ThinkingBlock | ProviderBlock | None:
    """Convert a message, reasoning or search item to a block; None if it is empty.

    A text's signature is the phase the model names, and reasoning's is its ciphertext: both are
    sent back.
    """
    parts = item.content or []
    if item.type == "message":
        text = clean("".join(part.text or part.refusal for part in parts))
        phase = item.phase if isinstance(item.phase, str) else ""
        return TextBlock(text, phase) if text else None
    if item.type == "web_search_call":
        return _to_search_block(item)
    if item.type != "reasoning":
        return None
    thoughts = [part.text for part in item.summary or parts]
    text = clean(_SUMMARY_SEPARATOR.join(thoughts))
    ciphertext = item.encrypted_content or ""
    return ThinkingBlock(text, ciphertext) if text or ciphertext else None


def _to_search_block(item: _Item) -> ProviderBlock:
    return read_responses_search(asdict(item))


def _count_searches(items: Sequence[_Item]) -> int:
    """Count the searches; opening a page is not one."""
    actions = [item.action for item in items if item.type == "web_search_call"]
    return sum(get_search_action(each).get("type", "search") == "search" for each in actions)


def _find_stop_reason(response: _Response, items: Sequence[_Item]) -> str:
    if response.incomplete_details is not None:
        return response.incomplete_details.reason or "incomplete"
    if any(part.refusal for item in items for part in item.content or ()):
        return "refusal"
    return "completed"


def _to_usage(usage: _Usage) -> Usage:
    sent = usage.input_tokens_details or _InputDetails()
    received = usage.output_tokens_details or _OutputDetails()
    return Usage(
        input_tokens=usage.input_tokens or 0,
        output_tokens=usage.output_tokens or 0,
        cache_read_tokens=sent.cached_tokens or 0,
        cache_write_tokens=sent.cache_write_tokens or 0,
        reasoning_tokens=received.reasoning_tokens or 0,
    )


_MAX_CALL_ID = 64  # characters; the API refuses longer ids
_BREAKPOINT_FIELD = "prompt_cache_breakpoint"
_BREAKPOINT = {_BREAKPOINT_FIELD: {"mode": "explicit"}}
_CALL_ID = f"(?s).{{1,{_MAX_CALL_ID}}}"


class ResponsesModel(WireModel):
    """A model behind the Responses API.

    Each request contains the whole conversation and asks the server to store nothing. Reasoning
    comes back encrypted and is sent again with the next request.
    """

    WIRE = WIRE
    BASE_URL = "https://api.openai.com/v1"
    TOOLS_OFF = b'"tool_choice":"none"'
    PROVIDER_TOOLS = MappingProxyType({"web_search": {"type": "web_search"}})

    def build_url(self, base_url: str) -> str:
        return f"{base_url}/responses"

    def encode_prefix(self, config: RequestConfig, names: ToolNames) -> bytes:
        fields: dict[str, Any] = {
            "model": self.model,
            "stream": True,
            "store": False,
            "max_output_tokens": self.facts.choose_max_tokens(config.max_tokens),
            **get_sampling(config, self.facts),
            **self.encode_cache_key(config),
        }
        if self.facts.encrypts_reasoning:
            fields["include"] = ["reasoning.encrypted_content"]
        if effort := self.get_effort(config):
            fields["reasoning"] = {"effort": effort}
        system = clean(config.system)
        if system.strip() and not self.facts.bills_cache_writes:
            fields["instructions"] = system
        tools = [_encode_tool(tool, names) for tool in config.tools]
        tools += self.encode_provider_tools(config)
        if tools:
            fields["tools"] = tools
        return encode(fields)[:-1] + b',"input":['

    def start_conversation(self, config: RequestConfig) -> WireConversation:
        conversation = super().start_conversation(config)
        if self.facts.bills_cache_writes and (system := clean(config.system)).strip():
            # `instructions` take no mark, so siblings could not share the prompt before them.
            content = [_encode_text(system) | _BREAKPOINT]
            conversation.append_entry({"type": "message", "role": "developer", "content": content})
        return conversation

    def encode_message(self, message: Message, names: ToolNames) -> list[dict[str, Any]]:
        if not isinstance(message, UserMessage):
            return _encode_assistant_message(message, names, self.wire)
        items = _encode_user_message(message)
        if items and self.facts.bills_cache_writes:
            _mark_end(items[-1])
        return items

    def fit_entry(self, entry: dict[str, Any]) -> dict[str, Any]:
        if _BREAKPOINT_FIELD in self.facts.refused:
            for part in _get_parts(entry):
                part.pop(_BREAKPOINT_FIELD, None)
        return entry

    def make_reader(self, names: ToolNames) -> ResponsesReader:
        return ResponsesReader(self.model, names, self.wire)


def _mark_end(item: dict[str, Any]) -> None:
    """Mark the end of a request: the next one reads the cache only up to a mark."""
    if isinstance(item.get("output"), str):
        item["output"] = [_encode_text(item["output"])]
    _get_parts(item)[-1].update(_BREAKPOINT)


def _get_parts(item: dict[str, Any]) -> list[dict[str, Any]]:
    parts = item.get("content") or item.get("output")
    return cast("list[dict[str, Any]]", parts) if isinstance(parts, list) else []


def _encode_tool(tool: Tool, names: ToolNames) -> dict[str, Any]:
    # Without `strict: false`, the server insists that all parameters are required.
    return {
        "type": "function",
        "name": names.to_wire(tool.name),
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,
    }


def _encode_user_message(message: UserMessage) -> list[dict[str, Any]]:
    """Encode one item per tool result, then one message for all texts and images."""
    results: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            results.append(_encode_result(block))
        elif isinstance(block, ImageBlock):
            parts.append(_encode_image(block))
        elif (text := clean(block.text)).strip():
            parts.append(_encode_text(text))
    if parts:
        results.append({"type": "message", "role": "user", "content": parts})
    return results


def _encode_result(result: ToolResultBlock) -> dict[str, Any]:
    text = format_result_text(result)
    output: str | list[dict[str, Any]] = text
    if result.images:
        texts = [_encode_text(text)] if result.text.strip() else []
        output = texts + [_encode_image(image) for image in result.images]
    call_id = fit_call_id(result.call_id, _CALL_ID, _MAX_CALL_ID)
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _encode_text(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def _encode_image(image: ImageBlock) -> dict[str, Any]:
    return {"type": "input_image", "image_url": make_data_url(image)}


def _encode_assistant_message(
    message: AssistantMessage, names: ToolNames, wire: str
) -> list[dict[str, Any]]:
    """Encode the items of an answer in order.

    Reasoning and searches of other servers are left out, and so is reasoning with nothing after it,
    which the server refuses.
    """
    is_own = message.wire == wire
    items: list[dict[str, Any]] = []
    for block in message.content:
        match block:
            case TextBlock():
                text = clean(block.text)
                if text.strip():
                    items.append(_encode_answer_text(text, block.signature if is_own else ""))
            case ToolCallBlock():
                items.append(_encode_call(block, names))
            case ThinkingBlock(signature=ciphertext) if is_own and ciphertext:
                items.append(_encode_reasoning(block))
            case ProviderBlock() if is_own:
                items.append(_encode_search(block))
            case ThinkingBlock() | ProviderBlock():
                pass
    while items and items[-1]["type"] == "reasoning":
        items.pop()
    return items


def _encode_answer_text(text: str, phase: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text}]
    item: dict[str, Any] = {"type": "message", "role": "assistant", "content": content}
    return item | ({"phase": phase} if phase else {})


def _encode_search(block: ProviderBlock) -> dict[str, Any]:
    # The server was asked to store nothing, so it does not know the id.
    item: dict[str, Any] = msgspec.json.decode(block.data)
    item.pop("id", None)
    return item


def _encode_call(call: ToolCallBlock, names: ToolNames) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": fit_call_id(call.id, _CALL_ID, _MAX_CALL_ID),
        "name": names.to_wire(call.name),
        "arguments": encode(get_sendable_arguments(call)).decode(),
    }


def _encode_reasoning(block: ThinkingBlock) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": block.text}] if block.text else []
    return {"type": "reasoning", "summary": summary, "encrypted_content": block.signature}
