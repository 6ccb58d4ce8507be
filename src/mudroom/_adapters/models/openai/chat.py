"""OpenAI Chat Completions: the wire of OpenAI and everyone who speaks its protocol.

That includes Ollama, vLLM, llama.cpp, LM Studio, OpenRouter, DeepSeek and Mistral.
"""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec

from ...._core.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserMessage,
    get_sendable_arguments,
)
from ...._core.ports import RequestConfig
from ....errors import ModelRefused
from .._cache_marks import MarkedConversation
from .._images import has_images, make_data_url, make_image_label
from .._json import clean, encode, make_decoder, read_arguments
from .._tool_names import ToolNames, fit_call_id
from .._wire import (
    REFUSED_CALLS,
    WireConversation,
    WireModel,
    encode_function,
    format_result_text,
    get_sampling,
    join_message_text,
)
from ._chat_stream import (
    REASONING_DETAILS_FIELD,
    REASONING_FIELD,
    WIRE,
    OpenAIReader,
    build_tool_call,
)


class OpenAIModel(WireModel):
    """A model behind Chat Completions.

    Each server counts as a separate wire, because another server does not know its reasoning field
    and may refuse it.
    """

    WIRE = WIRE
    BASE_URL = "https://api.openai.com/v1"
    TOOLS_OFF = b'"tool_choice":"none"'
    HAS_SYSTEM_MESSAGE = True

    def build_url(self, base_url: str) -> str:
        return f"{base_url}/chat/completions"

    def make_conversation(self, config: RequestConfig) -> WireConversation:
        if self.facts.marks_cache:
            return _MarkedChat(self, config)
        return super().make_conversation(config)

    def encode_prefix(self, config: RequestConfig, names: ToolNames) -> bytes:
        fields: dict[str, Any] = {"model": self.model, "stream": True}
        facts = self.facts
        if "stream_options" not in facts.refused:
            fields["stream_options"] = {"include_usage": True}
        if facts.tells_price:
            fields["usage"] = {"include": True}
        if facts.limit_field:
            fields[facts.limit_field] = facts.choose_max_tokens(config.max_tokens)
        fields |= get_sampling(config, facts) | self.encode_cache_key(config)
        if effort := self.get_effort(config):
            fields["reasoning_effort"] = effort
        if config.tools and facts.takes_chat_tools:
            if facts.tool_effort:
                fields["reasoning_effort"] = facts.tool_effort
            fields["tools"] = [encode_function(tool, names) for tool in config.tools]
        return encode(fields)[:-1] + b',"messages":['

    def encode_message(self, message: Message, names: ToolNames) -> list[dict[str, Any]]:
        if isinstance(message, UserMessage):
            return _encode_user_message(message)
        return _encode_assistant_message(message, names, self.wire)

    def fit_entry(self, entry: dict[str, Any]) -> dict[str, Any]:
        facts = self.facts
        if entry["role"] == "system" and not facts.takes_system:
            entry["role"] = "user"
        if facts.marks_cache and entry["role"] != "assistant":
            entry["content"] = _list_items(entry["content"])
        if facts.needs_short_ids:
            _fit_ids(entry, "[A-Za-z0-9]{9}", 9)
        elif limit := facts.max_call_id:
            _fit_ids(entry, f"(?s).{{1,{limit}}}", limit)
        absent = facts.absent_reasoning
        if absent is not None and "tool_calls" in entry and not entry.get(REASONING_FIELD):
            entry[REASONING_FIELD] = absent
        return entry

    def join_entry(self, last: bytes | bytearray, entry: dict[str, Any]) -> dict[str, Any] | None:
        """Merge a user message into the preceding tool or user message if the server demands it.

        The two may come from different turns: if a turn fails after its tools, or its answer is
        empty, the earlier message stays the last one.
        """
        if entry["role"] != "user":
            return None
        result: dict[str, Any] = msgspec.json.decode(last)
        if result["role"] not in ("tool", "user"):
            return None
        content, added = result["content"], entry["content"]
        if isinstance(content, str) and isinstance(added, str):
            joined: str | list[Any] = f"{content}\n\n{added}"
        else:
            joined = [*_list_items(content), *_list_items(added)]
        return result | {"content": joined}

    def check_config(self, config: RequestConfig) -> None:
        super().check_config(config)
        if config.tools and not self.facts.takes_chat_tools:
            raise ModelRefused(
                f"{self.model} takes no tools in Chat Completions",
                where=self.url,
                remedy=f"Name the model as openai-responses:{self.model}.",
            )

    def make_reader(self, names: ToolNames) -> OpenAIReader:
        return OpenAIReader(self.model, names, self.wire)

    def read_refused_answer(self, body: bytes, names: ToolNames) -> AssistantMessage | None:
        """Read the answer inside an error: Groq refuses calls that do not match their schema."""
        calls = read_refused_calls(body, names)
        if not calls:
            return None
        return AssistantMessage(
            calls,
            stop_reason=StopReason.CALLS,
            provider_stop_reason=REFUSED_CALLS,
            model=self.model,
            wire=self.wire,
        )


class _MarkedChat(MarkedConversation):
    def is_markable(self, entry: dict[str, Any]) -> bool:
        # A text is the only kind of item that takes a mark everywhere.
        return entry["role"] != "assistant" and entry["content"][-1]["type"] == "text"


def _encode_user_message(message: UserMessage) -> list[dict[str, Any]]:
    """Encode one message per tool result, then one for all texts and images."""
    entries = [
        _encode_result(block) for block in message.content if isinstance(block, ToolResultBlock)
    ]
    content = _encode_items(message) if has_images(message) else join_message_text(message)
    return [*entries, {"role": "user", "content": content}] if content else entries


def _list_items(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [_encode_text(content)] if isinstance(content, str) else content


def _encode_items(message: UserMessage) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for block in message.content:
        if isinstance(block, ImageBlock):
            items.append(_encode_image(block))
        elif isinstance(block, TextBlock):
            if (text := clean(block.text)).strip():
                items.append(_encode_text(text))
        elif block.images:
            items.append(_encode_text(make_image_label(block)))
            items += [_encode_image(image) for image in block.images]
    return items


def _encode_text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _encode_image(image: ImageBlock) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": make_data_url(image)}}


def _encode_result(result: ToolResultBlock) -> dict[str, Any]:
    text = format_result_text(result)
    return {"role": "tool", "tool_call_id": result.call_id, "content": text}


def _fit_ids(entry: dict[str, Any], form: str, length: int) -> None:
    for call in entry.get("tool_calls", ()):
        call["id"] = fit_call_id(call["id"], form, length)
    if "tool_call_id" in entry:
        entry["tool_call_id"] = fit_call_id(entry["tool_call_id"], form, length)


def _encode_assistant_message(
    message: AssistantMessage, names: ToolNames, wire: str
) -> list[dict[str, Any]]:
    # Reasoning goes back only to the server it came from, in the field it came in. Servers that
    # send it as plain `reasoning` do not accept it.
    text = join_message_text(message)
    calls = [_encode_call(call, names) for call in message.tool_calls]
    if not text and not calls:
        return []
    entry: dict[str, Any] = {"role": "assistant", "content": text or None}
    if message.wire == wire:
        entry |= _encode_reasoning(message)
    if calls:
        entry["tool_calls"] = calls
    return [entry]


def _encode_reasoning(message: AssistantMessage) -> dict[str, Any]:
    reasoning: str | None = None
    for block in message.content:
        if isinstance(block, ThinkingBlock):
            field, _, details = block.signature.partition(":")
            if field == REASONING_DETAILS_FIELD:
                return {REASONING_DETAILS_FIELD: msgspec.Raw(details.encode())}
            if field == REASONING_FIELD:
                reasoning = (reasoning or "") + block.text
    return {} if reasoning is None else {REASONING_FIELD: reasoning}


def _encode_call(call: ToolCallBlock, names: ToolNames) -> dict[str, Any]:
    # OpenAI accepts any string as arguments, but vLLM and Ollama refuse what they cannot parse, so
    # arguments that are not JSON are wrapped.
    arguments = encode(get_sendable_arguments(call)).decode()
    function = {"name": names.to_wire(call.name), "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


_NAME = re.compile(r'"name"\s*:\s*"([^"]+)"|<function=([\w.-]+)')


class _Call(msgspec.Struct):
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw()
    parameters: msgspec.Raw = msgspec.Raw()


_decode_calls = make_decoder(cast("type[list[_Call] | _Call]", list[_Call] | _Call))


class _Error(msgspec.Struct):
    code: str | int | None = None
    failed_generation: str = ""
    error: _Error | None = None


def read_refused_calls(body: bytes, names: ToolNames) -> tuple[ToolCallBlock, ...]:
    """Read the calls inside an error of a response or stream; none for any other body."""
    if REFUSED_CALLS.encode() not in body:
        return ()
    try:
        error = msgspec.json.decode(body, type=_Error)
    except msgspec.DecodeError:
        return ()
    error = error.error or error
    if error.code != REFUSED_CALLS or not error.failed_generation.strip():
        return ()
    used_ids: set[str] = set()
    return tuple(
        build_tool_call("", name, arguments, names, used_ids)
        for name, arguments in _parse_generation(error.failed_generation)
    )


def _parse_generation(text: str) -> list[tuple[str, str]]:
    # Text that holds no calls becomes one call's arguments.
    try:
        value = _decode_calls(text.encode("utf-8", "surrogatepass"))
    except msgspec.DecodeError:
        value = []
    calls: list[tuple[str, str]] = []
    for call in value if isinstance(value, list) else [value]:
        arguments = read_arguments(call.arguments) or read_arguments(call.parameters)
        if call.name is not None and arguments:
            calls.append((call.name, arguments))
    if calls:
        return calls
    match = _NAME.search(text)
    return [((match[1] or match[2]) if match else "unknown", text)]
