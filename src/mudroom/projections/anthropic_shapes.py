"""Blocks and token counts in the JSON shapes of the Messages API, for logs and test servers."""

from __future__ import annotations

from typing import Any

from .._core.messages import TextBlock, ThinkingBlock, ToolCallBlock, Usage, get_sendable_arguments


def to_anthropic_block(block: TextBlock | ThinkingBlock | ToolCallBlock) -> dict[str, Any]:
    """Return a block of an answer."""
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


def to_anthropic_usage(usage: Usage) -> dict[str, int]:
    """Return token counts; those of the cache are not part of the input."""
    return {
        "input_tokens": usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "output_tokens": usage.output_tokens,
    }
