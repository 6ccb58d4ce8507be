"""Normalisation: a conversation that every provider accepts (S7).

One result per call, unique call ids, no empty block. The model adapters clean the text in blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from .._core.messages import (
    AssistantBlock,
    AssistantMessage,
    ImageBlock,
    Message,
    ProviderBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserBlock,
    UserMessage,
    user_message,
)
from .._platform.lazy_pattern import compile_later

_ILLEGAL_CHARACTERS = compile_later("[^A-Za-z0-9_-]")
NO_RESULT = "No result of this call was recorded."
EMPTY_MESSAGE = user_message("(Nothing was recorded here.)")


def normalize_conversation(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the conversation without faults that a provider would refuse.

    A valid conversation is returned unchanged.

    User and assistant messages alternate, a user message comes first. User messages in a row become
    one, the results first in the order of their calls. A result without a call is dropped; a call
    without a result gets NO_RESULT.
    """
    normalized: list[Message] = []
    user_blocks: list[UserBlock] = []
    open_calls: list[tuple[str, ToolCallBlock]] = []
    ids: set[str] = set()
    for message in messages:
        if isinstance(message, UserMessage):
            user_blocks += message.content
            continue
        content = [block for block in message.content if _has_content(block)]
        if not content:
            continue
        merged = _merge_user_blocks(user_blocks, open_calls)
        if merged:
            normalized.append(merged)
        elif not normalized or isinstance(normalized[-1], AssistantMessage):
            normalized.append(EMPTY_MESSAGE)
        blocks, open_calls = _ensure_unique_ids(content, ids)
        user_blocks = []
        normalized.append(replace(message, content=blocks))
    if merged := _merge_user_blocks(user_blocks, open_calls):
        normalized.append(merged)
    return tuple(normalized)


def _has_content(block: AssistantBlock) -> bool:
    if isinstance(block, ToolCallBlock | ProviderBlock) or block.text.strip("\0 \t\r\n"):
        return True
    return isinstance(block, ThinkingBlock) and bool(block.redacted or block.signature)


def _merge_user_blocks(
    blocks: Sequence[UserBlock], open_calls: Sequence[tuple[str, ToolCallBlock]]
) -> UserMessage | None:
    """Return the next user message; None if it would be empty.

    Arguments:
        open_calls: calls that need a result, each with its old id, which the result still has.
    """
    results_by_id: dict[str, list[ToolResultBlock]] = {}
    for block in reversed(blocks):
        if isinstance(block, ToolResultBlock):
            results_by_id.setdefault(block.call_id, []).append(block)
    content: list[UserBlock] = []
    for old_id, call in open_calls:
        results = results_by_id.get(old_id)
        if results:
            content.append(replace(results.pop(), call_id=call.id))
        else:
            content.append(ToolResultBlock(call.id, call.name, NO_RESULT, error=True))
    for block in blocks:
        if isinstance(block, ImageBlock) or (isinstance(block, TextBlock) and _has_content(block)):
            content.append(block)
    return UserMessage(tuple(content)) if content else None


def _ensure_unique_ids(
    content: Sequence[AssistantBlock], ids: set[str]
) -> tuple[tuple[AssistantBlock, ...], list[tuple[str, ToolCallBlock]]]:
    """Return the blocks with unused call ids, and pairs of old id and renamed call."""
    blocks: list[AssistantBlock] = []
    calls: list[tuple[str, ToolCallBlock]] = []
    for block in content:
        if isinstance(block, ToolCallBlock):
            old_id = block.id
            block = replace(block, id=_reserve_id(old_id or "call", ids))
            calls.append((old_id, block))
        blocks.append(block)
    return tuple(blocks), calls


def _reserve_id(call_id: str, ids: set[str]) -> str:
    """Return an id that is unused also in the characters that wires accept; add it to `ids`."""
    while (wire_id := make_wire_id(call_id)) in ids:
        call_id += "_"
    ids.add(wire_id)
    return call_id


def make_wire_id(call_id: str) -> str:
    """Return a call id in the characters that every wire accepts."""
    return _ILLEGAL_CHARACTERS.sub("_", call_id)
