"""Decisions of hooks about messages of the user, rebuilt from the record."""

from __future__ import annotations

from collections.abc import Sequence

from .._core.events import MessageDelivered, NoteInjected, StoredEvent
from .._core.ports import MessageHookDecision
from .._engine.inbox.message_hooks import REFUSED_MESSAGE


class RecordedMessageHooks:
    """What hooks said of each message of the user.

    A run reads its messages together: the events of their delivery are followed by the texts that
    hooks added, oldest first.
    """

    def __init__(self, events: Sequence[StoredEvent]) -> None:
        self._denials: dict[str, list[str]] = {}
        self._contexts: dict[str, list[str]] = {}
        self._notes: set[int] = set()
        last: dict[str, StoredEvent] = {}
        for event in events:
            if isinstance(event, MessageDelivered) and event.origin == "user":
                denial = event.text if event.text == REFUSED_MESSAGE else ""
                self._denials.setdefault(event.run, []).append(denial)
            elif isinstance(event, NoteInjected) and event.origin == "hook":
                before = last.get(event.run)
                if isinstance(before, MessageDelivered) or id(before) in self._notes:
                    self._notes.add(id(event))
                    self._contexts.setdefault(event.run, []).append(event.text)
            last[event.run] = event

    def has_note(self, event: NoteInjected) -> bool:
        """Return whether a note is the text of a hook about a message."""
        return id(event) in self._notes

    def decide(self, run_id: str) -> MessageHookDecision | None:
        """Return the decision about the next message of the user to a run."""
        denials = self._denials.get(run_id)
        if not denials:
            return None
        denial = denials.pop(0)
        contexts = self._contexts.get(run_id)
        return MessageHookDecision(denial=denial, context=contexts.pop(0) if contexts else "")
