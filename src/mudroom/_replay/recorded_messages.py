"""Messages of a replay: their recorded order, and what hooks said of those of the user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from .._core.events import MessageDelivered, NoteInjected, StoredEvent
from .._core.ports import MessageHookDecision
from .._core.runs import InboxMessage
from .._engine.inbox import REFUSED_MESSAGE, Inbox
from .._engine.session_context import Recorder


class RecordedInbox(Inbox):
    """Inbox of a run of a replay, which delivers messages in the recorded order.

    A run that was killed in a model call has read messages; its next process sends them again,
    before those that came later.

    Arguments:
        list_next: returns the ids of the messages that the run reads next, in order.

    Attributes:
        later: ids of messages that the run does not read yet.
    """

    def __init__(self, recorder: Recorder, list_next: Callable[[], list[str]]) -> None:
        super().__init__(recorder)
        self._list_next = list_next
        self.later: set[str] = set()

    async def take_unread(self, folder: str) -> list[MessageDelivered]:
        """Deliver the unread messages, without the later ones."""
        kept = {each: self._unread.pop(each) for each in self.later if each in self._unread}
        delivered = await super().take_unread(folder)
        self._unread |= kept
        return delivered

    def _sort(self, messages: Iterable[InboxMessage]) -> list[InboxMessage]:
        order = {message_id: place for place, message_id in enumerate(self._list_next())}
        return sorted(super()._sort(messages), key=lambda each: order.get(each.id, len(order)))


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
