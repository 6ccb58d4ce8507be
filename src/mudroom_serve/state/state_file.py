"""The file with the state of the server, shared by all server processes of a state folder."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from msgspec import Struct

from mudroom.driving import make_private_file
from mudroom.errors import MudroomError

_T = TypeVar("_T")

FILE_NAME = "serve.sqlite3"
_VERSION = 3

_TABLES = """
CREATE TABLE tokens (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, digest BLOB NOT NULL, body TEXT NOT NULL
) STRICT;
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,
    digest BLOB NOT NULL, body TEXT NOT NULL, created REAL NOT NULL,
    charged INTEGER NOT NULL DEFAULT 0, usd REAL NOT NULL DEFAULT 0,
    tokens INTEGER NOT NULL DEFAULT 0, asking TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX sessions_of_owner ON sessions (owner, number);
CREATE TABLE inputs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL, key TEXT NOT NULL,
    digest BLOB NOT NULL, type TEXT NOT NULL, body TEXT NOT NULL, state TEXT NOT NULL,
    runs_before INTEGER NOT NULL DEFAULT 0, result TEXT NOT NULL DEFAULT '',
    UNIQUE (session, key)
) STRICT;
CREATE INDEX open_inputs ON inputs (session, number) WHERE state <> 'done';
CREATE TABLE spending (
    owner TEXT NOT NULL, day TEXT NOT NULL, usd REAL NOT NULL, tokens INTEGER NOT NULL,
    PRIMARY KEY (owner, day)
) STRICT;
"""


class StateError(MudroomError):
    """The file cannot be read or written now. The same work may work later."""


class _Change(Struct):
    """A function that waits for its transaction, and its outcome.

    Arguments:
        result: gets the value or the error when the transaction has ended.
    """

    work: Callable[[sqlite3.Connection], Any]
    result: Future[Any]
    value: Any = None
    error: BaseException | None = None

    def finish(self) -> None:
        """Give the caller the value or the error."""
        if self.error is None:
            self.result.set_result(self.value)
        else:
            self.result.set_exception(self.error)


class StateFile:
    """The file. Its work runs in one thread, one transaction at a time.

    Changes that wait at the same time share a transaction, because a sync of the disk takes longer
    than all of them.

    Arguments:
        home: mudroom's state folder.
        busy_seconds: longest time that a change waits for another process.

    Raises StateError if the file cannot be used, MudroomError for one of a newer version.
    """

    def __init__(self, home: str, *, busy_seconds: float = 10.0) -> None:
        self.path = Path(home) / FILE_NAME
        self._busy_seconds = busy_seconds
        self._thread = ThreadPoolExecutor(1, "serve-state")
        self._waiting: SimpleQueue[_Change] = SimpleQueue()
        try:
            self._connection = self._connect()
        except (sqlite3.Error, OSError) as error:
            raise self._make_error(error) from error

    async def run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run a function in a transaction, which is durable when this returns.

        If it raises an error, its changes are undone. Raises StateError for an error of SQLite, and
        other errors of the function.
        """
        change = _Change(work, Future())
        self._waiting.put(change)
        self._thread.submit(self._run_waiting)
        return await asyncio.wrap_future(change.result)

    def run_now(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run a function in a transaction, and block. Raises StateError."""
        try:
            with self._open_transaction():
                return work(self._connection)
        except sqlite3.Error as error:
            raise self._make_error(error) from error

    async def read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run a function that changes nothing. Raises StateError."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.read_now, work)

    def read_now(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run a function that changes nothing, and block. Raises StateError."""
        try:
            return work(self._connection)
        except sqlite3.Error as error:
            raise self._make_error(error) from error

    async def execute(self, statement: str, *values: object) -> None:
        """Execute a statement in a transaction, which is durable when this returns."""
        await self.run(lambda connection: connection.execute(statement, values))

    async def list_rows(self, query: str, *values: object) -> list[Any]:
        """Return the rows of a query. Raises StateError."""
        return await self.read(lambda connection: connection.execute(query, values).fetchall())

    async def find_row(self, query: str, *values: object) -> Any:  # noqa: ANN401  (its columns)
        """Return the first row of a query, None if there is none. Raises StateError."""
        return await self.read(lambda connection: connection.execute(query, values).fetchone())

    async def read_change_number(self) -> int:
        """Return a number that differs after each change by another process."""
        return (await self.find_row("PRAGMA data_version"))[0]

    def _run_waiting(self) -> None:
        """Run all waiting changes in one transaction."""
        waiting: list[_Change] = []
        while not self._waiting.empty():
            waiting.append(self._waiting.get())
        changes = [each for each in waiting if each.result.set_running_or_notify_cancel()]
        if not changes:
            return
        try:
            with self._open_transaction():
                for each in changes:
                    self._run_change(each)
        except BaseException as error:  # noqa: BLE001  (the callers get it)
            for each in changes:
                if each.error is None:
                    each.error = self._make_error(error)
        for each in changes:
            each.finish()

    def _run_change(self, change: _Change) -> None:
        """Run a change in the open transaction. Undo it alone if it fails.

        Raises an error if the transaction cannot continue.
        """
        self._connection.execute("SAVEPOINT change")
        try:
            change.value = change.work(self._connection)
            self._connection.execute("RELEASE change")
        except BaseException as error:
            change.error = self._make_error(error) if isinstance(error, sqlite3.Error) else error
            if not self._connection.in_transaction:  # such as after a full disk
                raise
            change.value = None  # an open cursor stops the next statements
            self._connection.execute("ROLLBACK TO change")
            self._connection.execute("RELEASE change")

    @contextmanager
    def _open_transaction(self) -> Generator[None]:
        """Run a block in a transaction. Undo it if the block or the commit fails."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Finish the work and close the file."""
        self._thread.submit(self._connection.close).result()
        self._thread.shutdown()

    def _connect(self) -> sqlite3.Connection:
        with suppress(FileExistsError):  # another process may make it, too
            make_private_file(self.path)
        connection = sqlite3.connect(
            self.path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
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
            raise MudroomError(
                "the state of the server was written by a newer version",
                where=str(self.path),
                remedy="Update mudroom.",
            )
        if version == 0:  # a new file
            for statement in filter(str.strip, _TABLES.split(";")):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {_VERSION}")

    def _make_error(self, cause: BaseException) -> StateError:
        text = f"the state of the server cannot be used: {cause}"
        error = StateError(text, where=str(self.path))
        error.__cause__ = cause
        return error
