"""OpenAI Responses: the wire of OpenAI's own models."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import msgspec

from ..._core.messages import (
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
from ..._core.ports import RequestConfig
from ..._core.tools import Tool
from .._images import make_data_url
from .._json import clean, encode
from .._tool_names import ToolNames, fit_call_id
from .._wire import WireModel, format_result_text, get_sampling
from ._responses_stream import WIRE, ResponsesReader

_MAX_CALL_ID = 64
_CALL_ID = f"(?s).{{1,{_MAX_CALL_ID}}}"


class ResponsesModel(WireModel):
    """A model behind the Responses API.

    Each request holds the whole conversation and asks the server to store nothing. Reasoning comes
    back encrypted and is sent again with the next request.
    """

    WIRE = WIRE
    BASE_URL = "https://api.openai.com/v1"
    TOOLS_OFF = b'"tool_choice":"none"'
    SERVER_TOOLS = MappingProxyType({"web_search": {"type": "web_search"}})

    def build_url(self, base_url: str) -> str:
        """Return the address of the requests."""
        return f"{base_url}/responses"

    def encode_prefix(self, config: RequestConfig, names: ToolNames) -> bytes:
        """Return the body up to the "[" of its items."""
        fields: dict[str, Any] = {
            "model": self.model,
            "stream": True,
            "store": False,
            "max_output_tokens": self.facts.choose_max_tokens(config.max_tokens),
            **get_sampling(config, self.facts),
        }
        if self.facts.encrypts_reasoning:
            fields["include"] = ["reasoning.encrypted_content"]
        system = clean(config.system)
        if system.strip():
            fields["instructions"] = system
        tools = [_encode_tool(tool, names) for tool in config.tools]
        tools += self.encode_server_tools(config)
        if tools:
            fields["tools"] = tools
        return encode(fields)[:-1] + b',"input":['

    def encode_message(self, message: Message, names: ToolNames) -> list[dict[str, Any]]:
        """Return the API's items for a message."""
        if isinstance(message, UserMessage):
            return _encode_user_message(message)
        return _encode_assistant_message(message, names, self.wire)

    def make_reader(self, names: ToolNames) -> ResponsesReader:
        """Return a reader for one answer."""
        return ResponsesReader(self.model, names, self.wire)


def _encode_tool(tool: Tool, names: ToolNames) -> dict[str, Any]:
    # Without `strict: false` the server demands that all parameters are required.
    return {
        "type": "function",
        "name": names.to_wire(tool.name),
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,
    }


def _encode_user_message(message: UserMessage) -> list[dict[str, Any]]:
    """Return one item for each tool result, then one message with all texts and images."""
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
    """Return the items of an answer in their order.

    Reasoning and searches of other servers are left out, and so is reasoning that nothing follows:
    the server refuses it.
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
    # The server stores nothing, so it does not know the id.
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
