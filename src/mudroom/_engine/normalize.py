"""A conversation that every provider takes (S7): one result for each call, ids used once, no empty block. The wires clean its text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from .._core.messages import (
    AssistantMessage,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserMessage,
    user_message,
)

NO_RESULT = "No result of this call was recorded."
EMPTY_MESSAGE = user_message("(Nothing was recorded here.)")


def normalize_conversation(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The same conversation, mended where a provider would refuse it; one that is right comes back as it was.

    Users and assistants take turns, a user begins. What was told in a row is one message, the results first in the order of their
    calls; a result without its call is left out, a call without its result gets NO_RESULT.
    """
    mended: list[Message] = []
    told, owed, ids = (
        list[TextBlock | ToolResultBlock](),
        list[tuple[str, ToolCallBlock]](),
        set[str](),
    )
    for message in messages:
        if isinstance(message, UserMessage):
            told += message.content
        elif content := [block for block in message.content if _says(block)]:
            mended += _told(told, owed) or (
                [EMPTY_MESSAGE] if not mended or isinstance(mended[-1], AssistantMessage) else []
            )
            blocks, owed, told = *_distinct(content, ids), []
            mended.append(replace(message, content=blocks))
    return (*mended, *_told(told, owed))


def _says(block: TextBlock | ThinkingBlock | ToolCallBlock) -> bool:
    if isinstance(block, ToolCallBlock):
        return True
    return bool(
        block.text.strip("\0 \t\r\n")
        or (isinstance(block, ThinkingBlock) and (block.redacted or block.signature))
    )


def _told(
    told: Sequence[TextBlock | ToolResultBlock], owed: Sequence[tuple[str, ToolCallBlock]]
) -> list[Message]:
    """The next message of the user, if there is one. `owed`: calls that want a result, each by the id its result names."""
    given: dict[str, list[ToolResultBlock]] = {}
    for block in reversed(told):
        if isinstance(block, ToolResultBlock):
            given.setdefault(block.call_id, []).append(block)
    found = (
        (
            call,
            given[was].pop()
            if given.get(was)
            else ToolResultBlock("", call.name, NO_RESULT, error=True),
        )
        for was, call in owed
    )
    results = [replace(result, call_id=call.id) for call, result in found]
    texts = [block for block in told if isinstance(block, TextBlock) and _says(block)]
    return [UserMessage((*results, *texts))] if results or texts else []


def _distinct(
    content: Sequence[TextBlock | ThinkingBlock | ToolCallBlock], ids: set[str]
) -> tuple[tuple[TextBlock | ThinkingBlock | ToolCallBlock, ...], list[tuple[str, ToolCallBlock]]]:
    """The blocks with ids that are new in the conversation, as wires write them; and the calls by the ids they had."""
    blocks, owed = (
        list[TextBlock | ThinkingBlock | ToolCallBlock](),
        list[tuple[str, ToolCallBlock]](),
    )
    for block in content:
        if isinstance(block, ToolCallBlock):
            was, new = block.id, block.id or "call"
            while (wired := re.sub(r"[^A-Za-z0-9_-]", "_", new)) in ids:
                new += "_"
            ids.add(wired)
            block = replace(block, id=new)
            owed.append((was, block))
        blocks.append(block)
    return tuple(blocks), owed
