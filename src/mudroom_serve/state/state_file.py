"""The state of the server in a file, shared by all server processes of a state folder."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from .server_state import ServerState, list_tables, make_newer_error, make_state_error

FILE_NAME = "serve.sqlite3"
_VERSION = 3
_TYPES = {
    "number": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "integer": "INTEGER",
    "float": "REAL",
    "bytes": "BLOB",
    "end": "STRICT",
}


class StateFile(ServerState):
    """The file.

    Arguments:
        home: mudroom's state folder.
        busy_seconds: longest time that a change waits for another process.

    Raises StateError if the file cannot be used, MudroomError for one of a newer version.
    """

    DATABASE_ERRORS = (sqlite3.Error,)

    def __init__(self, home: str, *, busy_seconds: float = 10.0) -> None:
        self.path = Path(home) / FILE_NAME
        try:
            connection = self._connect(busy_seconds)
        except (sqlite3.Error, OSError) as error:
            raise make_state_error(error, str(self.path)) from error
        super().__init__(connection, str(self.path))

    def _begin(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def _read_change_number(self) -> int:
        return self.read_now(
            lambda connection: connection.execute("PRAGMA data_version").fetchone()
        )[0]

    def _connect(self, busy_seconds: float) -> sqlite3.Connection:
        _make_private_file(self.path)
        connection = sqlite3.connect(
            self.path, timeout=busy_seconds, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            self._make_tables(connection)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        with closing(connection.execute("PRAGMA user_version")) as cursor:
            version = cursor.fetchone()[0]
        if version > _VERSION:
            raise make_newer_error(str(self.path))
        if version == 0:  # a new file
            for statement in list_tables(**_TYPES):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {_VERSION}")


def _make_private_file(path: Path) -> None:
    """Create a file that only this user can read, and its folders, unless they exist."""
    for folder in reversed(path.parents):
        with suppress(FileExistsError):
            folder.mkdir(0o700)
            folder.chmod(0o700)  # whatever the umask
    with suppress(FileExistsError):  # another process has made it
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
