"""OpenAI Chat Completions, and every server that speaks it: Ollama, vLLM, llama.cpp, LM Studio, OpenRouter, DeepSeek and more."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from .._core.messages import (
    AssistantMessage,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserMessage,
)
from .._core.ports import RequestConfig, RetryNotice, StreamChunk
from .._core.tools import Tool
from ._http import HttpClient
from ._json import clean, encode
from ._openai_stream import REASONING_FIELD, WIRE, OpenAIReader
from ._request_prefix import PrefixCache
from ._tool_names import ToolNames

BASE_URL = "https://api.openai.com/v1"


class OpenAIModel:
    """A model behind Chat Completions.

    Each server is a wire of its own: one's reasoning is an unknown field, and so an error, to another.
    `strict` tells a server (Mistral's) that refuses what others pass over.

    Arguments:
        model: the name the server knows it by.
        http: connections and gate of this provider.
        key: sent as bearer token; "" sends none, as local servers want.
        base_url: everything before `/chat/completions`.
        headers: sent beside our own. name: the model string; "openai:MODEL" by default.
    """

    def __init__(
        self,
        model: str,
        *,
        http: HttpClient,
        key: str = "",
        base_url: str = BASE_URL,
        headers: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> None:
        self.model, self.http, self.name = model, http, name or f"openai:{model}"
        self.url = base_url.rstrip("/") + "/chat/completions"
        host = urlsplit(self.url).netloc.rpartition("@")[2]
        self.is_openai, self.is_strict = host == "api.openai.com", host == "api.mistral.ai"
        self.wire = WIRE if self.is_openai else f"{WIRE}:{host}"
        bearer = {"Authorization": f"Bearer {key}"} if key else {}
        self.headers = {"Content-Type": "application/json", **bearer, **(headers or {})}
        self.prefixes = PrefixCache(lambda setup, names: _head(self, setup, names))

    def start_conversation(self, setup: RequestConfig) -> OpenAIConversation:
        """Begin a conversation; costs no request."""
        return OpenAIConversation(self, setup)

    async def close(self) -> None:
        """Let go of connections."""
        await self.http.close()


class OpenAIConversation:
    """One conversation: a head that never changes, and the messages' bytes, each encoded once."""

    def __init__(self, model: OpenAIModel, setup: RequestConfig) -> None:
        self._model, self._head = model, model.prefixes.get(setup)
        self._kept = bytearray()
        if system := clean(setup.system):
            self._append({"role": "system", "content": system})

    def append(self, message: Message) -> None:
        """Append a message."""
        names, wire, strict = self._head.names, self._model.wire, self._model.is_strict
        for entry in (
            _from_user(message, joined=strict)
            if isinstance(message, UserMessage)
            else _from_assistant(message, names, wire)
        ):
            self._append(entry)

    def request_answer(
        self, *, tools: bool = True
    ) -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
        """Ask for the next answer. Raises ModelError."""
        model = self._model
        return model.http.stream_answer(
            model.url,
            model.headers,
            self.build_body(tools=tools),
            lambda: OpenAIReader(model.model, self._head.names, model.wire),
        )

    def build_body(self, *, tools: bool = True) -> bytes:
        """The request as it is sent."""
        tail = b"]}" if tools or not self._head.has_tools else b'],"tool_choice":"none"}'
        return b"".join((self._head.data, self._kept, tail))

    def _append(self, entry: dict[str, Any]) -> None:
        if self._kept:
            self._kept += b","
        self._kept += encode(entry)


def _head(model: OpenAIModel, setup: RequestConfig, names: ToolNames) -> bytes:
    fields: dict[str, Any] = {"model": model.model, "stream": True}
    if not model.is_strict:
        fields["stream_options"] = {"include_usage": True}
    limit = setup.max_tokens or _most_tokens(model.model, at_home=model.is_openai)
    fields["max_completion_tokens" if model.is_openai else "max_tokens"] = limit
    if not (model.is_openai and _reasons(model.model)):
        sampling = {"temperature": setup.temperature, "top_p": setup.top_p}
        fields |= {key: value for key, value in sampling.items() if value is not None}
    if setup.tools:
        fields["tools"] = [_declare(tool, names) for tool in setup.tools]
    return encode(fields)[:-1] + b',"messages":['


def _reasons(model: str) -> bool:
    """Whether a model of OpenAI's refuses `temperature` and `top_p`."""
    return re.match(r"(ft:)?(o\d|gpt-([5-9]|\d\d))", model) is not None


def _most_tokens(model: str, *, at_home: bool) -> int:
    """How long an answer may be when nobody says: long enough to write a file, and no more than the model's own limit."""
    if not at_home:
        return 8_192
    if _reasons(model):
        return 32_000
    return 4_096 if model.startswith(("gpt-3.5", "gpt-4-")) or model == "gpt-4" else 16_384


def _declare(tool: Tool, names: ToolNames) -> dict[str, Any]:
    function = {
        "name": names.to_wire(tool.name),
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": function}


def _from_user(message: UserMessage, *, joined: bool) -> list[dict[str, Any]]:
    """Results first, each a message of its own, then all words as one; `joined` puts the words into the last result instead."""
    wired: list[dict[str, Any]] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            text = clean(block.text) or "(empty)"
            if block.error and not text.lower().startswith("error"):
                text = f"Error: {text}"
            wired.append({"role": "tool", "tool_call_id": block.call_id, "content": text})
    words = "\n\n".join(
        text
        for block in message.content
        if isinstance(block, TextBlock) and (text := clean(block.text)).strip()
    )
    if words and wired and joined:
        wired[-1]["content"] += f"\n\n{words}"
    elif words:
        wired.append({"role": "user", "content": words})
    return wired


def _from_assistant(message: AssistantMessage, names: ToolNames, wire: str) -> list[dict[str, Any]]:
    """One message, or none when nothing in it may be sent. Reasoning goes back where it came from, if it came by the name of SEALED."""
    texts = [
        text
        for block in message.content
        if isinstance(block, TextBlock) and (text := clean(block.text)).strip()
    ]
    calls = [_from_call(call, names) for call in message.tool_calls]
    if not texts and not calls:
        return []
    entry: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(texts) or None}
    thoughts = "".join(
        block.text
        for block in message.content
        if isinstance(block, ThinkingBlock) and block.signature == REASONING_FIELD
    )
    if thoughts and message.wire == wire:
        entry[REASONING_FIELD] = thoughts
    if calls:
        entry["tool_calls"] = calls
    return [entry]


def _from_call(call: ToolCallBlock, names: ToolNames) -> dict[str, Any]:
    """A call as it goes back. Raw text that is no JSON is wrapped: OpenAI takes any string, but vLLM and Ollama parse it and refuse."""
    given = {"INVALID_JSON": call.malformed} if call.malformed else call.arguments
    function = {"name": names.to_wire(call.name), "arguments": encode(given).decode()}
    return {"id": call.id, "type": "function", "function": function}
