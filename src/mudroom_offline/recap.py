"""A conversation told in short: what was asked, and the last words to each."""

from __future__ import annotations

from collections.abc import Iterator

from mudroom._core.messages import AssistantMessage, Message, TextBlock

_OPENING = "Summarise this conversation, so that"


def wants_recap(messages: list[Message]) -> bool:
    """Whether the last words are a request to compact."""
    return _words(messages[-1]).startswith(_OPENING)


def recap(messages: list[Message]) -> str:
    """Questions and answers of all messages but the last; a recap among them as it stands."""
    exchanges = _exchanges(messages[:-1])
    parts = (
        answer if asked.startswith(_OPENING) else f"Asked: {asked}\n\nAnswered: {answer}"
        for asked, answer in exchanges
    )
    return "\n\n".join(parts)


def _exchanges(messages: list[Message]) -> Iterator[tuple[str, str]]:
    asked, answer = "", ""
    for message in messages:
        if isinstance(message, AssistantMessage):
            answer = message.text or answer
            continue
        words = _words(message)
        if words and answer:
            yield asked, answer
            asked, answer = "", ""
        asked = asked or words
    yield asked, answer or "(nothing)"


def _words(message: Message) -> str:
    return "\n".join(block.text for block in message.content if isinstance(block, TextBlock))
