"""Anthropic Messages: the wire of Claude and of all servers that speak its protocol."""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import Any

import msgspec

from .._core.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    ProviderBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserMessage,
    get_sendable_arguments,
)
from .._core.ports import RequestConfig
from .._core.tools import Tool
from ._anthropic_stream import WIRE, AnthropicReader
from ._json import clean, encode
from ._tool_names import ILLEGAL_CHARACTERS, ToolNames
from ._wire import WireConversation, WireModel, get_sampling

_API_VERSION = "2023-06-01"
"""Compatible servers accept this version. Later versions also refuse sampling parameters for older
models."""
_CACHE_MARK = {"cache_control": {"type": "ephemeral"}}
_CACHE_MARK_JSON = b',"cache_control":{"type":"ephemeral"}'
_UNMARKABLE_BLOCKS = frozenset({"thinking", "redacted_thinking"})
"""Block types that the API accepts no cache mark on."""


class AnthropicModel(WireModel):
    """A model behind the Messages API."""

    WIRE = WIRE
    BASE_URL = "https://api.anthropic.com"
    TOOLS_OFF = b'"tool_choice":{"type":"none"}'
    # Later versions of the tool also run code, and few models have them.
    SERVER_TOOLS = MappingProxyType(
        {"web_search": {"type": "web_search_20250305", "name": "web_search"}}
    )

    def build_url(self, base_url: str) -> str:
        """Return the address of the requests; a base URL may end in /v1."""
        return base_url.removesuffix("/v1") + "/v1/messages"

    def build_auth_headers(self, key: str) -> dict[str, str]:
        """Return the headers of the version and of a key."""
        headers = {"anthropic-version": _API_VERSION}
        return headers | ({"x-api-key": key} if key else {})

    def make_conversation(self, config: RequestConfig) -> AnthropicConversation:
        """Return a conversation without messages."""
        return AnthropicConversation(self, config)

    def encode_prefix(self, config: RequestConfig, names: ToolNames) -> bytes:
        """Return the body up to the "[" of its messages."""
        fields: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self.facts.choose_max_tokens(config.max_tokens),
            "stream": True,
            **get_sampling(config, self.facts),
        }
        tools = [_encode_tool(tool, names) for tool in config.tools]
        tools += self.encode_server_tools(config)
        if tools:
            tools[-1] |= _CACHE_MARK
            fields["tools"] = tools
        system = clean(config.system)
        if system.strip():
            fields["system"] = [{**_encode_text(system), **_CACHE_MARK}]
        return encode(fields)[:-1] + b',"messages":['

    def encode_message(self, message: Message, names: ToolNames) -> list[dict[str, Any]]:
        """Return a message of the API; none if it has no sendable content."""
        if isinstance(message, UserMessage):
            role = "user"
            blocks = _encode_user_message(message)
        else:
            role = "assistant"
            blocks = _encode_assistant_message(message, names, self.wire)
        return [{"role": role, "content": blocks}] if blocks else []

    def make_reader(self, names: ToolNames) -> AnthropicReader:
        """Return a reader for one answer."""
        return AnthropicReader(self.model, names, self.wire)


class AnthropicConversation(WireConversation):
    """A conversation with a cache mark on its last message, so that all before it is cached."""

    _is_last_markable = False

    def build_body(self, *, tools: bool = True, max_tokens: int | None = None) -> bytes:
        """Return the request body."""
        if not self._is_last_markable:
            return super().build_body(tools=tools, max_tokens=max_tokens)
        # The mark belongs into the last block: before the closing "}]}" of the last message.
        messages = memoryview(self._messages)
        end = self._make_end(tools=tools)
        start = self._make_start(max_tokens)
        return b"".join((start, messages[:-3], _CACHE_MARK_JSON, messages[-3:], end))

    def append_entry(self, entry: dict[str, Any]) -> None:
        """Append a message of the API."""
        super().append_entry(entry)
        self._is_last_markable = entry["content"][-1]["type"] not in _UNMARKABLE_BLOCKS


def _encode_tool(tool: Tool, names: ToolNames) -> dict[str, Any]:
    return {
        "name": names.to_wire(tool.name),
        "description": tool.description,
        "input_schema": tool.parameters,
    }


def _encode_user_message(message: UserMessage) -> list[dict[str, Any]]:
    """Return the blocks of a message; the API wants tool results before all others."""
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
    message: AssistantMessage, names: ToolNames, wire: str
) -> list[dict[str, Any]]:
    """Return the blocks of an answer; thinking and searches of other servers are left out."""
    is_own = message.wire == wire
    searches = _decode_searches(message) if is_own else {}
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


def _decode_searches(message: AssistantMessage) -> dict[ProviderBlock, dict[str, Any]]:
    """Return the blocks of searches as the API has them.

    A search that was interrupted has no result. The API refuses it, so it is left out.
    """
    blocks: dict[ProviderBlock, dict[str, Any]] = {
        block: msgspec.json.decode(block.data)
        for block in message.content
        if isinstance(block, ProviderBlock)
    }
    if not blocks:
        return {}
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
