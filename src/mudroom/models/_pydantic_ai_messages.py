"""Conversion of messages and stream events between mudroom's and pydantic-ai's types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from .._core.messages import (
    AssistantMessage,
    ImageBlock,
    ProviderBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
    UserMessage,
)
from .._core.ports import StreamChunk
from ._http import StreamCut
from ._json import clean, encode, parse_arguments
from ._tool_names import ToolNames
from ._wire import describe_stop

if TYPE_CHECKING:
    from pydantic_ai import messages as pm
    from pydantic_ai.usage import RequestUsage

_STOP_REASONS = {
    "stop": StopReason.END,
    "tool_call": StopReason.CALLS,
    "length": StopReason.LENGTH,
    "content_filter": StopReason.REFUSAL,
}
_TEXT_FIELDS = {
    "text": ("content", "content_delta"),
    "thinking": ("content", "content_delta"),
    "tool-call": ("args", "args_delta"),
}
"""Kind of a part or delta -> the fields that may hold its text."""


class _Signature(Struct, omit_defaults=True):
    """Fields of a part that pydantic-ai sends back to the provider that made the part."""

    id: str | None = None
    signature: str | None = None
    provider_name: str | None = None
    provider_details: dict[str, Any] | None = None


_decode_signature = msgspec.json.Decoder(_Signature).decode


def _encode_signature(part: pm.TextPart | pm.ThinkingPart | pm.ToolCallPart) -> str:
    signature = _Signature(
        part.id, getattr(part, "signature", None), part.provider_name, part.provider_details
    )
    if signature == _Signature():
        return ""
    return msgspec.json.encode(signature, enc_hook=str).decode()


def to_model_request(message: UserMessage, names: ToolNames) -> pm.ModelRequest:
    """Return a user message: tool results first, then all texts and images as one prompt."""
    from pydantic_ai.messages import ModelRequest, ToolReturnPart, UserPromptPart

    parts: list[pm.ModelRequestPart] = []
    prompt: list[pm.UserContent] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            text = clean(block.text)
            images = [_to_binary_content(image) for image in block.images]
            parts.append(
                ToolReturnPart(
                    names.to_wire(block.name),
                    [text, *images] if images else text,
                    block.call_id,
                    outcome="failed" if block.error else "success",
                )
            )
        elif isinstance(block, ImageBlock):
            prompt.append(_to_binary_content(block))
        elif text := clean(block.text):
            prompt.append(text)
    if any(not isinstance(item, str) for item in prompt):
        parts.append(UserPromptPart(prompt))
    elif prompt:
        parts.append(UserPromptPart("\n\n".join(map(str, prompt))))
    return ModelRequest(parts)


def _to_binary_content(image: ImageBlock) -> pm.BinaryContent:
    from pydantic_ai.messages import BinaryContent

    return BinaryContent(image.data, media_type=image.media_type)


def to_model_response(
    message: AssistantMessage, names: ToolNames, own_provider: str | None
) -> pm.ModelResponse:
    """Return an answer in pydantic-ai's types.

    Arguments:
        own_provider: the provider if the answer is its own, else None. Thinking and signatures are
            sent only to the provider that made them.
    """
    from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart

    parts: list[pm.ModelResponsePart] = []
    for block in message.content:
        if isinstance(block, ProviderBlock):
            continue
        signature = _Signature()
        if own_provider and block.signature:
            signature = _decode_signature(block.signature)
        fields: dict[str, Any] = {
            "id": signature.id,
            "provider_name": signature.provider_name,
            "provider_details": signature.provider_details,
        }
        if isinstance(block, ToolCallBlock):
            arguments = clean(block.malformed) or encode(block.arguments).decode()
            parts.append(ToolCallPart(names.to_wire(block.name), arguments, block.id, **fields))
        elif isinstance(block, ThinkingBlock):
            if own_provider:
                text = clean(block.text)
                parts.append(ThinkingPart(text, signature=signature.signature, **fields))
        elif text := clean(block.text):
            parts.append(TextPart(text, **fields))
    return ModelResponse(parts, provider_name=own_provider, model_name=message.model or None)


def convert_event(event: pm.ModelResponseStreamEvent) -> StreamChunk | None:
    """Return the chunk that an event of pydantic-ai shows; None for most events."""
    field = "part" if event.event_kind == "part_start" else "delta"
    part: Any = getattr(event, field, None)
    kind: str = getattr(part, "part_kind", "") or getattr(part, "part_delta_kind", "")
    for name in _TEXT_FIELDS.get(kind.replace("_", "-"), ()):
        text = getattr(part, name, None)
        if not text:
            continue
        if not isinstance(text, str):
            text = encode(text).decode()
        return StreamChunk("call" if kind.startswith("tool") else kind, text)
    return None


def convert_answer(response: pm.ModelResponse, names: ToolNames, wire: str) -> AssistantMessage:
    """Return a whole answer in mudroom's types. Raises StreamCut when it is incomplete."""
    if response.state != "complete":
        raise StreamCut
    content = tuple(_convert_parts(response.parts, names))
    own_reason = response.finish_reason or "stop"
    return AssistantMessage(
        content,
        usage=_convert_usage(response.usage),
        model=response.model_name or "",
        wire=wire,
        id=response.provider_response_id or "",
        **describe_stop(own_reason, _STOP_REASONS, content),
    )


def _convert_parts(
    parts: Sequence[pm.ModelResponsePart], names: ToolNames
) -> list[TextBlock | ThinkingBlock | ToolCallBlock]:
    from pydantic_ai.messages import TextPart, ThinkingPart, ToolCallPart

    blocks: list[TextBlock | ThinkingBlock | ToolCallBlock] = []
    for part in parts:
        if isinstance(part, TextPart):
            if text := clean(part.content):
                blocks.append(TextBlock(text, _encode_signature(part)))
        elif isinstance(part, ThinkingPart):
            blocks.append(ThinkingBlock(clean(part.content), _encode_signature(part)))
        elif isinstance(part, ToolCallPart):
            blocks.append(_convert_call(part, names))
    return blocks


def _convert_call(part: pm.ToolCallPart, names: ToolNames) -> ToolCallBlock:
    text = part.args if isinstance(part.args, str) else encode(part.args or {}).decode()
    arguments, malformed = parse_arguments(text)
    return ToolCallBlock(
        part.tool_call_id,
        names.from_wire(part.tool_name),
        arguments,
        malformed,
        _encode_signature(part),
    )


def _convert_usage(usage: RequestUsage) -> Usage:
    details = usage.details
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=details.get("reasoning_tokens", 0) or details.get("thoughts_tokens", 0),
    )
