"""When the engine shortens a conversation: thresholds, and sizes of messages in tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from .._core.messages import (
    AssistantBlock,
    ImageBlock,
    Message,
    ProviderBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserBlock,
)

BYTES_PER_TOKEN = 4
TOKENS_PER_IMAGE = 1_500
LOOK_UP_SIZE = 10_000
"""Tokens of a request from which a slow source of windows is asked."""
_DEFAULT_OUTPUT = 8_192
"""Tokens that an answer may have where neither agent nor session sets a limit."""
_MIN_FRACTION = 0.5
"""The part of a window that a request may always use."""


def find_no_window(model: str) -> int:
    """Return 0: the window is not known."""
    return 0


def learn_nothing(model: str, size: int, refusal: str) -> None:
    """Do nothing."""


class ContextPolicy(Struct, frozen=True, kw_only=True):
    """When the engine shortens conversations, and how large the windows of models are.

    Arguments:
        is_automatic: false if only the user and the model start a compaction.
        clear_at, compact_at: parts of the window from which results are cleared, and the
            conversation is compacted.
        find_window: takes a model string, returns its context window in tokens; 0 is unknown.
        look_up_window: the same from slower sources, for requests of some size; 0: no limit.
        learn_window: takes a model string, the size of a request that the model refused as too
            long, and the error text.
    """

    is_automatic: bool = True
    clear_at: float = 0.6
    compact_at: float = 0.85
    find_window: Callable[[str], int] = find_no_window
    look_up_window: Callable[[str], int] = find_no_window
    learn_window: Callable[[str, int, str], None] = learn_nothing

    def choose_thresholds(self, model: str, size: int, max_output: int | None) -> Thresholds | None:
        """Return the thresholds for a model, None if it has no known limit.

        Arguments:
            size: tokens of the next request.
            max_output: longest answer in tokens; None: a default.
        """
        window = self.find_window(model)
        if not window and size >= LOOK_UP_SIZE:
            window = self.look_up_window(model)
        if not window:
            return None
        reserve = min(max_output or _DEFAULT_OUTPUT, window // 4) + window // 10
        largest = max(window - reserve, int(window * _MIN_FRACTION))
        compact_at = min(int(window * self.compact_at), largest)
        return Thresholds(window, min(int(window * self.clear_at), compact_at), compact_at)


class Thresholds(Struct, frozen=True):
    """Sizes of requests in tokens. `window`: context window of the model."""

    window: int
    clear_at: int
    compact_at: int


DEFAULT_THRESHOLDS = Thresholds(128_000, 76_800, 108_800)
"""Thresholds for sizes of parts where the window of the model has no limit."""


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text has."""
    length = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-length // BYTES_PER_TOKEN)


def count_block_tokens(block: UserBlock | AssistantBlock) -> int:
    """Return about how many tokens a block has."""
    if isinstance(block, ImageBlock):
        return TOKENS_PER_IMAGE
    if isinstance(block, ToolCallBlock):
        return estimate_tokens(block.name) + len(msgspec.json.encode(block.arguments)) // 4
    if isinstance(block, ProviderBlock):
        return estimate_tokens(block.data)
    tokens = estimate_tokens(block.text)
    if isinstance(block, ToolResultBlock):
        tokens += len(block.images) * TOKENS_PER_IMAGE
    return tokens


def count_message_tokens(messages: Iterable[Message]) -> int:
    """Return about how many tokens messages have."""
    return sum(count_block_tokens(block) for message in messages for block in message.content)
