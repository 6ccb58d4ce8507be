"""Loop detection: warns a run that repeats itself with the same results, then ends it with LOOP."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .._core.messages import AssistantMessage
from .call_batch import CallOutcome

WARN_AFTER = 4
"""Repeats of a turn, or of a pair of turns, between two warnings to the model."""

STOP_AFTER = 12
"""Repeats before the run ends with LOOP."""

WARNING = (
    "You are going in circles: you did the same {count} times in a row and got the same each time. "
    "Do something else, or stop and report what you have."
)

Turn = Sequence[object]


class LoopDetector:
    """History of the last turns of one run.

    Two turns are equal if their tool calls and the results are equal; so polling with changing
    results is no loop.
    """

    def __init__(self) -> None:
        self._turns: list[Turn] = []

    def add_turn(self, message: AssistantMessage, outcomes: Iterable[CallOutcome]) -> int:
        """Add a turn and return how many times in a row it, or the last pair of turns, came.

        1 means that it is new.
        """
        calls = {call.id: (call.name, call.arguments) for call in message.tool_calls}
        turn = [(*calls[outcome.call_id], hash(outcome.result.text)) for outcome in outcomes]
        self._turns = [*self._turns[1 - 2 * STOP_AFTER :], turn or [message.text.strip()]]
        return max(self._count_repeats(1), self._count_repeats(2))

    def _count_repeats(self, period: int) -> int:
        if len(self._turns) <= period or self._turns[-1] != self._turns[-1 - period]:
            return 1
        turns = self._turns[::-1]
        pattern = turns[:period]
        if period > 1 and pattern[0] == pattern[-1]:
            return 1
        count = 1
        while (
            len(turns) >= (count + 1) * period
            and turns[count * period : (count + 1) * period] == pattern
        ):
            count += 1
        return count
