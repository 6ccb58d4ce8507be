"""Token counts computed without a provider.

An estimate is a number near the truth, compared with a context window. A range has a lower and an
upper bound; meters reserve the upper bound for a request.
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

# English text has 4 to 5 characters per token, code 3 to 4; for text that is not ASCII this
# counts bytes. Providers count exactly, but only whole requests: estimates cover what came since,
# and parts of a request.
CHARACTERS_PER_TOKEN = 4
# About the most that a provider counts for one image.
TOKENS_PER_IMAGE = 1_500
# Tokens a block may take beyond its text, such as roles, ids and markup.
_MAX_TOKENS_PER_BLOCK = 64

Block = UserBlock | AssistantBlock


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text."""
    length = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-length // CHARACTERS_PER_TOKEN)


def estimate_block_tokens(blocks: Iterable[Block]) -> int:
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
    return sum(estimate_block_tokens(message.content) for message in messages)


class TokenRange(Struct, frozen=True):
    """Lower and upper bound of a number of tokens."""

    minimum: int = 0
    maximum: int = 0

    def __add__(self, other: TokenRange) -> TokenRange:
        return TokenRange(self.minimum + other.minimum, self.maximum + other.maximum)


def compute_text_range(characters: int) -> TokenRange:
    """Bound the tokens of a text of this length: every character may be a token of its own."""
    return TokenRange(characters // CHARACTERS_PER_TOKEN, characters)


def compute_block_range(blocks: Iterable[Block]) -> TokenRange:
    """Bound the tokens of blocks. Providers may not count reasoning and their own blocks."""
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
