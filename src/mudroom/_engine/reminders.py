"""Reminders: how often in a row the engine has asked a model to go on by itself."""

from __future__ import annotations

MAX_REMINDERS = 5
"""Reminders after which a run ends that no answer can finish (S19)."""


class Reminders:
    """Requests in a row that nothing but the engine or a hook wanted.

    They begin again when the model makes a call that acts, and when a message arrives.
    """

    def __init__(self) -> None:
        self._count = 0

    def add(self) -> bool:
        """Count one more; False if it is one too many."""
        self._count += 1
        return self._count <= MAX_REMINDERS

    def restart(self) -> None:
        """Begin to count again."""
        self._count = 0
