"""A Chat Completions answer as it streams in, from OpenAI and from servers that only resemble it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any, cast

from msgspec import Struct

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
from ._http import StreamCut, StreamError
from ._json import clean, encode, make_decoder, parse_arguments
from ._tool_names import ToolNames

WIRE = "openai"
REASONING_FIELD = "reasoning_content"
"""Servers that call reasoning so want it back; those that call it `reasoning` ignore it, or (Groq) refuse it."""


class _Function(Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _ToolCall(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Part(Struct):
    type: str = "text"
    text: str = ""
    thinking: list[_Part] | str = ""


class _Delta(Struct):
    content: str | list[_Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _PromptDetails(Struct):
    cached_tokens: int | None = None


class _CompletionDetails(Struct):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class _Chunk(Struct):
    id: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode = make_decoder(_Chunk)

_STOPS = {
    "stop": StopReason.END,
    "tool_calls": StopReason.CALLS,
    "function_call": StopReason.CALLS,
    "length": StopReason.LENGTH,
    "content_filter": StopReason.REFUSAL,
}
_STATUSES = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "insufficient_quota": 400,
    "invalid_request_error": 400,
    "authentication_error": 401,
    "overloaded_error": 529,
}


class _Draft:
    """A tool call as it grows."""

    __slots__ = ("id", "name", "pieces")

    def __init__(self) -> None:
        self.id, self.name = "", ""
        self.pieces: list[str] = []

    def finish(self, names: ToolNames, taken: set[str]) -> ToolCallBlock:
        if not self.id or self.id in taken:
            self.id = f"call_{uuid.uuid4().hex[:24]}"
        taken.add(self.id)
        given, malformed = parse_arguments("".join(self.pieces))
        return ToolCallBlock(self.id, names.from_wire(self.name), given, malformed)


class OpenAIReader:
    """Reads one streamed answer.

    It is whole once a finish_reason or `[DONE]` came: some servers leave out one of them. Tolerated too: no usage, no ids, tool calls
    without index, all with index 0, or whole in one chunk.

    Arguments:
        model: the name to report when the server gives none.
        names: of the tools offered. wire: which server it is.
    """

    def __init__(self, model: str, names: ToolNames, wire: str = WIRE) -> None:
        self._model, self._names, self._wire = model, names, wire
        self._id = self._finish = self._seal = ""
        self._done = self._refused = False
        self._known = self._foreign = False
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._drafts: list[_Draft] = []
        self._by_index: dict[int, _Draft] = {}
        self._usage = Usage()

    @property
    def is_done(self) -> bool:
        """Whether nothing more will come."""
        return self._done

    def feed(self, data: bytes) -> Sequence[StreamChunk]:
        """Take one payload. Raises Refused for an error sent in place of it, DecodeError for what is no chunk."""
        if data.strip() == b"[DONE]":
            self._done = True
            return ()
        chunk = _decode(data)
        self._foreign = not (self._known or chunk.id or chunk.choices or chunk.usage)
        self._known = not self._foreign
        if chunk.error:
            raise _refusal(chunk.error)
        self._id, self._model = chunk.id or self._id, chunk.model or self._model
        if chunk.usage:
            self._usage = _usage(chunk.usage)
        return self._choice(chunk.choices[0]) if chunk.choices else ()

    def finish(self) -> AssistantMessage:
        """The whole answer. Raises Cut when the stream ended before it did, ModelGarbled when no piece of it was a chunk."""
        if self._foreign:
            raise ModelGarbled("no piece of the answer is a chat completion chunk")
        if not self._finish and not (self._done and (self._texts or self._drafts)):
            raise StreamCut
        taken: set[str] = set()
        calls = [draft.finish(self._names, taken) for draft in self._drafts]
        content: list[TextBlock | ThinkingBlock | ToolCallBlock] = []
        if thoughts := clean("".join(self._thoughts)):
            content.append(ThinkingBlock(thoughts, self._seal))
        if text := clean("".join(self._texts)):
            content.append(TextBlock(text))
        stop = (
            StopReason.REFUSAL
            if self._refused
            else _STOPS.get(self._finish or "stop", StopReason.OTHER)
        )
        if calls and stop is StopReason.END:
            stop = StopReason.CALLS
        return AssistantMessage(
            (*content, *calls),
            stop_reason=stop,
            usage=self._usage,
            model=self._model,
            wire=self._wire,
            id=self._id,
        )

    def _choice(self, choice: _Choice) -> list[StreamChunk]:
        if choice.finish_reason:
            self._finish = choice.finish_reason
        if choice.finish_reason == "error":
            raise StreamError(502, "the provider ended its answer with an error")
        pieces: list[StreamChunk] = []
        delta = choice.delta
        if delta is None:
            return pieces
        text, thought = _words(delta)
        if thought:
            self._seal = REASONING_FIELD if delta.reasoning_content else self._seal
            self._thoughts.append(thought)
            pieces.append(StreamChunk("thinking", thought))
        if text:
            self._texts.append(text)
            pieces.append(StreamChunk("text", text))
        self._refused = self._refused or bool(delta.refusal)
        for call in delta.tool_calls or ():
            pieces += self._call(call)
        return pieces

    def _call(self, part: _ToolCall) -> Iterator[StreamChunk]:
        function = part.function or _Function()
        draft = self._draft(part, function)
        draft.id, draft.name = draft.id or part.id or "", draft.name or function.name or ""
        if given := function.arguments:
            text = given if isinstance(given, str) else encode(given).decode()
            draft.pieces.append(text)
            yield StreamChunk("call", text)

    def _draft(self, part: _ToolCall, function: _Function) -> _Draft:
        """The call a part belongs to: by index if it has one, else the last; a name under another id begins a new one."""
        last = self._drafts[-1] if self._drafts else None
        draft = last if part.index is None else self._by_index.get(part.index)
        begins = (
            bool(function.name)
            and draft is not None
            and (part.id != draft.id if part.id else part.index is None)
        )
        if draft is None or begins:
            draft = _Draft()
            self._drafts.append(draft)
            if part.index is not None:
                self._by_index[part.index] = draft
        return draft


def _words(delta: _Delta) -> tuple[str, str]:
    """The text and the reasoning of a delta, whichever way the server spells them."""
    text, thought = delta.content or "", delta.reasoning_content or delta.reasoning or ""
    if isinstance(text, list):
        thought += "".join(_flat(part.thinking) for part in text if part.type == "thinking")
        text = "".join(part.text for part in text if part.type == "text")
    return text + (delta.refusal or ""), thought


def _flat(thinking: list[_Part] | str) -> str:
    return thinking if isinstance(thinking, str) else "".join(part.text for part in thinking)


def _usage(usage: _Usage) -> Usage:
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        input_tokens=usage.prompt_tokens or 0,
        output_tokens=usage.completion_tokens or 0,
        cache_read_tokens=(prompt.cached_tokens or 0) if prompt else 0,
        reasoning_tokens=(completion.reasoning_tokens or 0) if completion else 0,
    )


def _refusal(error: Any) -> StreamError:
    """An error object in the stream, as the status it would have had as an answer."""
    if not isinstance(error, dict):
        return StreamError(500, str(error))
    fields = cast("dict[str, Any]", error)
    for key in ("code", "status", "type"):
        value: Any = fields.get(key)
        if isinstance(value, str):
            value = int(value) if value.isdigit() else _STATUSES.get(value)
        if isinstance(value, int) and 400 <= value < 600:
            return StreamError(value, str(fields.get("message") or value))
    return StreamError(500, str(fields.get("message") or "the provider sent an error"))
