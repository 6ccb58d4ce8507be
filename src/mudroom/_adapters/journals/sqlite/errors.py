"""Errors of SQLite and of the file system, translated to JournalError with a remedy."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ....errors import JournalDamaged, JournalError

REPAIR_REMEDY = (
    "The file is unchanged. `mudroom journal repair` writes a new one with all readable records."
)

_DAMAGE_CODES = (
    sqlite3.SQLITE_ERROR,  # a table is missing
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
)


@contextmanager
def translate_errors(path: Path) -> Generator[None]:
    """Raise JournalError or JournalDamaged in place of SQLite and file system errors."""
    try:
        yield
    except FileExistsError as error:
        raise JournalError(
            "this session exists already", where=str(path), remedy="Resume it, or use another id."
        ) from error
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF in _DAMAGE_CODES:
            message = f"the journal is damaged: {error}"
            raise JournalDamaged(message, where=str(path), remedy=REPAIR_REMEDY) from error
        message, remedy = explain_write_failure(error)
        raise JournalError(message, where=str(path), remedy=remedy) from error
    except OSError as error:
        raise JournalError(
            f"the journal cannot be opened: {error.strerror}",
            where=str(error.filename or path),
            remedy="Check its permissions and the disk, or set MUDROOM_HOME to another folder.",
        ) from error


def explain_write_failure(error: Exception) -> tuple[str, str]:
    """Return the message and remedy for a failed write."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    safe = "Earlier records are safe."
    if code == sqlite3.SQLITE_FULL:
        remedy = f"{safe} Free some space, then resume the session."
        return "the disk is full; this was not recorded", remedy
    if code == sqlite3.SQLITE_READONLY:
        remedy = f"{safe} Make the file and its folder writable."
        return "the journal is read-only; this was not recorded", remedy
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        remedy = f"{safe} Close the other program."
        return "another program has locked the journal; this was not recorded", remedy
    remedy = f"{safe} Check the disk and its free space."
    return f"the journal cannot be written: {error or type(error).__name__}", remedy
