"""Saved summary of a journal: its store keeps it, so that a list of sessions reads few events."""

from __future__ import annotations

from collections.abc import Iterable

from ..._core.events import SessionClosed, StoredEvent
from ..._projections.session_summary import SUMMARY_TYPES, SummaryState, encode_state

SAVE_INTERVAL = 256
"""Minimum events between two saved states. A list of sessions reads about as many of each."""


class SummarySaver:
    """The state of the summary of one journal, and the decision when to save it.

    Arguments:
        state: state after the last event of the journal.
        saved_position: position of the state that the store has.
    """

    def __init__(self, state: SummaryState, saved_position: int) -> None:
        self._state = state
        self._saved_position = saved_position

    def apply(self, events: Iterable[StoredEvent], position: int) -> str:
        """Add new events, the last one at `position`. Return the state to save, "" for none.

        The last event of a session is a reason to save: a list then reads no events of it. So is an
        opening in another folder: the session belongs to that folder at once.
        """
        state = self._state
        former = state.folder
        event: StoredEvent | None = None
        for event in events:
            if type(event) in SUMMARY_TYPES:
                state.apply(event)
        state.position = position
        # The interval grows with the size of the state, so that saving costs no more per event.
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
