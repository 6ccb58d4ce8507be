"""The server's state: tokens, owners, accepted events and spending, in database tables."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, ClassVar, Protocol, TypeVar

from msgspec import Struct

from mudroom.errors import MudroomError

_T = TypeVar("_T")

_TABLES = """
CREATE TABLE tokens (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, digest {bytes} NOT NULL, body TEXT NOT NULL
) {end};
CREATE TABLE sessions (
    number {number}, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,
    digest {bytes} NOT NULL, body TEXT NOT NULL, created {float} NOT NULL,
    charged {integer} NOT NULL DEFAULT 0, usd {float} NOT NULL DEFAULT 0,
    tokens {integer} NOT NULL DEFAULT 0, asking TEXT NOT NULL DEFAULT ''
) {end};
CREATE INDEX sessions_of_owner ON sessions (owner, number);
CREATE TABLE inputs (
    number {number}, session TEXT NOT NULL, key TEXT NOT NULL,
    digest {bytes} NOT NULL, type TEXT NOT NULL, body TEXT NOT NULL, state TEXT NOT NULL,
    runs_before {integer} NOT NULL DEFAULT 0, result TEXT NOT NULL DEFAULT '',
    UNIQUE (session, key)
) {end};
CREATE INDEX open_inputs ON inputs (session, number) WHERE state <> 'done';
CREATE TABLE spending (
    owner TEXT NOT NULL, day TEXT NOT NULL, usd {float} NOT NULL, tokens {integer} NOT NULL,
    PRIMARY KEY (owner, day)
) {end};
"""


def list_tables(**types: str) -> list[str]:
    """List the statements that create the tables.

    The types are the database's words for "number" (which counts rows), "integer", "float" and
    "bytes", and for the "end" of a table.
    """
    return [each for each in map(str.strip, _TABLES.format(**types).split(";")) if each]


class Rows(Protocol):
    def fetchone(self) -> Any: ...  # noqa: ANN401  (its columns; None if there is no row)

    def fetchall(self) -> list[Any]: ...


class StateConnection(Protocol):
    """A connection to the database with the tables, for one thread."""

    @property
    def in_transaction(self) -> bool: ...

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        """Execute a statement; each question mark in it is a value."""
        ...

    def close(self) -> None: ...


class StateError(MudroomError):
    """The state cannot be read or written now. The same work may succeed later."""


class _Change(Struct):
    work: Callable[[StateConnection], Any]
    result: Future[Any]  # receives the value or error once the transaction has ended
    value: Any = None
    error: BaseException | None = None


class ServerState(ABC):
    """The state. Its work runs in one thread, one transaction at a time.

    Changes waiting at the same time share a transaction, because making it durable takes longer
    than all of them together.
    """

    DATABASE_ERRORS: ClassVar[tuple[type[Exception], ...]]
    """Errors raised by the connection."""

    def __init__(self, connection: StateConnection, place: str) -> None:
        self.place = place  # where the tables are, for messages
        self._connection = connection
        self._thread = ThreadPoolExecutor(1, "serve-state")
        self._waiting: SimpleQueue[_Change] = SimpleQueue()

    @abstractmethod
    def _begin(self) -> None:
        """Begin a transaction: only one at a time, across all processes, changes the tables."""

    @contextmanager
    def _open_reading(self) -> Generator[None]:
        yield

    @abstractmethod
    def _read_change_number(self) -> int: ...

    async def run(self, work: Callable[[StateConnection], _T]) -> _T:
        """Run a function in a transaction, which is durable when this returns.

        If the function raises an error, its changes are undone. Raises StateError for a database
        error, and the function's other errors.
        """
        change = _Change(work, Future())
        self._waiting.put(change)
        self._thread.submit(self._run_waiting)
        return await asyncio.wrap_future(change.result)

    def run_now(self, work: Callable[[StateConnection], _T]) -> _T:
        """Run a function in a transaction, and block."""
        try:
            with self._open_transaction():
                return work(self._connection)
        except self.DATABASE_ERRORS as error:
            raise self._make_error(error) from error

    async def read(self, work: Callable[[StateConnection], _T]) -> _T:
        """Run a function that changes nothing."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.read_now, work)

    def read_now(self, work: Callable[[StateConnection], _T]) -> _T:
        """Run a function that changes nothing, and block."""
        try:
            with self._open_reading():
                return work(self._connection)
        except self.DATABASE_ERRORS as error:
            raise self._make_error(error) from error

    async def execute(self, statement: str, *values: object) -> None:
        """Execute a statement in a transaction, which is durable when this returns."""
        await self.run(lambda connection: connection.execute(statement, values))

    async def list_rows(self, query: str, *values: object) -> list[Any]:
        return await self.read(lambda connection: connection.execute(query, values).fetchall())

    async def find_row(self, query: str, *values: object) -> Any:  # noqa: ANN401  (its columns)
        return await self.read(lambda connection: connection.execute(query, values).fetchone())

    async def read_change_number(self) -> int:
        """Read a number that differs after each change by another process."""
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self._read_change_number
        )

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
            if each.error is None:
                each.result.set_result(each.value)
            else:
                each.result.set_exception(each.error)

    def _run_change(self, change: _Change) -> None:
        """Run a change in the open transaction. Undo it alone if it fails.

        Raises an error if the transaction cannot continue.
        """
        self._connection.execute("SAVEPOINT change")
        try:
            change.value = change.work(self._connection)
            self._connection.execute("RELEASE change")
        except BaseException as error:  # any error in the caller's function is the caller's
            change.error = (
                self._make_error(error) if isinstance(error, self.DATABASE_ERRORS) else error
            )
            if not self._connection.in_transaction:  # for example after a full disk
                raise
            change.value = None  # an open cursor stops the next statements
            self._connection.execute("ROLLBACK TO change")
            self._connection.execute("RELEASE change")

    @contextmanager
    def _open_transaction(self) -> Generator[None]:
        """Run a block in a transaction; undo it if the block or the commit fails."""
        self._begin()
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:  # raised again; no transaction may stay open
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        self._thread.submit(self._connection.close).result()
        self._thread.shutdown()

    def _make_error(self, cause: BaseException) -> StateError:
        return make_state_error(cause, self.place)


def make_state_error(cause: BaseException, place: str) -> StateError:
    why = cause.message if isinstance(cause, MudroomError) else cause
    error = StateError(f"the state of the server cannot be used: {why}", where=place)
    error.__cause__ = cause
    return error


def make_newer_error(place: str) -> MudroomError:
    return MudroomError(
        "the state of the server was written by a newer version",
        where=place,
        remedy="Update mudroom.",
    )
