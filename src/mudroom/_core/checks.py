"""Checks: commands that must succeed on merged files before the user's folder gets them."""

from __future__ import annotations

from collections.abc import Iterable

from .events import CheckFinished, StoredEvent

# Stands where a tool's name would in permission decisions.
CHECK = "merge check"


class CheckResults:
    """Check results of a session, and the check commands the user has allowed."""

    def __init__(self) -> None:
        self._allowed: set[str] = set()
        self._is_unused_known = False
        self._results: dict[tuple[str, str], CheckFinished] = {}

    def observe(self, event: StoredEvent) -> None:
        if type(event) is CheckFinished:
            self._results[event.command, event.tree] = event

    def find(
        self, command: str, tree: str, past_events: Iterable[StoredEvent]
    ) -> CheckFinished | None:
        """Find the result of running a command on a tree; None if it has not run.

        Arguments:
            past_events: events recorded by an earlier process, read only if needed.
        """
        if (command, tree) not in self._results:
            for event in past_events:
                self.observe(event)
        return self._results.get((command, tree))

    def allow(self, command: str) -> None:
        """Remember that the user allowed a command, so it is not asked about again."""
        self._allowed.add(command)

    def is_allowed(self, command: str) -> bool:
        return command in self._allowed

    def is_first_unused(self) -> bool:
        """Return True once, if no check has run yet, so that the caller tells the user."""
        is_first = not self._results and not self._is_unused_known
        self._is_unused_known = True
        return is_first
