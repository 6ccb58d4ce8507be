"""Answers, blocks and token counts in the JSON shapes of the Messages API."""

from __future__ import annotations

from typing import Any

import msgspec

from .._core.messages import (
    AssistantBlock,
    AssistantMessage,
    ProviderBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
    get_sendable_arguments,
)

_STOPS = {
    StopReason.END: "end_turn",
    StopReason.CALLS: "tool_use",
    StopReason.LENGTH: "max_tokens",
    StopReason.REFUSAL: "refusal",
}


def to_anthropic_block(block: AssistantBlock) -> dict[str, Any]:
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text}
        case ThinkingBlock(redacted=data) if data:
            return {"type": "redacted_thinking", "data": data}
        case ThinkingBlock():
            return {"type": "thinking", "thinking": block.text, "signature": block.signature}
        case ToolCallBlock():
            arguments = get_sendable_arguments(block)
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": arguments}
        case ProviderBlock():
            return _to_search(block)


def _to_search(block: ProviderBlock) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.json.decode(block.data)
    match block.kind:
        case "web_search_call":
            return _to_search_use(data.get("id", ""), data.get("action"))
        case "toolCall":
            return _to_search_use(data["toolCall"].get("id", ""), data["toolCall"].get("args"))
        case "toolResponse":
            return _to_search_result(data["toolResponse"].get("id", ""), [])
        case "groundingMetadata":
            chunks: list[dict[str, Any]] = data.get("groundingChunks") or []
            return _to_search_result("", [chunk.get("web") or {} for chunk in chunks])
        case _:
            return data


def _to_search_use(call_id: str, arguments: dict[str, Any] | None) -> dict[str, Any]:
    head = {"type": "server_tool_use", "id": call_id, "name": "web_search"}
    return head | {"input": arguments or {}}


def _to_search_result(call_id: str, pages: list[dict[str, Any]]) -> dict[str, Any]:
    content = [
        {"type": "web_search_result", "title": page.get("title"), "url": page.get("uri")}
        for page in pages
    ]
    return {"type": "web_search_tool_result", "tool_use_id": call_id, "content": content}


def to_anthropic_usage(usage: Usage) -> dict[str, Any]:
    """Convert token counts; those of the cache are not part of the input."""
    hour = usage.cache_hour_tokens
    lifetimes = {
        "ephemeral_5m_input_tokens": usage.cache_write_tokens - hour,
        "ephemeral_1h_input_tokens": hour,
    }
    return {
        "input_tokens": usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "output_tokens": usage.output_tokens,
        **({"cache_creation": lifetimes} if hour else {}),
    }


def to_anthropic_stop_reason(message: AssistantMessage) -> str:
    """Convert a stop reason to a term of the Messages API, or else to the provider's own."""
    return _STOPS.get(message.stop_reason, message.provider_stop_reason or "unknown")


def to_anthropic_message(message: AssistantMessage, model: str, stop: str) -> dict[str, Any]:
    head = {"id": message.id, "type": "message", "role": "assistant", "model": model}
    tail = {"stop_reason": stop, "stop_sequence": None, "usage": to_anthropic_usage(message.usage)}
    return {**head, "content": [to_anthropic_block(block) for block in message.content], **tail}
