"""A conversation that every provider takes (S7): one result for each call, ids used once, no empty block. The wires clean its text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from .._core.messages import Assistant, Call, Message, Result, Text, Thinking, User, user

NO_RESULT = "No result of this call was recorded."
GAP = user("(Nothing was recorded here.)")


def sendable(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The same conversation, mended where a provider would refuse it; one that is right comes back as it was.

    Users and assistants take turns, a user begins. What was told in a row is one message, the results first in the order of their
    calls; a result without its call is left out, a call without its result gets NO_RESULT.
    """
    mended: list[Message] = []
    told, owed, ids = list[Text | Result](), list[tuple[str, Call]](), set[str]()
    for message in messages:
        if isinstance(message, User):
            told += message.content
        elif content := [block for block in message.content if _says(block)]:
            mended += _told(told, owed) or (
                [GAP] if not mended or isinstance(mended[-1], Assistant) else []
            )
            blocks, owed, told = *_distinct(content, ids), []
            mended.append(replace(message, content=blocks))
    return (*mended, *_told(told, owed))


def _says(block: Text | Thinking | Call) -> bool:
    if isinstance(block, Call):
        return True
    return bool(
        block.text.strip("\0 \t\r\n")
        or (isinstance(block, Thinking) and (block.redacted or block.signature))
    )


def _told(told: Sequence[Text | Result], owed: Sequence[tuple[str, Call]]) -> list[Message]:
    """The next message of the user, if there is one. `owed`: calls that want a result, each by the id its result names."""
    given: dict[str, list[Result]] = {}
    for block in reversed(told):
        if isinstance(block, Result):
            given.setdefault(block.call_id, []).append(block)
    found = (
        (call, given[was].pop() if given.get(was) else Result("", call.name, NO_RESULT, error=True))
        for was, call in owed
    )
    results = [replace(result, call_id=call.id) for call, result in found]
    texts = [block for block in told if isinstance(block, Text) and _says(block)]
    return [User((*results, *texts))] if results or texts else []


def _distinct(
    content: Sequence[Text | Thinking | Call], ids: set[str]
) -> tuple[tuple[Text | Thinking | Call, ...], list[tuple[str, Call]]]:
    """The blocks with ids that are new in the conversation, as wires write them; and the calls by the ids they had."""
    blocks, owed = list[Text | Thinking | Call](), list[tuple[str, Call]]()
    for block in content:
        if isinstance(block, Call):
            was, new = block.id, block.id or "call"
            while (wired := re.sub(r"[^A-Za-z0-9_-]", "_", new)) in ids:
                new += "_"
            ids.add(wired)
            block = replace(block, id=new)
            owed.append((was, block))
        blocks.append(block)
    return tuple(blocks), owed
