"""Saved summary of a journal: a row of its file, so that a list of sessions reads few events."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from ..._core.events import StoredEvent
from ...errors import JournalDamaged
from ...projections.session_summary import (
    SUMMARY_TYPES,
    SummaryState,
    decode_state,
    encode_state,
)
from .reader import SqliteReader
from .schema import read_last_number

SAVE_STATEMENT = "INSERT OR REPLACE INTO meta VALUES ('summary', ?)"

SAVE_INTERVAL = 256
"""Minimum events between two saved states. A list of sessions reads about as many of each."""


class SummarySaver:
    """The state of the summary of one journal, and the decision when to save it.

    Arguments:
        state: state after the last event of the file.
        saved_position: position of the state that the file has.
    """

    def __init__(self, state: SummaryState, saved_position: int) -> None:
        self._state = state
        self._saved_position = saved_position

    def apply(self, events: Iterable[StoredEvent], position: int) -> str:
        """Add new events, the last one at `position`. Return the state to save, "" for none."""
        state = self._state
        for event in events:
            if isinstance(event, SUMMARY_TYPES):
                state.apply(event)
        state.position = position
        # The interval grows with the size of the state, so that saving costs no more per event.
        if position - self._saved_position < max(SAVE_INTERVAL, state.size):
            return ""
        self._saved_position = position
        return encode_state(state)


def load_saver(connection: sqlite3.Connection, reader: SqliteReader) -> SummarySaver | None:
    """Return the saver of a file; it reads the events after the saved state.

    Return None for a damaged file: lists must read all its events to find the damage.
    """
    state = decode_state(reader.meta.summary)
    saved_position = state.position
    if saved_position > read_last_number(connection):
        return None
    try:
        for event in reader.read_with(connection, saved_position, SUMMARY_TYPES):
            state.apply(event)
    except JournalDamaged:
        return None
    return SummarySaver(state, saved_position)
