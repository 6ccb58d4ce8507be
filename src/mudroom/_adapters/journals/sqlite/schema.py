"""The schema of a journal file: creates, opens and checks it, and translates errors.

meta(key, value)                      schema, session, created, program, name, summary
events(seq, run, type, body, crc)     seq counts from 1 without gaps; body is JSON; crc is
crc32(body)

The write-ahead log may end with half a transaction of a killed process. Format of the log:
https://sqlite.org/fileformat2.html#the_write_ahead_log
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec import Struct

from ...._platform.private_files import make_private_file
from ...._version import __version__
from ....errors import JournalDamaged, JournalError, JournalNewer
from .folder import remove_half_created

SCHEMA_VERSION = 2
"""Version of the tables and their events."""

# "mudr" in ASCII; the program `file` shows it.
_APPLICATION_ID = 0x6D756472
_TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE events (seq INTEGER PRIMARY KEY, run TEXT NOT NULL, type TEXT NOT NULL, "
    "body BLOB NOT NULL, crc INTEGER NOT NULL)",
)
# KiB of pages cached by a writer. It only appends and never reads them again.
_WRITER_CACHE = 256
# Seconds SQLite waits for another connection's lock.
_LOCK_TIMEOUT = 30.0


class JournalMeta(Struct, frozen=True, kw_only=True):
    """Facts a journal file states about itself.

    `program` is the version of mudroom that created it. `summary` is the state of the session's
    summary after some of its events, "" for none.
    """

    session: str
    created: float
    program: str
    name: str = ""
    summary: str = ""


def connect_writer(path: Path, session: str) -> tuple[sqlite3.Connection, JournalMeta]:
    """Open a connection that syncs every commit. The file must exist and hold the session."""
    _require_file(path)
    connection = _connect(_make_uri(path, "rw"))
    try:
        meta = read_meta(connection, path, session)
        connection.execute(f"PRAGMA cache_size = -{_WRITER_CACHE}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA journal_mode = WAL")
        # Makes an unwritable file fail here, not at the first event.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")
        return connection, meta
    except BaseException:
        connection.close()
        raise


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open a read-only connection, even where SQLite cannot create its shared memory."""
    _require_file(path)
    try:
        return _open_readable(_make_uri(path, "ro"))
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise
    log = path.with_name(path.name + "-wal")
    if not log.exists():
        return _open_readable(_make_uri(path, "ro") + "&immutable=1")
    return _open_copy(path, log)


def connect_briefly(path: Path) -> sqlite3.Connection:
    """Open a connection for one short read.

    If no other process has the file open, SQLite creates no files next to it.
    """
    log = path.with_name(path.name + "-wal")
    has_log = log.exists() and log.stat().st_size > 0
    if path.exists() and not has_log:
        return _open_readable(_make_uri(path, "ro") + "&immutable=1")
    return connect_reader(path)


def read_meta(connection: sqlite3.Connection, path: Path, session: str = "") -> JournalMeta:
    """Read a journal's facts, checking its schema and, unless it is "", the session it must have.

    Raises JournalDamaged, JournalNewer, JournalError.
    """
    where = str(path)
    schema = connection.execute("PRAGMA user_version").fetchone()[0]
    if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
        raise JournalDamaged("this is not a journal of mudroom", where=where, remedy=REPAIR_REMEDY)
    if schema > SCHEMA_VERSION:
        raise JournalNewer(
            f"the journal has schema {schema}; this program knows {SCHEMA_VERSION}",
            where=where,
            remedy=f"Use a newer mudroom. This one ({__version__}) leaves the file unchanged.",
        )
    if schema < SCHEMA_VERSION:
        raise JournalError(
            f"the journal has schema {schema}, which no release of mudroom has written",
            where=where,
            remedy="Delete the session.",
        )
    values = dict(connection.execute("SELECT key, value FROM meta"))
    try:
        meta = JournalMeta(
            session=values["session"],
            created=float(values["created"]),
            program=values["program"],
            name=values.get("name", ""),
            summary=values.get("summary", ""),
        )
    except (KeyError, ValueError) as error:
        message = "the journal does not name its session"
        raise JournalDamaged(message, where=where, remedy=REPAIR_REMEDY) from error
    if session and session != meta.session:
        raise JournalError(
            f"the journal holds session {meta.session!r}, not {session!r}",
            where=where,
            remedy="Open it by its own id.",
        )
    return meta


def read_last_number(connection: sqlite3.Connection) -> int:
    return connection.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0]


def write_name(path: Path, name: str) -> None:
    """Store a session's name, "" for none, even while another process writes the session."""
    file = path if path.exists() else get_unpublished_path(path)
    with (
        translate_errors(path),
        closing(
            sqlite3.connect(_make_uri(file, "rw"), uri=True, timeout=_LOCK_TIMEOUT)
        ) as connection,
    ):
        read_meta(connection, path)
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('name', ?)", (name,))
        connection.commit()


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(
        uri, uri=True, isolation_level=None, timeout=_LOCK_TIMEOUT, check_same_thread=False
    )


def _require_file(path: Path) -> None:
    if not path.exists():
        raise JournalError(
            "there is no such journal", where=str(path), remedy="See `mudroom runs`."
        )


def get_unpublished_path(path: Path) -> Path:
    """Return a journal file's temporary name, used until its first events are stored."""
    return path.with_name(path.name + ".new")


def create_file(path: Path, session: str) -> tuple[sqlite3.Connection, JournalMeta]:
    """Create a journal file under a temporary name, and connect to it for its first events.

    That way a crash before `publish_file` leaves no journal.
    """
    if path.exists():
        raise FileExistsError(17, "File exists", str(path))
    remove_half_created(path)
    new = get_unpublished_path(path)
    new.unlink(missing_ok=True)
    make_private_file(new)
    connection = _connect(_make_uri(new, "rw"))
    try:
        # No rollback file: a crash here must leave nothing but the new file.
        connection.execute("PRAGMA journal_mode = MEMORY")
        # The commit of the first events syncs the whole file before it gets its name.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN IMMEDIATE")
        _write_schema(connection, session)
        connection.execute("COMMIT")
        connection.execute("PRAGMA synchronous = FULL")
        return connection, read_meta(connection, new)
    except BaseException:
        connection.close()
        new.unlink(missing_ok=True)
        raise


def publish_file(connection: sqlite3.Connection, path: Path, session: str) -> sqlite3.Connection:
    """Give a created file its real name, and return the connection for further events."""
    connection.close()
    get_unpublished_path(path).rename(path)
    return connect_writer(path, session)[0]


def _write_schema(connection: sqlite3.Connection, session: str) -> None:
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    meta = {
        "schema": str(SCHEMA_VERSION),
        "session": session,
        "created": repr(time.time()),
        "program": __version__,
    }
    connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())


def _open_copy(path: Path, log: Path) -> sqlite3.Connection:
    import shutil  # slow to import, and rarely needed

    from ...._platform.scratch_dirs import ScratchDir

    # The copies can be deleted once they are open.
    with ScratchDir() as folder:
        for source in (path, log):
            shutil.copyfile(source, Path(folder, source.name))
        return _open_readable(_make_uri(Path(folder, path.name), "rw"))


def _open_readable(uri: str) -> sqlite3.Connection:
    connection = _connect(uri)
    try:
        connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _make_uri(path: Path, mode: str) -> str:
    return f"{path.as_uri()}?mode={mode}"


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


_HEADER = 32
_FRAME_HEADER = 24


def has_torn_tail(path: Path) -> bool:
    """Return whether a file's log ends in an unfinished transaction.

    SQLite itself ignores such frames silently; they are detected to tell the user.
    """
    log = path.with_name(path.name + "-wal")
    data = log.read_bytes() if log.exists() else b""
    if len(data) < _HEADER:
        return False
    frame_size = int.from_bytes(data[8:12], "big") + _FRAME_HEADER
    salt = data[16:24]  # frames from an earlier generation of the log have a different one
    is_committed = True
    start = _HEADER
    while start + _FRAME_HEADER <= len(data) and data[start + 8 : start + 16] == salt:
        is_complete = start + frame_size <= len(data)
        # A transaction's last frame states the size of the database; all others state 0.
        is_committed = is_complete and data[start + 4 : start + 8] != bytes(4)
        start += frame_size
    return not is_committed
