"""Numbers of tokens, computed from texts and message blocks without a provider.

An estimate is one number near the truth. The engine compares it with a context window.
A range has a lower and an upper bound. Meters reserve its maximum for a request.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from .messages import (
    AssistantBlock,
    ImageBlock,
    Message,
    ProviderBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserBlock,
)

CHARACTERS_PER_TOKEN = 4
"""Characters of one token in ASCII texts; bytes of one token in other texts.

English texts have 4 to 5 characters per token, code 3 to 4. Providers count exactly, but only
complete requests: an estimate is used for what came since, and for parts of a request.
"""
TOKENS_PER_IMAGE = 1_500
"""Approximate maximum that a provider counts for one image."""
_MAX_TOKENS_PER_BLOCK = 64
"""Tokens that a block may have beside its text."""

Block = UserBlock | AssistantBlock


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text has."""
    length = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-length // CHARACTERS_PER_TOKEN)


def estimate_block_tokens(blocks: Iterable[Block]) -> int:
    """Return about how many tokens blocks have."""
    return sum(map(_estimate_one_block, blocks))


def _estimate_one_block(block: Block) -> int:
    if isinstance(block, ImageBlock):
        return TOKENS_PER_IMAGE
    if isinstance(block, ToolCallBlock):
        arguments = len(msgspec.json.encode(block.arguments)) // CHARACTERS_PER_TOKEN
        return estimate_tokens(block.name) + arguments
    if isinstance(block, ProviderBlock):
        return estimate_tokens(block.data)
    tokens = estimate_tokens(block.text)
    if isinstance(block, ToolResultBlock):
        tokens += len(block.images) * TOKENS_PER_IMAGE
    return tokens


def estimate_message_tokens(messages: Iterable[Message]) -> int:
    """Return about how many tokens messages have."""
    return sum(estimate_block_tokens(message.content) for message in messages)


class TokenRange(Struct, frozen=True):
    """Lower and upper bound of a number of tokens."""

    minimum: int = 0
    maximum: int = 0

    def __add__(self, other: TokenRange) -> TokenRange:
        return TokenRange(self.minimum + other.minimum, self.maximum + other.maximum)


def compute_text_range(characters: int) -> TokenRange:
    """Return the bounds for a text with this number of characters."""
    return TokenRange(characters // CHARACTERS_PER_TOKEN, characters)


def compute_block_range(blocks: Iterable[Block]) -> TokenRange:
    """Return the bounds for blocks. A provider may leave out reasoning and blocks of its own."""
    characters = 0
    optional_characters = 0
    image_count = 0
    count = 0
    for block in blocks:
        count += 1
        if isinstance(block, ImageBlock):
            image_count += 1
        elif isinstance(block, ToolCallBlock):
            characters += len(repr(block.arguments))
        elif isinstance(block, ThinkingBlock | ProviderBlock):
            optional_characters += len(repr(block))
        else:
            characters += len(block.text)
            image_count += len(block.images) if isinstance(block, ToolResultBlock) else 0
    images = image_count * TOKENS_PER_IMAGE
    extra = images + optional_characters + count * _MAX_TOKENS_PER_BLOCK
    return compute_text_range(characters) + TokenRange(images, extra)
