"""Reader of a streamed answer of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Raw, Struct
from msgspec.structs import asdict, replace

from ..._core.messages import (
    AssistantBlock,
    AssistantMessage,
    ProviderBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    Usage,
)
from ..._core.ports import StreamChunk
from ...errors import ModelGarbled
from ...projections.web_searches import read_responses_search
from .._http import StreamCut, make_stream_error
from .._json import clean, make_decoder, read_arguments
from .._tool_names import ToolNames
from .._wire import describe_stop
from ._chat_stream import build_tool_call

WIRE = "openai-responses"


class _Part(Struct):
    text: str = ""
    refusal: str = ""


class _ItemType(Struct):
    type: str = ""


class _Item(Struct):
    """One output item that is used: a message, reasoning, a function call or a search."""

    type: str = ""
    id: str | None = None
    status: str | None = None
    action: dict[str, Any] | None = None
    content: list[_Part] | None = None
    summary: list[_Part] | None = None
    encrypted_content: str | None = None
    phase: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: Raw = Raw()


class _InputDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(Struct):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _IncompleteDetails(Struct):
    reason: str | None = None


class _Response(Struct):
    id: str | None = None
    model: str | None = None
    output: list[Raw] | None = None
    usage: _Usage | None = None
    error: Any = None
    incomplete_details: _IncompleteDetails | None = None


class _Event(Struct):
    type: str = ""
    delta: Any = None
    output_index: int | None = None
    summary_index: int = 0
    item: Raw = Raw()
    response: _Response | None = None
    error: Any = None
    code: Any = None
    message: Any = None


_decode = make_decoder(_Event)
_decode_type = make_decoder(_ItemType)
_decode_item = make_decoder(_Item)
_USED_ITEMS = frozenset({"message", "reasoning", "function_call", "web_search_call"})

_CHUNK_KINDS = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "thinking",
    "response.reasoning_text.delta": "thinking",
    "response.function_call_arguments.delta": "call",
}
_LAST_EVENTS = frozenset({"response.completed", "response.incomplete"})
_STOP_REASONS = {
    "completed": StopReason.END,
    "max_output_tokens": StopReason.LENGTH,
    "content_filter": StopReason.REFUSAL,
    "refusal": StopReason.REFUSAL,
}


class ResponsesReader:
    """Reader of one streamed answer.

    Finished items make up the answer; deltas are only shown. Items of other server-side tools than
    the web search are ignored.

    Arguments:
        model: the model name to report when the server sends none.
        wire: the wire to report; it identifies the server.
    """

    def __init__(self, model: str, names: ToolNames, wire: str = WIRE) -> None:
        self._model = model
        self._names = names
        self._wire = wire
        self._items: dict[int, _Item] = {}
        self._last: _Response | None = None
        self._has_valid_event = False
        self._has_event = False

    @property
    def is_done(self) -> bool:
        """True after the last event."""
        return self._last is not None

    def feed(self, data: bytes) -> Sequence[StreamChunk]:
        """Read one event and return its visible chunks. Raises StreamError, msgspec.DecodeError.

        Events after the last one are ignored.
        """
        if self.is_done or data.strip() == b"[DONE]":
            return ()
        event = _decode(data)
        kind = event.type
        self._has_event = True
        if kind == "error" or (not kind and event.error):
            raise make_stream_error(event.error or {"code": event.code, "message": event.message})
        if kind.startswith("response."):
            self._has_valid_event = True
        if chunk_kind := _CHUNK_KINDS.get(kind):
            return [StreamChunk(chunk_kind, event.delta)] if isinstance(event.delta, str) else ()
        if kind == "response.reasoning_summary_part.added" and event.summary_index:
            return [StreamChunk("thinking", _SUMMARY_SEPARATOR)]
        if item := _read_item(event.item):
            return self._add_item(event, item)
        if kind == "response.failed":
            raise make_stream_error(event.response.error if event.response else None)
        if kind in _LAST_EVENTS:
            self._last = event.response or _Response()
        return ()

    def _add_item(self, event: _Event, item: _Item) -> Sequence[StreamChunk]:
        """Keep a finished item; return the line of a search that starts or ends."""
        is_search = item.type == "web_search_call"
        if event.type == "response.output_item.added" and is_search:
            return [StreamChunk("search_start", "searching the web")]
        if event.type != "response.output_item.done":
            return ()
        index = len(self._items) if event.output_index is None else event.output_index
        self._items[index] = item
        return [StreamChunk("search_end", _to_search_block(item).text)] if is_search else ()

    def finish(self) -> AssistantMessage:
        """Return the whole answer.

        Raises StreamCut when the stream ended too early, ModelGarbled when no event follows the
        protocol.
        """
        if self._has_event and not self._has_valid_event:
            raise ModelGarbled("no part of the answer is an event of the Responses API")
        response = self._last
        if response is None:
            raise StreamCut
        items = [self._items[index] for index in sorted(self._items)]
        items = items or [item for raw in response.output or () if (item := _read_item(raw))]
        content: list[AssistantBlock] = []
        used_ids: set[str] = set()
        for item in items:
            if item.type == "function_call":
                call_id = item.call_id or ""
                name = item.name or ""
                arguments = read_arguments(item.arguments)
                call = build_tool_call(call_id, name, arguments, self._names, used_ids)
                content.append(call)
            elif block := _to_block(item):
                content.append(block)
        return AssistantMessage(
            tuple(content),
            usage=replace(_to_usage(response.usage or _Usage()), searches=_count_searches(items)),
            model=response.model or self._model,
            wire=self._wire,
            id=response.id or "",
            **describe_stop(_find_stop_reason(response, items), _STOP_REASONS, content),
        )


_SUMMARY_SEPARATOR = "\n\n"


def _read_item(raw: Raw) -> _Item | None:
    """Decode an item; None for one of a type that is not used, whatever its fields hold."""
    data = bytes(raw)
    is_used = data not in (b"", b"null") and _decode_type(data).type in _USED_ITEMS
    return _decode_item(data) if is_used else None


def _to_block(item: _Item) -> TextBlock | ThinkingBlock | ProviderBlock | None:
    """Return the block of a message, a reasoning item or a search, None if it is empty.

    The signature of a text is the phase that the model names, the signature of reasoning is its
    ciphertext. Both are sent back.
    """
    parts = item.content or []
    if item.type == "message":
        text = clean("".join(part.text or part.refusal for part in parts))
        return TextBlock(text, item.phase or "") if text else None
    if item.type == "web_search_call":
        return _to_search_block(item)
    if item.type != "reasoning":
        return None
    thoughts = [part.text for part in item.summary or parts]
    text = clean(_SUMMARY_SEPARATOR.join(thoughts))
    ciphertext = item.encrypted_content or ""
    return ThinkingBlock(text, ciphertext) if text or ciphertext else None


def _to_search_block(item: _Item) -> ProviderBlock:
    return read_responses_search(asdict(item))


def _count_searches(items: Sequence[_Item]) -> int:
    """Return the number of searches; opening a page is none."""
    actions = [item.action or {} for item in items if item.type == "web_search_call"]
    return sum(action.get("type", "search") == "search" for action in actions)


def _find_stop_reason(response: _Response, items: Sequence[_Item]) -> str:
    """Return the reason of an incomplete answer, "refusal" or "completed"."""
    if response.incomplete_details is not None:
        return response.incomplete_details.reason or "incomplete"
    if any(part.refusal for item in items for part in item.content or ()):
        return "refusal"
    return "completed"


def _to_usage(usage: _Usage) -> Usage:
    sent = usage.input_tokens_details or _InputDetails()
    received = usage.output_tokens_details or _OutputDetails()
    return Usage(
        input_tokens=usage.input_tokens or 0,
        output_tokens=usage.output_tokens or 0,
        cache_read_tokens=sent.cached_tokens or 0,
        cache_write_tokens=sent.cache_write_tokens or 0,
        reasoning_tokens=received.reasoning_tokens or 0,
    )
