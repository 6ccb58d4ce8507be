"""Loop detection: warns a run that repeats itself with the same results, then ends it with LOOP."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .._core.messages import AssistantMessage
from .call_batch import CallOutcome

WARN_AFTER = 4
"""Repeats of a pattern of turns between two warnings to the model."""

STOP_AFTER = 12
"""Repeats before the run ends with LOOP."""

WARNING = (
    "You are going in circles: you did the same {count} times in a row and got the same each time. "
    "Do something else, or stop and report what you have."
)

LONGEST_PERIOD = 5
"""Maximum number of turns in a pattern that repeats."""

Turn = Sequence[object]


class LoopDetector:
    """History of the last turns of one run.

    Two turns are equal if their tool calls and the results are equal; so polling with changing
    results is no loop. A pattern is one turn, or up to LONGEST_PERIOD different ones in order.
    """

    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._equal_counts: dict[int, int] = {}
        """Period -> number of turns in a row that equal the turn one period before, if any."""

    def clear(self) -> None:
        """Forget all turns: a notification has changed the situation."""
        self._turns.clear()
        self._equal_counts = {}

    def add_turn(self, message: AssistantMessage, outcomes: Iterable[CallOutcome]) -> int:
        """Add a turn and return how many times in a row the pattern came that ends with it.

        1 means that it is new, or inside a pattern.
        """
        calls = {call.id: (call.name, call.arguments) for call in message.tool_calls}
        results = [(*calls[outcome.call_id], hash(outcome.result.text)) for outcome in outcomes]
        turn = results or [message.text.strip()]
        earlier_turns = self._turns
        earlier_counts = self._equal_counts
        self._turns = [*earlier_turns[1 - LONGEST_PERIOD :], turn]
        self._equal_counts = {}
        repeats = 1
        for period, earlier_turn in enumerate(reversed(earlier_turns), 1):
            if turn == earlier_turn:
                count = earlier_counts.get(period, 0) + 1
                self._equal_counts[period] = count
                if count % period == 0:
                    repeats = max(repeats, count // period + 1)
        return repeats
