"""Wire formats of three providers: functions that encode one answer, streamed or whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from .._core.messages import StopReason, TextBlock, ThinkingBlock, ToolCallBlock, Usage

Block = TextBlock | ThinkingBlock | ToolCallBlock
_encode = msgspec.json.encode
_CHUNK = 24
"""Characters of text in one event of a stream."""


class WireAnswer(msgspec.Struct, frozen=True):
    """One answer, independent of a provider. Each answer of a server needs another `id`."""

    blocks: tuple[Block, ...]
    model: str
    id: str
    usage: Usage
    stop_reason: StopReason


def anthropic_whole(answer: WireAnswer) -> bytes:
    """Return a Messages answer as JSON."""
    content = [_anthropic_block(block) for block in answer.blocks]
    return _encode(
        _anthropic_message(answer)
        | {"content": content, "stop_reason": _ANTHROPIC_STOP[answer.stop_reason]}
    )


def anthropic_stream(answer: WireAnswer) -> Iterator[bytes]:
    """Yield a Messages answer as server-sent events."""
    yield _event(
        "message_start",
        message=_anthropic_message(answer)
        | {"usage": _anthropic_usage(answer.usage) | {"output_tokens": 1}},
    )
    yield _event("ping")
    for index, block in enumerate(answer.blocks):
        empty, deltas = _anthropic_deltas(block)
        yield _event("content_block_start", index=index, content_block=empty)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    ending = {"stop_reason": _ANTHROPIC_STOP[answer.stop_reason], "stop_sequence": None}
    yield _event("message_delta", delta=ending, usage={"output_tokens": answer.usage.output_tokens})
    yield _event("message_stop")


def _event(name: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _encode({"type": name, **fields}))


def _anthropic_message(answer: WireAnswer) -> dict[str, Any]:
    return {
        "id": answer.id,
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _anthropic_usage(answer.usage),
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
    content = _anthropic_block(block)
    match block:
        case TextBlock():
            return content | {"text": ""}, [
                {"type": "text_delta", "text": chunk} for chunk in _chunks(block.text)
            ]
        case ThinkingBlock(redacted=data) if data:
            return content, []
        case ThinkingBlock():
            thinking = [
                {"type": "thinking_delta", "thinking": chunk} for chunk in _chunks(block.text)
            ]
            return content | {"thinking": "", "signature": ""}, [
                *thinking,
                {"type": "signature_delta", "signature": block.signature},
            ]
        case ToolCallBlock():
            chunks = ["", *_chunks(_arguments(block))]
            return content | {"input": {}}, [
                {"type": "input_json_delta", "partial_json": chunk} for chunk in chunks
            ]


_ANTHROPIC_STOP = {
    StopReason.END: "end_turn",
    StopReason.CALLS: "tool_use",
    StopReason.LENGTH: "max_tokens",
    StopReason.REFUSAL: "refusal",
    StopReason.OTHER: "pause_turn",
}


def openai_whole(answer: WireAnswer) -> bytes:
    """Return a Chat Completions answer as JSON."""
    calls = [_openai_call(block) for block in answer.blocks if isinstance(block, ToolCallBlock)]
    thinking = "".join(block.text for block in answer.blocks if isinstance(block, ThinkingBlock))
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(b.text for b in answer.blocks if isinstance(b, TextBlock)) or None,
    }
    if thinking:
        message["reasoning_content"] = thinking
    if calls:
        message["tool_calls"] = calls
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": _OPENAI_STOP[answer.stop_reason],
        "logprobs": None,
    }
    frame = {"id": answer.id, "object": "chat.completion", "created": 0, "model": answer.model}
    return _encode(frame | {"choices": [choice], "usage": _openai_usage(answer.usage)})


def openai_stream(answer: WireAnswer) -> Iterator[bytes]:
    """Yield a Chat Completions answer as server-sent events."""
    yield _chunk(answer, {"role": "assistant", "content": ""})
    index = -1
    for block in answer.blocks:
        match block:
            case TextBlock():
                yield from (_chunk(answer, {"content": chunk}) for chunk in _chunks(block.text))
            case ThinkingBlock():
                yield from (
                    _chunk(answer, {"reasoning_content": chunk}) for chunk in _chunks(block.text)
                )
            case ToolCallBlock():
                index += 1
                empty = _openai_call(block) | {"function": {"name": block.name, "arguments": ""}}
                yield _chunk(answer, {"tool_calls": [{"index": index, **empty}]})
                for chunk in _chunks(_arguments(block)):
                    yield _chunk(
                        answer, {"tool_calls": [{"index": index, "function": {"arguments": chunk}}]}
                    )
    yield _chunk(answer, {}, _OPENAI_STOP[answer.stop_reason])
    yield _data(_openai_frame(answer) | {"choices": [], "usage": _openai_usage(answer.usage)})
    yield b"data: [DONE]\n\n"


def _chunk(answer: WireAnswer, delta: dict[str, Any], finish: str | None = None) -> bytes:
    return _data(
        _openai_frame(answer) | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    )


def _openai_frame(answer: WireAnswer) -> dict[str, Any]:
    return {"id": answer.id, "object": "chat.completion.chunk", "created": 0, "model": answer.model}


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


def google_whole(answer: WireAnswer) -> bytes:
    """Return a generateContent answer as JSON."""
    return _encode(
        _candidate(
            answer, [_part(block) for block in answer.blocks], _GOOGLE_STOP[answer.stop_reason]
        )
    )


def google_stream(answer: WireAnswer) -> Iterator[bytes]:
    """Yield a generateContent answer as server-sent events.

    A call is one event. Text is sent in chunks, the last of which carries the signature.
    """
    parts: list[dict[str, Any]] = []
    for block in answer.blocks:
        part = _part(block)
        chunks = [] if isinstance(block, ToolCallBlock) else list(_chunks(block.text))
        for chunk in chunks[:-1]:
            parts.append(
                {key: value for key, value in part.items() if key != "thoughtSignature"}
                | {"text": chunk}
            )
        parts.append(part | ({"text": chunks[-1]} if chunks else {}))
    for part in parts[:-1]:
        yield _data(_candidate(answer, [part]))
    yield _data(_candidate(answer, parts[-1:], _GOOGLE_STOP[answer.stop_reason]))


def _part(block: Block) -> dict[str, Any]:
    signature = {"thoughtSignature": block.signature} if block.signature else {}
    match block:
        case TextBlock():
            return {"text": block.text} | signature
        case ThinkingBlock():
            return {"text": block.text, "thought": True} | signature
        case ToolCallBlock():
            return {
                "functionCall": {"id": block.id, "name": block.name, "args": block.arguments}
            } | signature


def _candidate(
    answer: WireAnswer, parts: Sequence[dict[str, Any]], finish: str = ""
) -> dict[str, Any]:
    usage, ending = answer.usage, ({"finishReason": finish} if finish else {})
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
        "modelVersion": answer.model,
        "responseId": answer.id,
    }


_GOOGLE_STOP = {
    StopReason.END: "STOP",
    StopReason.CALLS: "STOP",
    StopReason.LENGTH: "MAX_TOKENS",
    StopReason.REFUSAL: "SAFETY",
    StopReason.OTHER: "OTHER",
}


def _data(value: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % _encode(value)


def _arguments(call: ToolCallBlock) -> str:
    return call.malformed or _encode(call.arguments).decode()


def _chunks(text: str) -> Iterable[str]:
    return (text[at : at + _CHUNK] for at in range(0, len(text), _CHUNK))
