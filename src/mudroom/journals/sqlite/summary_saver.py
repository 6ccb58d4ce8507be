"""Saved summary of a journal file: a row of the file."""

from __future__ import annotations

import sqlite3

from ...errors import JournalDamaged
from ...projections.session_summary import SUMMARY_TYPES, decode_state
from ..summary_saver import SummarySaver
from .reader import SqliteReader
from .schema import read_last_number

SAVE_STATEMENT = "INSERT OR REPLACE INTO meta VALUES ('summary', ?)"


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
