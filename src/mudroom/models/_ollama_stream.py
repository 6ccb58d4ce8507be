"""Reader of a streamed answer of Ollama's own API: lines of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Raw, Struct

from .._core.messages import (
    AssistantMessage,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
)
from .._core.ports import StreamChunk
from ..errors import ModelGarbled
from ._http import StreamCut, make_stream_error
from ._json import clean, make_decoder, read_arguments
from ._tool_names import ToolNames
from ._wire import describe_stop
from .openai._chat_stream import build_tool_call


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
    """Reader of one streamed answer, which is complete after a line with `done`.

    Arguments:
        model: the model name to report when the server sends none.
        wire: the wire to report; it identifies the server.
    """

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
        """True after the last line."""
        return self._last is not None

    def feed(self, data: bytes) -> Sequence[StreamChunk]:
        """Read one line and return its visible chunks. Raises StreamError, msgspec.DecodeError."""
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
        """Return the whole answer.

        Raises StreamCut when the stream ended too early, ModelGarbled when no line follows the
        protocol.
        """
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
