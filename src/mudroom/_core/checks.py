"""Checks: commands that must succeed with merged files before the user gets them."""

from __future__ import annotations

from collections.abc import Iterable

from .events import CheckFinished, StoredEvent

CHECK = "merge check"
"""Name of a check in permission decisions."""


class CheckResults:
    """The results of the checks of a session, and the commands that may run."""

    def __init__(self) -> None:
        self._allowed: set[str] = set()
        self._is_unused_known = False
        self._results: dict[tuple[str, str], CheckFinished] = {}

    def observe(self, event: StoredEvent) -> None:
        """Add the result in an event, if it has one."""
        if type(event) is CheckFinished:
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

    def allow(self, command: str) -> None:
        """Note that a command may run: the user is not asked again."""
        self._allowed.add(command)

    def is_allowed(self, command: str) -> bool:
        """Return whether `allow` was called with a command."""
        return command in self._allowed

    def is_first_unused(self) -> bool:
        """Return True once, if no check has run: the caller tells the user."""
        is_first = not self._results and not self._is_unused_known
        self._is_unused_known = True
        return is_first
