"""Gemini's generateContent, with function calling, thoughts and thought signatures."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

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
from ._google_stream import GROUNDING, OWN_ID_PREFIX, WIRE, GoogleReader
from ._images import make_image_label
from ._json import clean, encode
from ._tool_names import ToolNames
from ._wire import WireConversation, WireModel, get_sampling
from .model_facts import find_facts

_NO_SIGNATURE = "skip_thought_signature_validator"
"""Value that Gemini 3 accepts instead of the signature of a call that another model made.
Without this value it refuses such a call.
"""
_SAMPLING_NAMES = {"temperature": "temperature", "top_p": "topP"}


class GoogleModel(WireModel):
    """A model behind generateContent."""

    WIRE = WIRE
    BASE_URL = "https://generativelanguage.googleapis.com/v1beta"
    TOOLS_OFF = b'"toolConfig":{"functionCallingConfig":{"mode":"NONE"}}'
    SERVER_TOOLS = MappingProxyType({"web_search": {"googleSearch": {}}})

    def normalize_model(self, model: str) -> str:
        """Return the id of a model without "models/" in front."""
        return model.removeprefix("models/")

    def build_url(self, base_url: str) -> str:
        """Return the address of the requests."""
        return f"{base_url}/models/{quote(self.model)}:streamGenerateContent?alt=sse"

    def build_auth_headers(self, key: str) -> dict[str, str]:
        """Return the header of a key; the URL never holds it."""
        return {"x-goog-api-key": key} if key else {}

    def encode_prefix(self, config: RequestConfig, names: ToolNames) -> bytes:
        """Return the body up to the "[" of its contents."""
        fields: dict[str, Any] = {}
        if system := clean(config.system):
            fields["systemInstruction"] = {"parts": [{"text": system}]}
        tools: list[dict[str, Any]] = []
        if config.tools:
            declarations = [_encode_tool(tool, names) for tool in config.tools]
            tools.append({"functionDeclarations": declarations})
        if tools := tools + self.encode_server_tools(config):
            fields["tools"] = tools
        sampling = get_sampling(config, self.facts)
        fields["generationConfig"] = {
            "maxOutputTokens": self.facts.choose_max_tokens(config.max_tokens),
            **{_SAMPLING_NAMES[name]: value for name, value in sampling.items()},
        }
        return encode(fields)[:-1] + b',"contents":['

    def make_conversation(self, config: RequestConfig) -> WireConversation:
        """Return a conversation without messages."""
        return _GoogleConversation(self, config)

    def encode_message(self, message: Message, names: ToolNames) -> list[dict[str, Any]]:
        """Return a content of the API; none if the message has no sendable content."""
        if isinstance(message, UserMessage):
            role = "user"
            parts = list(_encode_user_message(message, names))
        else:
            role = "model"
            parts = list(self._encode_answer(message, names))
        return [{"role": role, "parts": parts}] if parts else []

    def make_reader(self, names: ToolNames) -> GoogleReader:
        """Return a reader for one answer."""
        return GoogleReader(self.model, names, self.wire)

    def _encode_answer(
        self, message: AssistantMessage, names: ToolNames
    ) -> Iterator[dict[str, Any]]:
        """Yield the parts of an answer; thoughts and signatures of other servers are left out.

        A model that requires a signature requires it on the first call, also on one of another
        model, or of an older Gemini that signed none.
        """
        is_own = message.wire == self.wire
        is_unsigned = not is_own or find_facts(message.model).takes_unsigned_calls
        is_signature_missing = is_unsigned and not self.facts.takes_unsigned_calls
        unanswered = _find_unanswered_searches(message)
        for block in message.content:
            if isinstance(block, ProviderBlock):
                if is_own and block.kind != GROUNDING and block not in unanswered:
                    yield msgspec.json.decode(block.data)
                continue
            signature = {}
            if is_own and block.signature:
                signature = {"thoughtSignature": block.signature}
            if isinstance(block, ToolCallBlock):
                if is_signature_missing and not signature:
                    signature = {"thoughtSignature": _NO_SIGNATURE}
                is_signature_missing = False
                yield _encode_call(block, names) | signature
            elif isinstance(block, ThinkingBlock):
                if is_own and (text := clean(block.text)):
                    yield {"text": text, "thought": True} | signature
            elif text := clean(block.text):
                yield {"text": text} | signature


class _GoogleConversation(WireConversation):
    """A conversation with its tool settings at the end of the body, where they are one object."""

    def _make_end(self, *, tools: bool) -> bytes:
        config = self._prefix.config
        if not self._model.encode_server_tools(config):
            return super()._make_end(tools=tools)
        # Searches beside functions are refused without this field.
        settings: dict[str, Any] = {"includeServerSideToolInvocations": True}
        if config.tools and not tools:
            settings["functionCallingConfig"] = {"mode": "NONE"}
        return b'],"toolConfig":%b}' % encode(settings)


def _find_unanswered_searches(message: AssistantMessage) -> set[ProviderBlock]:
    """Return the searches that were interrupted, which have no result."""
    calls: dict[str, ProviderBlock] = {}
    for block in message.content:
        if isinstance(block, ProviderBlock):
            part: dict[str, Any] = msgspec.json.decode(block.data)
            if block.kind == "toolCall":
                calls[part["toolCall"].get("id", "")] = block
            elif block.kind == "toolResponse":
                calls.pop(part["toolResponse"].get("id", ""), None)
    return set(calls.values())


def _encode_tool(tool: Tool, names: ToolNames) -> dict[str, Any]:
    return {
        "name": names.to_wire(tool.name),
        "description": tool.description,
        "parametersJsonSchema": tool.parameters,
    }


def _encode_user_message(message: UserMessage, names: ToolNames) -> Iterator[dict[str, Any]]:
    """Yield tool results first, then their images, then texts and other images.

    All are parts of one content, because all results must directly follow the calls.
    """
    results = [block for block in message.content if isinstance(block, ToolResultBlock)]
    for result in results:
        yield _encode_result(result, names)
    for result in results:
        if result.images:
            yield {"text": make_image_label(result)}
            for image in result.images:
                yield _encode_image(image)
    for block in message.content:
        if isinstance(block, ImageBlock):
            yield _encode_image(block)
        elif isinstance(block, TextBlock) and (text := clean(block.text)):
            yield {"text": text}


def _encode_image(image: ImageBlock) -> dict[str, Any]:
    # The JSON encoder writes bytes as base64.
    return {"inlineData": {"mimeType": image.media_type, "data": image.data}}


def _encode_result(result: ToolResultBlock, names: ToolNames) -> dict[str, Any]:
    response = {
        **_encode_id(result.call_id),
        "name": names.to_wire(result.name),
        "response": {"error" if result.error else "result": result.text},
    }
    return {"functionResponse": response}


def _encode_call(call: ToolCallBlock, names: ToolNames) -> dict[str, Any]:
    return {
        "functionCall": {
            **_encode_id(call.id),
            "name": names.to_wire(call.name),
            "args": get_sendable_arguments(call),
        }
    }


def _encode_id(call_id: str) -> dict[str, str]:
    return {} if call_id.startswith(OWN_ID_PREFIX) else {"id": call_id}
