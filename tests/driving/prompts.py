"""The last words of the user in a request of the scripted model."""

from __future__ import annotations

from mudroom import TextBlock, UserMessage
from mudroom.testing import Request


def get_last_prompt(request: Request) -> str:
    """Return the last text of the user; results of calls that follow it do not count."""
    texts = [
        block.text
        for message in request.messages
        if isinstance(message, UserMessage)
        for block in message.content
        if isinstance(block, TextBlock)
    ]
    return texts[-1]
