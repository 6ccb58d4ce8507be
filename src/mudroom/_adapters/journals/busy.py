"""The error for a session that another writer has open."""

from __future__ import annotations

from ...errors import JournalBusy


def make_busy_error(writer: str, where: str) -> JournalBusy:
    """Make the error. `writer` describes the process that writes the session."""
    return JournalBusy(
        f"{writer} is writing this session",
        where=where,
        remedy="Wait for it or end it. --fork-session continues a copy; "
        "mudroom show reads it meanwhile.",
    )
