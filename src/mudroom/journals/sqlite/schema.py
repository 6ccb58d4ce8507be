"""One journal file: made, opened and checked, and what its failures are called."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec import Struct

from ..._version import __version__
from ...errors import JournalDamaged, JournalError, JournalNewer
from .store import make_private_file, remove_half_created

SCHEMA_VERSION = 1
_APPLICATION = 0x6D756472
_TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE events (seq INTEGER PRIMARY KEY, run TEXT NOT NULL, type TEXT NOT NULL, body BLOB NOT NULL, crc INTEGER NOT NULL)",
)
_BUSY = 30.0
_DAMAGE = (
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
)  # the first: a table is missing
_RESTORE = (
    "The file is left as it is; mudroom journal repair makes a new one of all that can be read."
)


class JournalMeta(Struct, frozen=True, kw_only=True):
    """What a journal file says about itself.

    Arguments:
        created: seconds since 1970. program: the version that began it. name: given by a person, "" for none.
    """

    session: str
    created: float
    program: str
    name: str = ""


def connect_writer(
    path: Path, session: str, *, create: bool
) -> tuple[sqlite3.Connection, JournalMeta]:
    """A connection that syncs every commit; a new file begins with the session's id, one that is there is checked first."""
    if create:
        _make(path, session)
    elif not path.exists():
        raise JournalError(
            "there is no such journal", where=str(path), remedy="See `mudroom runs`."
        )
    connection = sqlite3.connect(
        _uri(path, "rw"), uri=True, isolation_level=None, timeout=_BUSY, check_same_thread=False
    )
    try:
        meta = read_meta(connection, path, session)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(
            "BEGIN IMMEDIATE"
        )  # fails here, not at the first record, when the file cannot be written
        connection.execute("COMMIT")
        return connection, meta
    except BaseException:
        connection.close()
        raise


def connect_reader(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing, also on a disk where SQLite could not put its shared memory."""
    if not path.exists():
        raise JournalError(
            "there is no such journal", where=str(path), remedy="See `mudroom runs`."
        )
    try:
        return _readable(_uri(path, "ro"))
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise
    wal = path.with_name(path.name + "-wal")
    if not wal.exists():
        return _readable(_uri(path, "ro") + "&immutable=1")
    return _copied(path, wal)


def connect_briefly(path: Path) -> sqlite3.Connection:
    """A reader for a moment: of a file that nobody had open it does not make the ones that SQLite wants beside it."""
    log = path.with_name(path.name + "-wal")
    alone = not log.exists() or not log.stat().st_size
    return (
        _readable(_uri(path, "ro") + "&immutable=1")
        if alone and path.exists()
        else connect_reader(path)
    )


def read_meta(connection: sqlite3.Connection, path: Path, session: str = "") -> JournalMeta:
    """What the file says about itself, once it is known to be a journal, of a schema we know, and of that session."""
    where = str(path)
    schema = connection.execute("PRAGMA user_version").fetchone()[0]
    if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
        raise JournalDamaged("this is no journal of mudroom's", where=where, remedy=_RESTORE)
    if schema > SCHEMA_VERSION:
        remedy = f"Use a newer mudroom; this one ({__version__}) leaves the file as it is."
        raise JournalNewer(
            f"the journal has schema {schema}, and this program knows {SCHEMA_VERSION}",
            where=where,
            remedy=remedy,
        )
    found = dict(connection.execute("SELECT key, value FROM meta"))
    try:
        meta = JournalMeta(
            session=found["session"],
            created=float(found["created"]),
            program=found["program"],
            name=found.get("name", ""),
        )
    except (KeyError, ValueError) as error:
        raise JournalDamaged(
            "the journal does not say whose it is", where=where, remedy=_RESTORE
        ) from error
    if session and session != meta.session:
        raise JournalError(
            f"the journal holds session {meta.session!r}, not {session!r}",
            where=where,
            remedy="Open it by its own id.",
        )
    return meta


def write_name(path: Path, name: str) -> None:
    """Give a session a name, "" for none; also while its writer is at work. Raises JournalError."""
    with (
        translate_errors(path),
        closing(sqlite3.connect(_uri(path, "rw"), uri=True, timeout=_BUSY)) as connection,
    ):
        read_meta(connection, path)
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('name', ?)", (name,))
        connection.commit()


@contextmanager
def translate_errors(path: Path) -> Generator[None]:
    """Turn what SQLite and the system say about a file into JournalError with the remedy."""
    try:
        yield
    except FileExistsError as error:
        raise JournalError(
            "there is such a session already",
            where=str(path),
            remedy="Continue it, or take another id.",
        ) from error
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF in _DAMAGE:
            raise JournalDamaged(
                f"the journal is damaged: {error}", where=str(path), remedy=_RESTORE
            ) from error
        message, remedy = explain_write_failure(error)
        raise JournalError(message, where=str(path), remedy=remedy) from error
    except OSError as error:
        raise JournalError(
            f"the journal cannot be opened: {error.strerror}",
            where=str(error.filename or path),
            remedy="Check its rights and the disk, or set MUDROOM_HOME to another folder.",
        ) from error


def explain_write_failure(error: Exception) -> tuple[str, str]:
    """What stopped the writing, and what to do about it."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    kept = "What was recorded before is safe."
    if code == sqlite3.SQLITE_FULL:
        return (
            "the disk is full; this was not recorded",
            f"{kept} Free some space, then continue the session.",
        )
    if code == sqlite3.SQLITE_READONLY:
        return (
            "the journal is read-only; this was not recorded",
            f"{kept} Make the file and its folder writable.",
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return (
            "another program has locked the journal; this was not recorded",
            f"{kept} Close the other program.",
        )
    return (
        f"the journal cannot be written: {error or type(error).__name__}",
        f"{kept} Check the disk and its free space.",
    )


def _make(path: Path, session: str) -> None:
    """Make a new file: it gets its name when it is whole, so that a crash leaves none that is no journal. Raises FileExistsError."""
    if path.exists():
        raise FileExistsError(17, "File exists", str(path))
    remove_half_created(path)
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    make_private_file(new)
    try:
        with closing(
            sqlite3.connect(_uri(new, "rw"), uri=True, isolation_level=None)
        ) as connection:
            connection.execute(
                "PRAGMA journal_mode = MEMORY"
            )  # whoever crashes here leaves nothing that could be rolled back
            connection.execute("BEGIN IMMEDIATE")
            _begin(connection, session)
            connection.execute("COMMIT")
        new.rename(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _begin(connection: sqlite3.Connection, session: str) -> None:
    for statement in (
        *_TABLES,
        f"PRAGMA application_id = {_APPLICATION}",
        f"PRAGMA user_version = {SCHEMA_VERSION}",
    ):
        connection.execute(statement)
    facts = {
        "schema": SCHEMA_VERSION,
        "session": session,
        "created": repr(time.time()),
        "program": __version__,
    }
    connection.executemany(
        "INSERT INTO meta VALUES (?, ?)", [(key, str(value)) for key, value in facts.items()]
    )


def _copied(path: Path, wal: Path) -> sqlite3.Connection:
    import shutil  # slow to import, and rarely needed

    from ..._platform.scratch_dirs import ScratchDir

    with ScratchDir() as folder:  # its files may go once they are open
        for part in (path, wal):
            shutil.copyfile(part, Path(folder, part.name))
        return _readable(_uri(Path(folder, path.name), "rw"))


def _readable(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_BUSY)
    try:
        connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _uri(path: Path, mode: str) -> str:
    return f"{path.as_uri()}?mode={mode}"
