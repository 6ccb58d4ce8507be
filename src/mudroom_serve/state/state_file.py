"""The server's state in a file, shared by all server processes of a state folder."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from mudroom.driving import make_private_file

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
    """The file. A change waits up to `busy_seconds` for another process."""

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
        with suppress(FileExistsError):  # another process may also make it
            make_private_file(self.path)
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
