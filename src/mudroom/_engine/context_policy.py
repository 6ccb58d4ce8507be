"""When the engine shortens a conversation: context windows and thresholds, in tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

LOOK_UP_SIZE = 32_000
"""Size of a request, in tokens, from which slow sources of context windows are consulted.

The table of windows takes 16 MB of memory. A model with a smaller window refuses once.
"""
_CHECK_STEP = 4_000  # tokens until a request is checked again: the window may be known by then
_DEFAULT_OUTPUT = 8_192  # tokens of an answer if neither agent nor session sets a limit
_MIN_FRACTION = 0.5  # of a window that a request may always use


def find_no_window(model: str) -> int:
    return 0


class ContextPolicy(Struct, frozen=True, kw_only=True):
    """When the engine shortens conversations, and how large the windows of models are.

    Arguments:
        is_automatic: false if only the user and the model start a compaction.
        clear_at, compact_at: fractions of the window at which tool results are cleared and the
            conversation is compacted.
        find_window: takes a model string, returns its context window in tokens, 0 if unknown.
        look_up_window: the same from slower sources, for larger requests; 0 means no limit.
        learn_window: takes a model string, the size of a request the model refused as too long,
            and the error text; returns the size that fits, by the same estimate.
    """

    is_automatic: bool = True
    clear_at: float = 0.6
    compact_at: float = 0.85
    find_window: Callable[[str], int] = find_no_window
    look_up_window: Callable[[str], int] = find_no_window
    learn_window: Callable[[str, int, str], int] = lambda model, size, refusal: 0

    def get_window(self, model: str) -> int:
        """Return a model's context window from all sources, 0 if no limit is known."""
        return self.find_window(model) or self.look_up_window(model)

    async def load_window(self, model: str, size: int) -> None:
        """Look the window up in slow sources, in a thread, if a request of this size needs it.

        The sources keep what they load. On the event loop, loading would stall every run.
        """
        if size >= LOOK_UP_SIZE and not self.find_window(model):
            await asyncio.to_thread(self.look_up_window, model)

    def choose_thresholds(
        self, model: str, size: int, max_output: int | None, fitting: int = 0
    ) -> Thresholds | None:
        """Return the thresholds for a model, None if no limit is known.

        `fitting` is the size that fits after a refusal, by the run's estimate; 0 for none.
        """
        find = self.get_window if size >= LOOK_UP_SIZE else self.find_window
        window = min(filter(None, (find(model), fitting)), default=0)
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


def choose_next_check(size: int, thresholds: Thresholds | None) -> int:
    """Return the request size, in tokens, at which to compare with the thresholds again."""
    if thresholds is None:
        return size + _CHECK_STEP
    step = size + min(_CHECK_STEP, thresholds.window // 32)
    bound = thresholds.clear_at if size < thresholds.clear_at else thresholds.compact_at
    return min(bound + 1, step)


DEFAULT_THRESHOLDS = Thresholds(128_000, 76_800, 108_800)
"""Thresholds for sizing parts of a request when the window has no known limit."""
