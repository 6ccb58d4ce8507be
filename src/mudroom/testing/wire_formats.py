"""The providers' wire formats: functions that encode one answer, streamed or whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from .._core.messages import StopReason, TextBlock, ThinkingBlock, ToolCallBlock, Usage
from .._projections.anthropic_shapes import to_anthropic_block, to_anthropic_usage

Block = TextBlock | ThinkingBlock | ToolCallBlock
_encode = msgspec.json.encode
_CHUNK = 24  # characters of text per stream event


class WireAnswer(msgspec.Struct, frozen=True):
    """One answer, independent of provider. Each of a server's answers needs a different `id`."""

    blocks: tuple[Block, ...]
    model: str
    id: str
    usage: Usage
    stop_reason: StopReason


def anthropic_whole(answer: WireAnswer) -> bytes:
    """Encode a Messages answer as JSON."""
    content = [to_anthropic_block(block) for block in answer.blocks]
    return _encode(
        _anthropic_message(answer)
        | {"content": content, "stop_reason": _ANTHROPIC_STOP[answer.stop_reason]}
    )


def anthropic_stream(answer: WireAnswer) -> Iterator[bytes]:
    """Yield a Messages answer as server-sent events."""
    yield _event(
        "message_start",
        message=_anthropic_message(answer)
        | {"usage": to_anthropic_usage(answer.usage) | {"output_tokens": 1}},
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
        "usage": to_anthropic_usage(answer.usage),
    }


def _anthropic_deltas(block: Block) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    content = to_anthropic_block(block)
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
    """Encode a Chat Completions answer as JSON."""
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
    yield _openai_chunk(answer, {"role": "assistant", "content": ""})
    index = -1
    for block in answer.blocks:
        match block:
            case TextBlock():
                yield from (
                    _openai_chunk(answer, {"content": chunk}) for chunk in _chunks(block.text)
                )
            case ThinkingBlock():
                yield from (
                    _openai_chunk(answer, {"reasoning_content": chunk})
                    for chunk in _chunks(block.text)
                )
            case ToolCallBlock():
                index += 1
                empty = _openai_call(block) | {"function": {"name": block.name, "arguments": ""}}
                yield _openai_chunk(answer, {"tool_calls": [{"index": index, **empty}]})
                for chunk in _chunks(_arguments(block)):
                    yield _openai_chunk(
                        answer, {"tool_calls": [{"index": index, "function": {"arguments": chunk}}]}
                    )
    yield _openai_chunk(answer, {}, _OPENAI_STOP[answer.stop_reason])
    yield _data(_openai_frame(answer) | {"choices": [], "usage": _openai_usage(answer.usage)})
    yield b"data: [DONE]\n\n"


def _openai_chunk(answer: WireAnswer, delta: dict[str, Any], finish: str | None = None) -> bytes:
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
        "prompt_tokens_details": _cached(usage),
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _cached(usage: Usage) -> dict[str, int]:
    written = usage.cache_write_tokens
    return {
        "cached_tokens": usage.cache_read_tokens,
        **({"cache_write_tokens": written} if written else {}),
    }


_OPENAI_STOP = {
    StopReason.END: "stop",
    StopReason.CALLS: "tool_calls",
    StopReason.LENGTH: "length",
    StopReason.REFUSAL: "content_filter",
    StopReason.OTHER: "stop",
}


def responses_whole(answer: WireAnswer) -> bytes:
    """Encode a Responses API answer as JSON."""
    return _encode(_response(answer, is_finished=True))


def responses_stream(answer: WireAnswer) -> Iterator[bytes]:
    """Yield a Responses API answer as server-sent events."""
    yield _event("response.created", response=_response(answer, is_finished=False))
    for index, block in enumerate(answer.blocks):
        yield from _response_item_events(block, answer.id, index)
    is_cut = answer.stop_reason in _INCOMPLETE
    name = "response.incomplete" if is_cut else "response.completed"
    yield _event(name, response=_response(answer, is_finished=True))


def _response_item_events(block: Block, answer_id: str, index: int) -> Iterator[bytes]:
    item = _response_item(block, answer_id, index)
    place = {"output_index": index, "item_id": item["id"]}
    text = _arguments(block) if isinstance(block, ToolCallBlock) else block.text
    empty: dict[str, Any]
    empty_part: dict[str, Any] = {}
    match block:
        case TextBlock():
            kind = "output_text"
            part = "content_part"
            place["content_index"] = 0
            empty = {"content": []}
            empty_part = {"type": "output_text", "text": "", "annotations": []}
        case ThinkingBlock():
            kind = "reasoning_summary_text"
            part = "reasoning_summary_part"
            place["summary_index"] = 0
            empty = {"summary": []}
            empty_part = {"type": "summary_text", "text": ""}
        case ToolCallBlock():
            kind = "function_call_arguments"
            part = ""
            empty = {"arguments": ""}
    yield _event("response.output_item.added", output_index=index, item=item | empty)
    if part:
        yield _event(f"response.{part}.added", **place, part=empty_part)
    for chunk in _chunks(text):
        yield _event(f"response.{kind}.delta", **place, delta=chunk)
    if part:
        yield _event(f"response.{part}.done", **place, part=empty_part | {"text": text})
    yield _event("response.output_item.done", output_index=index, item=item)


def _response(answer: WireAnswer, *, is_finished: bool) -> dict[str, Any]:
    reason = _INCOMPLETE.get(answer.stop_reason)
    output = [_response_item(block, answer.id, at) for at, block in enumerate(answer.blocks)]
    return {
        "id": answer.id,
        "object": "response",
        "model": answer.model,
        "status": ("incomplete" if reason else "completed") if is_finished else "in_progress",
        "incomplete_details": {"reason": reason} if reason and is_finished else None,
        "output": output if is_finished else [],
        "usage": _response_usage(answer.usage) if is_finished else None,
    }


def _response_item(block: Block, answer_id: str, index: int) -> dict[str, Any]:
    place = f"{answer_id}_{index}"
    match block:
        case TextBlock():
            part: dict[str, Any] = {"type": "output_text", "text": block.text, "annotations": []}
            fields = {"id": f"msg_{place}", "type": "message", "role": "assistant"}
            return fields | {"content": [part]}
        case ThinkingBlock():
            summary = [{"type": "summary_text", "text": block.text}]
            fields = {"id": f"rs_{place}", "type": "reasoning", "summary": summary}
            return fields | {"encrypted_content": block.signature}
        case ToolCallBlock():
            return {
                "id": f"fc_{place}",
                "type": "function_call",
                "call_id": block.id,
                "name": block.name,
                "arguments": _arguments(block),
            }


def _response_usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": _cached(usage),
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


_INCOMPLETE = {StopReason.LENGTH: "max_output_tokens", StopReason.REFUSAL: "content_filter"}


def google_whole(answer: WireAnswer) -> bytes:
    """Encode a generateContent answer as JSON."""
    parts = [_part(block) for block in answer.blocks]
    return _encode(_candidate(answer, parts, _GOOGLE_STOP[answer.stop_reason]))


def google_stream(answer: WireAnswer) -> Iterator[bytes]:
    """Yield a generateContent answer as server-sent events.

    A call is one event. Text is sent in chunks, the last of which carries the signature.
    """
    parts: list[dict[str, Any]] = []
    for block in answer.blocks:
        part = _part(block)
        chunks = [] if isinstance(block, ToolCallBlock) else list(_chunks(block.text))
        for chunk in chunks[:-1]:
            unsigned = {key: value for key, value in part.items() if key != "thoughtSignature"}
            parts.append(unsigned | {"text": chunk})
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
                "functionCall": {
                    "id": block.id,
                    "name": block.name,
                    "args": msgspec.Raw(_arguments(block).encode()),
                }
            } | signature


def _candidate(
    answer: WireAnswer, parts: Sequence[dict[str, Any]], finish: str = ""
) -> dict[str, Any]:
    usage = answer.usage
    ending = {"finishReason": finish} if finish else {}
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


def ollama_whole(answer: WireAnswer) -> bytes:
    """Encode an Ollama chat API answer as JSON."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    for block in answer.blocks:
        match block:
            case TextBlock():
                message["content"] += block.text
            case ThinkingBlock():
                message["thinking"] = message.get("thinking", "") + block.text
            case ToolCallBlock():
                message.setdefault("tool_calls", []).append(_ollama_call(block))
    return _encode(_ollama_end(answer) | {"message": message})


def ollama_stream(answer: WireAnswer) -> Iterator[bytes]:
    """Yield an Ollama chat API answer as lines of JSON."""
    for block in answer.blocks:
        if isinstance(block, ToolCallBlock):
            parts = [{"content": "", "tool_calls": [_ollama_call(block)]}]
        elif isinstance(block, ThinkingBlock):
            parts = [{"content": "", "thinking": chunk} for chunk in _chunks(block.text)]
        else:
            parts = [{"content": chunk} for chunk in _chunks(block.text)]
        for part in parts:
            message = {"role": "assistant", **part}
            yield _encode({"model": answer.model, "message": message, "done": False}) + b"\n"
    message = {"role": "assistant", "content": ""}
    yield _encode(_ollama_end(answer) | {"message": message}) + b"\n"


def _ollama_call(call: ToolCallBlock) -> dict[str, Any]:
    arguments = msgspec.Raw(_arguments(call).encode())
    return {"id": call.id, "function": {"name": call.name, "arguments": arguments}}


def _ollama_end(answer: WireAnswer) -> dict[str, Any]:
    return {
        "model": answer.model,
        "done": True,
        "done_reason": "length" if answer.stop_reason is StopReason.LENGTH else "stop",
        "prompt_eval_count": answer.usage.input_tokens,
        "eval_count": answer.usage.output_tokens,
    }


WRITERS = {
    "anthropic": (anthropic_stream, anthropic_whole),
    "openai": (openai_stream, openai_whole),
    "openai-responses": (responses_stream, responses_whole),
    "google": (google_stream, google_whole),
    "ollama": (ollama_stream, ollama_whole),
}
"""Dialect -> functions that encode an answer as a stream and whole."""


def _data(value: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % _encode(value)


def _arguments(call: ToolCallBlock) -> str:
    return call.malformed or _encode(call.arguments).decode()


def _chunks(text: str) -> Iterable[str]:
    return (text[at : at + _CHUNK] for at in range(0, len(text), _CHUNK))
