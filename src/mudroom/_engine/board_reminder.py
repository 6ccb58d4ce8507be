"""Reminder of the tasks of the board that a run works on and does not mention for long."""

from __future__ import annotations

from collections.abc import Iterable

from .._core.board_tasks import update_claims
from .call_batch import CallOutcome

TURNS_BEFORE_REMINDER = 10
"""Turns without a change of the board, after which a run with a claimed task gets a reminder."""

_REMINDER = "<reminder>You work on {tasks} of the task board. Update its status.</reminder>"


class BoardReminder:
    """A reminder of the tasks that a run has claimed, computed from the results of its calls."""

    def __init__(self) -> None:
        self._claims: dict[int, str] = {}
        self._turn = 0

    def add(self, outcomes: Iterable[CallOutcome], turn: int) -> None:
        """Add the outcomes of a turn."""
        for outcome in outcomes:
            if update_claims(self._claims, outcome.result.detail):
                self._turn = turn

    def make_text(self, turn: int) -> str:
        """Return a reminder if one is due, "" if not."""
        if not self._claims or turn - self._turn < TURNS_BEFORE_REMINDER:
            return ""
        self._turn = turn
        return _REMINDER.format(tasks=", ".join(f"#{task_id}" for task_id in self._claims))
