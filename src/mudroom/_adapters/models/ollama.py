"""Ollama's own chat API, which lets each request set the context window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Raw, Struct

from ..._core.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
    UserMessage,
    get_sendable_arguments,
)
from ..._core.ports import RequestConfig, StreamChunk
from ...errors import ModelGarbled
from ._http import StreamCut, make_stream_error
from ._images import make_image_label
from ._json import clean, encode, make_decoder, read_arguments
from ._tool_names import ToolNames
from ._wire import (
    RequestPrefix,
    WireConversation,
    WireModel,
    describe_stop,
    encode_function,
    format_result_text,
    get_sampling,
    join_message_text,
)
from .openai._chat_stream import build_tool_call


class OllamaModel(WireModel):
    WIRE = "ollama"
    BASE_URL = "http://127.0.0.1:11434"
    TOOLS_OFF = b""
    HAS_SYSTEM_MESSAGE = True

    def build_url(self, base_url: str) -> str:
        return f"{base_url}/api/chat"

    def make_conversation(self, config: RequestConfig) -> WireConversation:
        return _OllamaConversation(self, config)

    def encode_prefix(self, config: RequestConfig, names: ToolNames) -> bytes:
        options: dict[str, Any] = {
            "num_predict": self.facts.choose_max_tokens(config.max_tokens),
            **get_sampling(config, self.facts),
        }
        if self.facts.context_window:
            options["num_ctx"] = self.facts.context_window
        fields: dict[str, Any] = {
            "model": self.model,
            "stream": True,
            # Refuse an overlong prompt instead of silently dropping its start.
            "truncate": False,
            # End an answer when the window is full instead of dropping the prompt's start.
            "shift": False,
            "options": options,
        }
        if effort := self.get_effort(config):
            # Its levels end at "high".
            fields["think"] = effort if effort in ("low", "medium") else "high"
        return encode(fields)[:-1] + b',"messages":['

    def encode_message(self, message: Message, names: ToolNames) -> list[dict[str, Any]]:
        if isinstance(message, UserMessage):
            return _encode_user_message(message, names)
        return _encode_assistant_message(message, names, self.wire)

    def make_reader(self, names: ToolNames) -> OllamaReader:
        return OllamaReader(self.model, names, self.wire)


class _OllamaConversation(WireConversation):
    """A conversation with its tools at the end of the body, where a request can omit them."""

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
            self._tools = encode([encode_function(tool, prefix.names) for tool in sent])
            self._tools_prefix = prefix
        return b'],"tools":%b}' % self._tools


def _encode_user_message(message: UserMessage, names: ToolNames) -> list[dict[str, Any]]:
    """Encode one message per tool result, then one for all texts and images."""
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
    """Encode an answer; its thinking goes back only to the server it came from."""
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


class _Function(Struct, frozen=True):
    name: str = ""
    arguments: Raw = Raw()


class _ToolCall(Struct):
    id: str = ""
    function: _Function = _Function()


class _Message(Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Chunk(Struct):
    model: str = ""
    message: _Message | None = None
    done: bool = False
    done_reason: str = ""
    prompt_eval_count: int = 0
    eval_count: int = 0
    error: Any = None


_decode = make_decoder(_Chunk)
_STOP_REASONS = {"stop": StopReason.END, "length": StopReason.LENGTH}


class OllamaReader:
    """Reads a streamed answer, which is complete after a line with `done`."""

    def __init__(self, model: str, names: ToolNames, wire: str) -> None:
        self._model = model
        self._names = names
        self._wire = wire
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[tuple[str, str, str]] = []
        self._last: _Chunk | None = None
        self._has_valid_chunk = False
        self._has_chunk = False

    @property
    def is_done(self) -> bool:
        return self._last is not None

    def feed(self, data: bytes) -> Sequence[StreamChunk]:
        if self.is_done:
            return ()
        chunk = _decode(data)
        self._has_chunk = True
        if chunk.error:
            raise make_stream_error(chunk.error)
        self._model = chunk.model or self._model
        self._has_valid_chunk = self._has_valid_chunk or chunk.done or chunk.message is not None
        if chunk.done:
            self._last = chunk
        return self._read_message(chunk.message) if chunk.message else ()

    def finish(self) -> AssistantMessage:
        if self._has_chunk and not self._has_valid_chunk:
            raise ModelGarbled("no line of the answer is one of Ollama's chat API")
        last = self._last
        if last is None:
            raise StreamCut
        content: list[TextBlock | ThinkingBlock | ToolCallBlock] = []
        if thoughts := clean("".join(self._thoughts)):
            content.append(ThinkingBlock(thoughts))
        if text := clean("".join(self._texts)):
            content.append(TextBlock(text))
        used_ids: set[str] = set()
        for call_id, name, arguments in self._calls:
            content.append(build_tool_call(call_id, name, arguments, self._names, used_ids))
        return AssistantMessage(
            tuple(content),
            usage=Usage(last.prompt_eval_count, last.eval_count),
            model=self._model,
            wire=self._wire,
            **describe_stop(last.done_reason or "stop", _STOP_REASONS, content),
        )

    def _read_message(self, message: _Message) -> list[StreamChunk]:
        chunks: list[StreamChunk] = []
        if message.thinking:
            self._thoughts.append(message.thinking)
            chunks.append(StreamChunk("thinking", message.thinking))
        if message.content:
            self._texts.append(message.content)
            chunks.append(StreamChunk("text", message.content))
        for call in message.tool_calls or ():
            arguments = read_arguments(call.function.arguments)
            self._calls.append((call.id, call.function.name, arguments))
            chunks.append(StreamChunk("call", arguments or "{}"))
        return chunks
