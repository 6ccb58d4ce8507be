"""Reads a streamed Chat Completions answer, from OpenAI and the many servers like it."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, cast

from msgspec import Raw, Struct

from ...._core.messages import (
    AssistantMessage,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
)
from ...._core.ports import StreamChunk
from ....errors import ModelGarbled
from .._http import CONTEXT_FULL, WINDOW_IS_FULL, StreamCut, StreamError, make_stream_error
from .._json import clean, encode, make_decoder, parse_arguments, read_arguments
from .._tool_names import ToolNames
from .._wire import describe_stop

WIRE = "openai"
# Servers that send reasoning in this field expect it back in the next request. Those that call it
# `reasoning` ignore it, and one (Groq) refuses it.
REASONING_FIELD = "reasoning_content"

# OpenRouter's field with signed or encrypted reasoning, which must be sent back unchanged. A
# ThinkingBlock keeps it as its signature: the name of this field, a colon, JSON.
REASONING_DETAILS_FIELD = "reasoning_details"


class _Function(Struct):
    name: str | None = None
    arguments: Raw = Raw()


class _ToolCall(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _ContentItem(Struct):
    type: str = "text"
    text: str = ""
    thinking: list[_ContentItem] | str = ""


class _Delta(Struct):
    content: str | list[_ContentItem] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _PromptDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _CompletionDetails(Struct):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    cached_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None
    cost: Any = None
    cost_details: Any = None
    is_byok: bool | None = None
    cost_in_usd_ticks: int | None = None


class _Chunk(Struct):
    id: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode = make_decoder(_Chunk)

# In lower case; servers use different words.
_STOP_REASONS = {
    **dict.fromkeys(
        ("stop", "stop_sequence", "end_turn", "eos", "eos_token", "complete"), StopReason.END
    ),
    **dict.fromkeys(("tool_calls", "tool_call", "tool_use", "function_call"), StopReason.CALLS),
    **dict.fromkeys(("length", "max_tokens"), StopReason.LENGTH),
    **dict.fromkeys(("content_filter", "refusal", "sensitive"), StopReason.REFUSAL),
}
_TICKS_PER_USD = 1e10  # the unit in which xAI states prices
# Finish reasons that mean the server failed.
_FAILURES = frozenset({"error", "network_error", "insufficient_system_resource"})


class _PartialCall:
    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []


def build_tool_call(
    call_id: str,
    name: str,
    arguments: str,
    names: ToolNames,
    used_ids: set[str],
) -> ToolCallBlock:
    """Build a complete call, with a new id if it has none or one of `used_ids`, which gets it."""
    if not call_id or call_id in used_ids:
        call_id = f"call_{uuid.uuid4().hex[:24]}"
    used_ids.add(call_id)
    parsed, malformed = parse_arguments(arguments)
    return ToolCallBlock(call_id, names.from_wire(name), parsed, malformed)


class OpenAIReader:
    """Reads a streamed answer.

    The answer is complete after a finish reason or `[DONE]`; some servers send only one of them.
    Streams without usage or ids are accepted, and so are tool calls without an index, all with
    index 0, or whole in one chunk.
    """

    def __init__(self, model: str, names: ToolNames, wire: str = WIRE) -> None:
        self._model = model
        self._names = names
        self._wire = wire
        self._id = ""
        self._finish_reason = ""
        self._reasoning_field = ""
        self.is_done = False
        self._is_refusal = False
        self._has_valid_chunk = False
        self._has_only_foreign_chunks = False
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._details: list[dict[str, Any]] = []
        self._calls: list[_PartialCall] = []
        self._calls_by_index: dict[int, _PartialCall] = {}
        self._usage = Usage()

    def feed(self, data: bytes) -> Sequence[StreamChunk]:
        if data.strip() == b"[DONE]":
            self.is_done = True
            return ()
        chunk = _decode(data)
        # Events of other protocols also have a field `usage`.
        if chunk.id or chunk.choices:
            self._has_valid_chunk = True
        self._has_only_foreign_chunks = not self._has_valid_chunk
        if chunk.error:
            raise make_stream_error(chunk.error)
        self._id = chunk.id or self._id
        self._model = chunk.model or self._model
        if chunk.usage:
            self._usage = _to_usage(chunk.usage)
        return self._read_choice(chunk.choices[0]) if chunk.choices else ()

    def finish(self) -> AssistantMessage:
        if self._has_only_foreign_chunks:
            raise ModelGarbled("no part of the answer is a chat completion chunk")
        if not self._finish_reason and not (self.is_done and (self._texts or self._calls)):
            raise StreamCut
        content: list[TextBlock | ThinkingBlock | ToolCallBlock] = []
        thoughts = clean("".join(self._thoughts))
        signature = self._reasoning_field
        if any(_is_sealed(detail) for detail in self._details):
            signature = f"{REASONING_DETAILS_FIELD}:{encode(self._details).decode()}"
        # DeepSeek expects the field back with calls, even if it was empty.
        if thoughts or (signature and (self._calls or signature != REASONING_FIELD)):
            content.append(ThinkingBlock(thoughts, signature))
        if text := clean("".join(self._texts)):
            content.append(TextBlock(text))
        used_ids: set[str] = set()
        for call in self._calls:
            arguments = "".join(call.arguments)
            content.append(build_tool_call(call.id, call.name, arguments, self._names, used_ids))
        own_reason = "refusal" if self._is_refusal else self._finish_reason or "stop"
        return AssistantMessage(
            tuple(content),
            usage=self._usage,
            model=self._model,
            wire=self._wire,
            id=self._id,
            **describe_stop(own_reason.lower(), _STOP_REASONS, content),
        )

    def _read_choice(self, choice: _Choice) -> list[StreamChunk]:
        if choice.finish_reason:
            self._finish_reason = choice.finish_reason
            _check_finish_reason(choice.finish_reason)
        chunks: list[StreamChunk] = []
        delta = choice.delta
        if delta is None:
            return chunks
        text, thought = _split_delta(delta)
        if delta.reasoning_content is not None:
            self._reasoning_field = REASONING_FIELD
        if thought:
            self._thoughts.append(thought)
            chunks.append(StreamChunk("thinking", thought))
        if text:
            self._texts.append(text)
            chunks.append(StreamChunk("text", text))
        for detail in delta.reasoning_details or ():
            _merge_detail(self._details, detail)
        if delta.refusal:
            self._is_refusal = True
        for call in delta.tool_calls or ():
            chunks += self._read_call(call)
        return chunks

    def _read_call(self, fragment: _ToolCall) -> Iterator[StreamChunk]:
        function = fragment.function or _Function()
        call = self._find_call(fragment, function)
        call.id = call.id or fragment.id or ""
        call.name = call.name or function.name or ""
        if text := read_arguments(function.arguments):
            call.arguments.append(text)
            yield StreamChunk("call", text)

    def _find_call(self, fragment: _ToolCall, function: _Function) -> _PartialCall:
        # A fragment continues the call with its index, or the last call if it has no index. But a
        # function name starts a new call if the id differs, or if there is neither id nor index:
        # some servers send index 0 for every call.
        index = fragment.index
        last = self._calls[-1] if self._calls else None
        call = last if index is None else self._calls_by_index.get(index)
        if call is not None and function.name:
            starts_new = fragment.id != call.id if fragment.id else index is None
            if starts_new:
                call = None
        if call is None:
            call = _PartialCall()
            self._calls.append(call)
            if index is not None:
                self._calls_by_index[index] = call
        return call


def _is_sealed(detail: dict[str, Any]) -> bool:
    return bool(detail.get("signature") or detail.get("data"))


def _merge_detail(details: list[dict[str, Any]], fragment: dict[str, Any]) -> None:
    """Add a fragment of a reasoning detail, joined to the last detail if it continues that."""
    last = details[-1] if details else {}
    if any(last.get(key) != fragment.get(key) for key in ("type", "index")) or "data" in fragment:
        details.append(dict(fragment))
        return
    for key, value in fragment.items():
        if key in ("text", "summary") and isinstance(value, str):
            last[key] = (last.get(key) or "") + value
        elif value is not None:
            last[key] = value


def _split_delta(delta: _Delta) -> tuple[str, str]:
    """Split a delta into text and reasoning, however the server spells them."""
    thought = delta.reasoning_content or delta.reasoning or ""
    content = delta.content or ""
    if isinstance(content, list):
        thought += "".join(_flatten(item.thinking) for item in content if item.type == "thinking")
        content = "".join(item.text for item in content if item.type == "text")
    return content + (delta.refusal or ""), thought


def _flatten(thinking: list[_ContentItem] | str) -> str:
    return thinking if isinstance(thinking, str) else "".join(item.text for item in thinking)


def _to_usage(usage: _Usage) -> Usage:
    """Convert the usage; tokens found only in the total are output.

    xAI and Gemini's compatible endpoint count reasoning outside `completion_tokens`. Moonshot has
    `cached_tokens` at the top level, and Alibaba calls writes to its cache as Anthropic does.
    """
    prompt = usage.prompt_tokens_details or _PromptDetails()
    completion = usage.completion_tokens_details or _CompletionDetails()
    sent = usage.prompt_tokens or 0
    return Usage(
        input_tokens=sent,
        output_tokens=max(usage.completion_tokens or 0, (usage.total_tokens or 0) - sent),
        cache_read_tokens=prompt.cached_tokens or usage.cached_tokens or 0,
        cache_write_tokens=prompt.cache_write_tokens or prompt.cache_creation_input_tokens or 0,
        reasoning_tokens=completion.reasoning_tokens or 0,
        usd=_read_price(usage),
    )


def _read_price(usage: _Usage) -> float | None:
    """Read the price stated by a gateway; None for none, or for 0, which may mean unknown.

    OpenRouter does not include charges to the user's own key at the model's provider.
    """
    if usage.cost_in_usd_ticks:
        return usage.cost_in_usd_ticks / _TICKS_PER_USD
    price = _to_price(usage.cost, "total_cost")
    if usage.is_byok:
        price += _to_price(usage.cost_details, "upstream_inference_cost")
    return price or None


def _to_price(value: object, field: str) -> float:
    """Read a price given as a number, a text, or a field of an object; 0 for anything else."""
    if isinstance(value, dict):
        value = cast("dict[str, Any]", value).get(field)
    try:
        price = float(cast("Any", value))
    except (TypeError, ValueError):
        return 0.0
    return price if 0 < price < math.inf else 0.0


def _check_finish_reason(reason: str) -> None:
    if reason.lower() in CONTEXT_FULL:
        raise StreamError(400, f"{WINDOW_IS_FULL} ({reason})")
    if reason in _FAILURES:
        raise StreamError(502, f"the provider ended its answer: {reason}")
