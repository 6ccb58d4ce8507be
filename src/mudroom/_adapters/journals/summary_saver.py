"""Saves a session's summary in its store, so that a list of sessions reads few events."""

from __future__ import annotations

from collections.abc import Iterable

from ..._core.events import SessionClosed, StoredEvent
from ..._projections.session_summary import SUMMARY_TYPES, SummaryState, encode_state

# Events between saved states, at least. A list then reads about this many per session.
SAVE_INTERVAL = 256


class SummarySaver:
    """The summary state of a journal, and the decision when to save it.

    Arguments:
        state: the state after the journal's last event.
        saved_position: position of the state in the store.
    """

    def __init__(self, state: SummaryState, saved_position: int) -> None:
        self._state = state
        self._saved_position = saved_position

    def apply(self, events: Iterable[StoredEvent], position: int) -> str:
        """Apply new events, the last one at `position`. Return the state to save, "" for none.

        The state is saved at the end of a session, so that a list reads none of its events, and
        when the session is opened in another folder, which it then belongs to at once.
        """
        state = self._state
        former = state.folder
        event: StoredEvent | None = None
        for event in events:
            if type(event) in SUMMARY_TYPES:
                state.apply(event)
        state.position = position
        # The interval grows with the state, so that saving does not cost more per event.
        is_due = position - self._saved_position >= max(SAVE_INTERVAL, state.size)
        has_moved = former not in ("", state.folder)
        if not is_due and not has_moved and type(event) is not SessionClosed:
            return ""
        self._saved_position = position
        return encode_state(state)

    def encode_unsaved(self) -> str:
        """Return the state after the last event if it has not been saved, else ""."""
        if self._state.position == self._saved_position:
            return ""
        self._saved_position = self._state.position
        return encode_state(self._state)
