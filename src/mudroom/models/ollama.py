"""Ollama's own chat API, which lets each request set the context window."""

from __future__ import annotations

from typing import Any

from .._core.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserMessage,
    get_sendable_arguments,
)
from .._core.ports import RequestConfig
from .._core.tools import Tool
from ._images import make_image_label
from ._json import clean, encode
from ._ollama_stream import OllamaReader
from ._tool_names import ToolNames
from ._wire import (
    RequestPrefix,
    WireConversation,
    WireModel,
    format_result_text,
    get_sampling,
    join_message_text,
)


class OllamaModel(WireModel):
    """A model behind `/api/chat`."""

    WIRE = "ollama"
    BASE_URL = "http://127.0.0.1:11434"
    TOOLS_OFF = b""
    HAS_SYSTEM_MESSAGE = True

    def build_url(self, base_url: str) -> str:
        """Return the address of the requests."""
        return f"{base_url}/api/chat"

    def make_conversation(self, config: RequestConfig) -> WireConversation:
        """Return a conversation without messages."""
        return _OllamaConversation(self, config)

    def encode_prefix(self, config: RequestConfig, names: ToolNames) -> bytes:
        """Return the body up to the "[" of its messages."""
        options: dict[str, Any] = {
            "num_predict": self.facts.choose_max_tokens(config.max_tokens),
            **get_sampling(config, self.facts),
        }
        if self.facts.context_window:
            options["num_ctx"] = self.facts.context_window
        fields = {
            "model": self.model,
            "stream": True,
            # Refuse a prompt that is too long; do not drop its start.
            "truncate": False,
            # End an answer that fills the window; do not drop the start of the prompt.
            "shift": False,
            "options": options,
        }
        return encode(fields)[:-1] + b',"messages":['

    def encode_message(self, message: Message, names: ToolNames) -> list[dict[str, Any]]:
        """Return the API's messages for a message."""
        if isinstance(message, UserMessage):
            return _encode_user_message(message, names)
        return _encode_assistant_message(message, names, self.wire)

    def make_reader(self, names: ToolNames) -> OllamaReader:
        """Return a reader for one answer."""
        return OllamaReader(self.model, names, self.wire)


class _OllamaConversation(WireConversation):
    """A conversation with its tools at the end of the body, where a request can leave them out."""

    def __init__(self, model: OllamaModel, config: RequestConfig) -> None:
        super().__init__(model, config)
        self._tools = b""
        self._tools_prefix: RequestPrefix | None = None

    def _make_end(self, *, tools: bool) -> bytes:
        if not tools:
            return b"]}"
        prefix = self._prefix
        if prefix is not self._tools_prefix:
            sent = self._model.fit_config(prefix.config).tools
            self._tools = encode([_encode_tool(tool, prefix.names) for tool in sent])
            self._tools_prefix = prefix
        return b'],"tools":%b}' % self._tools


def _encode_tool(tool: Tool, names: ToolNames) -> dict[str, Any]:
    function = {
        "name": names.to_wire(tool.name),
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": function}


def _encode_user_message(message: UserMessage, names: ToolNames) -> list[dict[str, Any]]:
    """Return one message for each tool result, then one for all texts and images."""
    entries: list[dict[str, Any]] = []
    texts: list[str] = []
    images: list[bytes] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            entries.append(_encode_result(block, names))
            if block.images:
                texts.append(make_image_label(block))
                images += [image.data for image in block.images]
        elif isinstance(block, ImageBlock):
            images.append(block.data)
        elif (text := clean(block.text)).strip():
            texts.append(text)
    if texts or images:
        entry: dict[str, Any] = {"role": "user", "content": "\n\n".join(texts)}
        # The JSON encoder writes bytes as base64.
        entries.append(entry | ({"images": images} if images else {}))
    return entries


def _encode_result(result: ToolResultBlock, names: ToolNames) -> dict[str, Any]:
    return {
        "role": "tool",
        "tool_name": names.to_wire(result.name),
        "tool_call_id": result.call_id,
        "content": format_result_text(result),
    }


def _encode_assistant_message(
    message: AssistantMessage, names: ToolNames, wire: str
) -> list[dict[str, Any]]:
    """Return one message, or none when nothing in it can be sent.

    Thinking is sent only to the server it came from.
    """
    text = join_message_text(message)
    calls = [_encode_call(call, names) for call in message.tool_calls]
    if not text and not calls:
        return []
    entry: dict[str, Any] = {"role": "assistant", "content": text}
    thoughts = "".join(b.text for b in message.content if isinstance(b, ThinkingBlock))
    if thoughts and message.wire == wire:
        entry["thinking"] = thoughts
    if calls:
        entry["tool_calls"] = calls
    return [entry]


def _encode_call(call: ToolCallBlock, names: ToolNames) -> dict[str, Any]:
    function = {"name": names.to_wire(call.name), "arguments": get_sendable_arguments(call)}
    return {"id": call.id, "function": function}
