"""Texts of prompts, answers and tool calls as attributes of spans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from ..._core.messages import (
    AssistantMessage,
    ImageBlock,
    ProviderBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    append_placeholders,
    get_sendable_arguments,
)
from ..._core.runs import RequestHead, ToolDescription
from ..._core.tools import ToolResult
from .span import Attributes

MAX_BYTES = 64 << 10
"""Longest attribute."""
_MIN_TEXT = 64
_CUT = " [cut]"

Message = dict[str, Any]


class ContentCapture:
    """Writer of texts as attributes: without secrets, and not too long.

    Arguments:
        redact: removes secrets from a text.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact

    def describe_input(self, messages: Sequence[Message]) -> Attributes:
        """Return the messages that a request adds to the one before."""
        return {"gen_ai.input.messages": self._encode(messages)} if messages else {}

    def describe_output(self, answer: AssistantMessage, finish_reason: str) -> Attributes:
        """Return the answer of a model."""
        parts = [part for block in answer.content for part in _convert_block(block)]
        message = {"role": "assistant", "parts": parts, "finish_reason": finish_reason}
        return {"gen_ai.output.messages": self._encode([message])}

    def describe_report(self, text: str) -> Attributes:
        """Return the report of a run."""
        message = {"role": "assistant", "parts": [make_text(text)], "finish_reason": "stop"}
        return {"gen_ai.output.messages": self._encode([message])} if text else {}

    def describe_title(self, description: str) -> Attributes:
        """Return the few words that describe a run."""
        return {"mudroom.run.description": self._redact(description)} if description else {}

    def describe_arguments(self, call: ToolCallBlock) -> Attributes:
        """Return the arguments of a tool call."""
        return {"gen_ai.tool.call.arguments": self._encode(get_sendable_arguments(call))}

    def describe_result(self, result: ToolResult) -> Attributes:
        """Return the result of a tool call, as the model reads it."""
        text = append_placeholders(result.text, result.images)
        return {"gen_ai.tool.call.result": _cut(self._redact(text), MAX_BYTES)}

    def describe_head(self, head: RequestHead, parts: Mapping[str, object]) -> Attributes:
        """Return the system prompt and the tools of a run.

        Arguments:
            parts: system prompts and tools of the record, by id.
        """
        attributes: Attributes = {}
        system = parts.get(head.system)
        if isinstance(system, str) and system:
            attributes["gen_ai.system_instructions"] = self._encode([make_text(system)])
        tools = [parts.get(name) for name in head.tools]
        described = [tool for tool in tools if isinstance(tool, ToolDescription)]
        if described:
            definitions = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                }
                for tool in described
            ]
            attributes["gen_ai.tool.definitions"] = self._encode(definitions)
        return attributes

    def _encode(self, value: object) -> str:
        """Return a value as JSON of at most MAX_BYTES; longer texts in it are cut."""
        clean = _map_texts(value, self._redact)
        longest = MAX_BYTES
        data = msgspec.json.encode(clean)
        while len(data) > MAX_BYTES and longest > _MIN_TEXT:
            longest //= 2
            limit = longest
            data = msgspec.json.encode(_map_texts(clean, lambda text, n=limit: _cut(text, n)))
        if len(data) > MAX_BYTES:
            data = msgspec.json.encode({"cut": f"{len(data):,} bytes"})
        return data.decode()


def make_text(text: str) -> Message:
    """Return a text as a part of a message."""
    return {"type": "text", "content": text}


def make_user_message(blocks: Iterable[TextBlock | ImageBlock]) -> Message:
    """Return blocks as a message of the user; a placeholder stands for each image."""
    texts = [block.text if isinstance(block, TextBlock) else block.placeholder for block in blocks]
    return {"role": "user", "parts": [make_text(text) for text in texts]}


def make_tool_message(call_id: str, result: ToolResult) -> Message:
    """Return the result of a tool call as a message."""
    response = append_placeholders(result.text, result.images)
    part = {"type": "tool_call_response", "id": call_id, "response": response}
    return {"role": "tool", "parts": [part]}


def _convert_block(block: object) -> list[Message]:
    if isinstance(block, TextBlock):
        return [make_text(block.text)]
    if isinstance(block, ThinkingBlock):
        return [{"type": "reasoning", "content": block.text}] if block.text else []
    if isinstance(block, ProviderBlock):
        return [make_text(block.text)] if block.text else []
    if isinstance(block, ToolCallBlock):
        arguments = get_sendable_arguments(block)
        return [{"type": "tool_call", "id": block.id, "name": block.name, "arguments": arguments}]
    return []


def _map_texts(value: object, change: Callable[[str], str]) -> object:
    """Return a JSON value with `change` applied to every text that is not a key."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        items = cast("dict[str, object]", value).items()
        return {key: _map_texts(item, change) for key, item in items}
    if isinstance(value, list | tuple):
        return [_map_texts(item, change) for item in cast("Sequence[object]", value)]
    return value


def _cut(text: str, limit: int) -> str:
    """Return the beginning of a text of at most `limit` bytes."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    return data[: limit - len(_CUT)].decode("utf-8", "ignore") + _CUT
