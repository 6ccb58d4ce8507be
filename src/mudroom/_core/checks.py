"""Checks: commands that must succeed with merged files before the user gets them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from .events import CheckFinished, StoredEvent

CHECK = "merge check"
"""Name of a check in permission decisions."""


class Check(Struct, frozen=True):
    """A command that decides whether the work of children is merged.

    Arguments:
        command: a bash command; the exit code 0 is success.
        seconds: its time limit.
        is_from_user: true if the user gave it, so it needs no confirmation.
    """

    command: str
    seconds: float
    is_from_user: bool = False


class CheckResults:
    """The results of the checks of a session, and the commands that may run.

    Attributes:
        allowed: the commands.
    """

    def __init__(self) -> None:
        self.allowed: set[str] = set()
        self._results: dict[tuple[str, str], CheckFinished] = {}

    def observe(self, event: StoredEvent) -> None:
        """Add the result in an event, if it has one."""
        if isinstance(event, CheckFinished):
            self._results[event.command, event.tree] = event

    def find(
        self, command: str, tree: str, past_events: Iterable[StoredEvent]
    ) -> CheckFinished | None:
        """Return the result of a command with the files of a tree, None if it has not run.

        Arguments:
            past_events: of an earlier process.
        """
        if (command, tree) not in self._results:
            for event in past_events:
                self.observe(event)
        return self._results.get((command, tree))
