"""How three providers write one answer, streamed or whole: the model server's side of the wires."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from .._core.messages import StopReason, TextBlock, ThinkingBlock, ToolCallBlock, Usage

Block = TextBlock | ThinkingBlock | ToolCallBlock
_JSON = msgspec.json.encode
_PIECE = 24


class WireAnswer(msgspec.Struct, frozen=True):
    """One answer in no dialect. `id` must differ between the answers of a server."""

    blocks: tuple[Block, ...]
    model: str
    id: str
    usage: Usage
    stop_reason: StopReason


def anthropic_whole(reply: WireAnswer) -> bytes:
    """A Messages answer."""
    content = [_anthropic_block(block) for block in reply.blocks]
    return _JSON(
        _anthropic_message(reply)
        | {"content": content, "stop_reason": _ANTHROPIC_STOP[reply.stop_reason]}
    )


def anthropic_stream(reply: WireAnswer) -> Iterator[bytes]:
    """A Messages answer as events."""
    yield _event(
        "message_start",
        message=_anthropic_message(reply)
        | {"usage": _anthropic_usage(reply.usage) | {"output_tokens": 1}},
    )
    yield _event("ping")
    for index, block in enumerate(reply.blocks):
        empty, deltas = _anthropic_deltas(block)
        yield _event("content_block_start", index=index, content_block=empty)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    ending = {"stop_reason": _ANTHROPIC_STOP[reply.stop_reason], "stop_sequence": None}
    yield _event("message_delta", delta=ending, usage={"output_tokens": reply.usage.output_tokens})
    yield _event("message_stop")


def _event(name: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _JSON({"type": name, **fields}))


def _anthropic_message(reply: WireAnswer) -> dict[str, Any]:
    return {
        "id": reply.id,
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _anthropic_usage(reply.usage),
    }


def _anthropic_usage(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "output_tokens": usage.output_tokens,
    }


def _anthropic_block(block: Block) -> dict[str, Any]:
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text}
        case ThinkingBlock(redacted=data) if data:
            return {"type": "redacted_thinking", "data": data}
        case ThinkingBlock():
            return {"type": "thinking", "thinking": block.text, "signature": block.signature}
        case ToolCallBlock():
            return {
                "type": "tool_use",
                "id": block.id,
                "name": block.name,
                "input": block.arguments,
            }


def _anthropic_deltas(block: Block) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    whole = _anthropic_block(block)
    match block:
        case TextBlock():
            return whole | {"text": ""}, [
                {"type": "text_delta", "text": piece} for piece in _pieces(block.text)
            ]
        case ThinkingBlock(redacted=data) if data:
            return whole, []
        case ThinkingBlock():
            thoughts = [
                {"type": "thinking_delta", "thinking": piece} for piece in _pieces(block.text)
            ]
            return whole | {"thinking": "", "signature": ""}, [
                *thoughts,
                {"type": "signature_delta", "signature": block.signature},
            ]
        case ToolCallBlock():
            pieces = ["", *_pieces(_arguments(block))]
            return whole | {"input": {}}, [
                {"type": "input_json_delta", "partial_json": piece} for piece in pieces
            ]


_ANTHROPIC_STOP = {
    StopReason.END: "end_turn",
    StopReason.CALLS: "tool_use",
    StopReason.LENGTH: "max_tokens",
    StopReason.REFUSAL: "refusal",
    StopReason.OTHER: "pause_turn",
}


def openai_whole(reply: WireAnswer) -> bytes:
    """A Chat Completions answer."""
    calls = [_openai_call(block) for block in reply.blocks if isinstance(block, ToolCallBlock)]
    thoughts = "".join(block.text for block in reply.blocks if isinstance(block, ThinkingBlock))
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(b.text for b in reply.blocks if isinstance(b, TextBlock)) or None,
    }
    message |= ({"reasoning_content": thoughts} if thoughts else {}) | (
        {"tool_calls": calls} if calls else {}
    )
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": _OPENAI_STOP[reply.stop_reason],
        "logprobs": None,
    }
    frame = {"id": reply.id, "object": "chat.completion", "created": 0, "model": reply.model}
    return _JSON(frame | {"choices": [choice], "usage": _openai_usage(reply.usage)})


def openai_stream(reply: WireAnswer) -> Iterator[bytes]:
    """A Chat Completions answer as chunks."""
    yield _chunk(reply, {"role": "assistant", "content": ""})
    index = -1
    for block in reply.blocks:
        match block:
            case TextBlock():
                yield from (_chunk(reply, {"content": piece}) for piece in _pieces(block.text))
            case ThinkingBlock():
                yield from (
                    _chunk(reply, {"reasoning_content": piece}) for piece in _pieces(block.text)
                )
            case ToolCallBlock():
                index += 1
                whole = _openai_call(block)
                empty = whole | {"function": {"name": block.name, "arguments": ""}}
                yield _chunk(reply, {"tool_calls": [{"index": index, **empty}]})
                for piece in _pieces(_arguments(block)):
                    yield _chunk(
                        reply, {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
                    )
    yield _chunk(reply, {}, _OPENAI_STOP[reply.stop_reason])
    yield _data(_openai_frame(reply) | {"choices": [], "usage": _openai_usage(reply.usage)})
    yield b"data: [DONE]\n\n"


def _chunk(reply: WireAnswer, delta: dict[str, Any], finish: str | None = None) -> bytes:
    return _data(
        _openai_frame(reply) | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    )


def _openai_frame(reply: WireAnswer) -> dict[str, Any]:
    return {"id": reply.id, "object": "chat.completion.chunk", "created": 0, "model": reply.model}


def _openai_call(call: ToolCallBlock) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": _arguments(call)},
    }


def _openai_usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


_OPENAI_STOP = {
    StopReason.END: "stop",
    StopReason.CALLS: "tool_calls",
    StopReason.LENGTH: "length",
    StopReason.REFUSAL: "content_filter",
    StopReason.OTHER: "stop",
}


def google_whole(reply: WireAnswer) -> bytes:
    """A generateContent answer."""
    return _JSON(
        _candidate(reply, [_part(block) for block in reply.blocks], _GOOGLE_STOP[reply.stop_reason])
    )


def google_stream(reply: WireAnswer) -> Iterator[bytes]:
    """A generateContent answer as events; a call comes whole, words come in pieces, a seal on the last one."""
    parts: list[dict[str, Any]] = []
    for block in reply.blocks:
        whole = _part(block)
        pieces = [] if isinstance(block, ToolCallBlock) else list(_pieces(block.text))
        for piece in pieces[:-1]:
            parts.append(
                {key: value for key, value in whole.items() if key != "thoughtSignature"}
                | {"text": piece}
            )
        parts.append(whole | ({"text": pieces[-1]} if pieces else {}))
    for part in parts[:-1]:
        yield _data(_candidate(reply, [part]))
    yield _data(_candidate(reply, parts[-1:], _GOOGLE_STOP[reply.stop_reason]))


def _part(block: Block) -> dict[str, Any]:
    seal = {"thoughtSignature": block.signature} if block.signature else {}
    match block:
        case TextBlock():
            return {"text": block.text} | seal
        case ThinkingBlock():
            return {"text": block.text, "thought": True} | seal
        case ToolCallBlock():
            return {
                "functionCall": {"id": block.id, "name": block.name, "args": block.arguments}
            } | seal


def _candidate(
    reply: WireAnswer, parts: Sequence[dict[str, Any]], finish: str = ""
) -> dict[str, Any]:
    usage, ending = reply.usage, ({"finishReason": finish} if finish else {})
    counts = {
        "promptTokenCount": usage.input_tokens,
        "cachedContentTokenCount": usage.cache_read_tokens,
        "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
        "thoughtsTokenCount": usage.reasoning_tokens,
        "totalTokenCount": usage.total_tokens,
    }
    candidate = {"content": {"role": "model", "parts": parts}, "index": 0} | ending
    return {
        "candidates": [candidate],
        "usageMetadata": counts,
        "modelVersion": reply.model,
        "responseId": reply.id,
    }


_GOOGLE_STOP = {
    StopReason.END: "STOP",
    StopReason.CALLS: "STOP",
    StopReason.LENGTH: "MAX_TOKENS",
    StopReason.REFUSAL: "SAFETY",
    StopReason.OTHER: "OTHER",
}


def _data(value: Any) -> bytes:
    return b"data: %b\n\n" % _JSON(value)


def _arguments(call: ToolCallBlock) -> str:
    return call.malformed or _JSON(call.arguments).decode()


def _pieces(text: str) -> Iterable[str]:
    return (text[at : at + _PIECE] for at in range(0, len(text), _PIECE))
