"""Going in circles: the same act with the same outcome again and again, two acts in turn, the same words. First a word, then LOOP."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from msgspec import json

from .._core.messages import AssistantMessage, ToolResultBlock

WARN_AFTER = 4
"""Times in a row that nothing new came of a turn, or of a pair of turns, before the model is told; and told again after as many."""

STOP_AFTER = 12
"""Times before the run ends with LOOP."""

WARNING = (
    "You are going in circles: you did the same {count} times in a row and got the same each time. "
    "Do something else, or stop and report what you have."
)

Turn = tuple[object, ...]


class LoopDetector:
    """Watches the turns of one run. A turn is its acts with their outcomes, so polling that sees a change is no circle."""

    def __init__(self) -> None:
        self._turns: deque[Turn] = deque(maxlen=2 * STOP_AFTER)

    def add_turn(self, message: AssistantMessage, results: Mapping[str, ToolResultBlock]) -> int:
        """Take in a turn: how many times in a row the last one, or the last pair, has come; 1 when it is new."""
        acts = tuple(
            (call.name, json.encode(call.arguments), hash(results[call.id].text))
            for call in message.tool_calls
        )
        self._turns.append(acts or (message.text,))
        return max(self._repeats(1), self._repeats(2))

    def _repeats(self, period: int) -> int:
        if len(self._turns) <= period or self._turns[-1] != self._turns[-1 - period]:
            return 1
        turns = list(self._turns)[::-1]
        pattern, count = turns[:period], 1
        if period > 1 and pattern[0] == pattern[-1]:
            return 1
        while (
            len(turns) >= (count + 1) * period
            and turns[count * period : (count + 1) * period] == pattern
        ):
            count += 1
        return count
