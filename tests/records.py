"""Records of sessions in a home folder: read, or written to be resumed."""

from __future__ import annotations

from pathlib import Path

from mudroom._adapters.journals.sqlite.folder import get_session_path
from mudroom._adapters.journals.sqlite.journal import SqliteJournal
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._core.events import StoredEvent


def read_record(home: str | Path, session: str) -> list[StoredEvent]:
    return list(open_reader(get_session_path(home, session)).read())


async def write_record(home: str | Path, session: str, *events: StoredEvent) -> None:
    """Write the record that a killed process would have left."""
    path = get_session_path(home, session)
    journal = SqliteJournal.open(path, session=session, create=True)
    await journal.append(*events)
    await journal.close()
