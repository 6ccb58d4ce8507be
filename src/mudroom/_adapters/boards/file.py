"""A board's file: its location, its tables, and SQLite errors as BoardError.

task(id, subject, description, status, owner, lock, run, revision, report, source, exported,
    metadata)    agent and priority are computed from the metadata, a JSON object
edge(task, blocker)    dependencies, never deleted while both tasks exist
log(at, task, change, owner)    append-only
op(key, answer)    changes made by tool calls: a repeated call gets the same answer
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..._core.ports.board import BoardTask
from ..._platform.private_files import make_private_file, make_private_folder
from ...errors import BoardError

# "mudb" in ASCII.
_APPLICATION_ID = 0x6D756462
_SCHEMA_VERSION = 3
_TABLES = """
CREATE TABLE IF NOT EXISTS task (id INTEGER PRIMARY KEY AUTOINCREMENT, subject TEXT NOT NULL,
    description TEXT NOT NULL DEFAULT '', status TEXT NOT NULL DEFAULT 'pending',
    owner TEXT NOT NULL DEFAULT '', lock TEXT NOT NULL DEFAULT '',
    run TEXT NOT NULL DEFAULT '', revision INTEGER NOT NULL DEFAULT 1,
    report TEXT NOT NULL DEFAULT '',
    source TEXT NOT NULL DEFAULT '', exported TEXT NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS edge (task INTEGER NOT NULL, blocker INTEGER NOT NULL,
    PRIMARY KEY (task, blocker)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS edge_blocker ON edge (blocker);
CREATE TABLE IF NOT EXISTS log (at REAL NOT NULL, task INTEGER NOT NULL, change TEXT NOT NULL,
    owner TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS op (key TEXT PRIMARY KEY, answer TEXT NOT NULL) WITHOUT ROWID;
"""
_FROM_VERSION_1 = "ALTER TABLE task ADD COLUMN run TEXT NOT NULL DEFAULT ''"
_FROM_VERSION_2 = """
ALTER TABLE task ADD COLUMN metadata TEXT NOT NULL DEFAULT '{}';
ALTER TABLE task ADD COLUMN agent TEXT AS (coalesce(json_extract(metadata, '$.agent'), ''));
ALTER TABLE task ADD COLUMN priority INTEGER AS (coalesce(json_extract(metadata, '$.priority'), 0));
DROP INDEX IF EXISTS task_status;
CREATE INDEX task_order ON task (status, priority DESC, id);
"""
# Seconds that SQLite waits for other processes; generous, for machines under heavy load.
_LOCK_TIMEOUT = 60.0

# Between attempts to begin a change, which itself takes 1 to 3 ms.
_RETRY_SECONDS = 0.002

_DAMAGE_CODES = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_NETWORK_TYPES = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs"}


def get_board_path(home: str | Path, project: str) -> Path:
    """Return the path of a project's board. `project` is the real path of its folder."""
    # Paths on Linux may have bytes that are not UTF-8.
    digest = hashlib.sha256(project.encode("utf-8", "surrogateescape")).hexdigest()
    return Path(home, "boards", f"{digest[:16]}.db")


def connect(path: Path) -> sqlite3.Connection:
    """Open a board's file, creating it and its folder if missing.

    Raises BoardError for a damaged file, a file of another program or a newer version, an
    unwritable folder, and a network file system.
    """
    with translate_errors(path):
        make_private_folder(path.parent)
        _require_local_disk(path)
        with suppress(FileExistsError):
            make_private_file(path)
        connection = sqlite3.connect(path, timeout=_LOCK_TIMEOUT, isolation_level=None)
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != _SCHEMA_VERSION:
        _create_tables(connection, path)
    connection.execute("SELECT id FROM task LIMIT 1").fetchone()


def begin_change(connection: sqlite3.Connection) -> None:
    """Begin a write transaction as soon as the other processes allow it."""
    deadline = time.monotonic() + _LOCK_TIMEOUT
    # SQLite's own retries are up to 0.1 s apart: with 50 processes, the file would be idle most
    # of the time.
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not is_busy or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_SECONDS)
    finally:
        connection.execute(f"PRAGMA busy_timeout = {_LOCK_TIMEOUT * 1000:.0f}")


def _create_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Create or update the tables, possibly while another process does the same."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")
    # Read inside the transaction, when no other process can be updating the tables.
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (program,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if version > _SCHEMA_VERSION:
        remedy = "Update mudroom."
        raise BoardError(
            "a newer version of mudroom wrote the board", where=str(path), remedy=remedy
        )
    if tables and program != _APPLICATION_ID:
        remedy = "Move the file to another folder."
        raise BoardError("this file is not a task board", where=str(path), remedy=remedy)
    if version == 1:
        connection.execute(_FROM_VERSION_1)
    for statement in (_TABLES + _FROM_VERSION_2).split(";"):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
    connection.execute("COMMIT")


@contextmanager
def translate_errors(path: Path) -> Generator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        message, remedy = _explain_failure(error, path)
        raise BoardError(message, where=str(path), remedy=remedy) from error
    except OSError as error:
        raise BoardError(
            f"the task board cannot be opened: {error.strerror}",
            where=str(error.filename or path),
            remedy="Check its permissions and the disk, or set MUDROOM_HOME to another folder.",
        ) from error


def _explain_failure(error: sqlite3.DatabaseError, path: Path) -> tuple[str, str]:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _DAMAGE_CODES:
        remedy = (
            f"Move {path.name}, {path.name}-wal and {path.name}-shm to another folder. The next "
            "command creates a new board; mudroom board import fills it from exported files."
        )
        return f"the task board is damaged: {error}", remedy
    if code == sqlite3.SQLITE_FULL:
        return "the disk is full; this was not stored", "Free some space, then try again."
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
        remedy = "Make the file and its folder writable, or set MUDROOM_HOME to another folder."
        return "the task board cannot be written", remedy
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return "another program has locked the task board", "Close the other program."
    return f"the task board cannot be used: {error}", "Check the disk and its free space."


def _require_local_disk(path: Path) -> None:
    """Raise BoardError on a network file system, where SQLite's locks do not work."""
    kind = find_file_system(path.parent, _read_mounts())
    if kind in _NETWORK_TYPES:
        raise BoardError(
            f"the task board is on a network file system ({kind}), where it can be damaged",
            where=str(path),
            remedy="Set MUDROOM_HOME to a folder on a local disk.",
        )


def _read_mounts() -> str:
    with suppress(OSError):
        return Path("/proc/self/mounts").read_text("utf-8", "surrogateescape")
    return ""


def find_file_system(folder: Path, mounts: str) -> str:
    """Find a folder's file system type in the text of /proc/self/mounts; "" if unknown."""
    types: dict[str, str] = {}
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) > 2:
            types[fields[1].replace("\\040", " ")] = fields[2]
    real = folder.resolve()
    return next((types[str(part)] for part in (real, *real.parents) if str(part) in types), "")


_TASKS = (
    "SELECT id, subject, description, status, owner, lock, run, revision, report, metadata, "
    "source <> '' FROM task"
)
_EDGES = (
    "SELECT edge.task, edge.blocker, task.status FROM edge LEFT JOIN task ON task.id = edge.blocker"
)


def read_tasks(sql: sqlite3.Connection, task_id: int | None = None) -> list[BoardTask]:
    one = task_id is not None
    values = {"id": task_id}
    edge_select = _EDGES + (" WHERE edge.task = :id OR edge.blocker = :id" if one else "")
    task_select = _TASKS + (" WHERE id = :id" if one else "")
    rows = sql.execute(task_select + " ORDER BY id", values).fetchall()
    edges = sql.execute(edge_select + " ORDER BY 1, 2", values).fetchall()
    blockers: dict[int, list[int]] = {}
    waits_for: dict[int, list[int]] = {}
    blocks: dict[int, list[int]] = {}
    for task, blocker, status in edges:
        blockers.setdefault(task, []).append(blocker)
        blocks.setdefault(blocker, []).append(task)
        if status != "completed":
            waits_for.setdefault(task, []).append(blocker)
    return [
        BoardTask(
            id=row[0],
            subject=row[1],
            description=row[2],
            status=row[3],
            owner=row[4],
            has_process=bool(row[5]),
            run=row[6],
            revision=row[7],
            report=row[8],
            metadata=json.loads(row[9]),
            is_imported=bool(row[10]),
            blockers=tuple(blockers.get(row[0], ())),
            waits_for=tuple(waits_for.get(row[0], ())),
            blocks=tuple(blocks.get(row[0], ())),
        )
        for row in rows
    ]


def read_blockers(sql: sqlite3.Connection) -> dict[int, list[int]]:
    blockers: dict[int, list[int]] = {}
    for task, blocker in sql.execute("SELECT task, blocker FROM edge ORDER BY 1, 2"):
        blockers.setdefault(task, []).append(blocker)
    return blockers
