"""A connection for a thread that waits for each statement, with the placeholders of SQLite.

For tables beside the store's, such as those of `mudroom serve`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Any, TypeVar

from mudroom.errors import JournalError

from .connections import get_background_loop
from .driver import (
    Connection,
    check_url,
    connect,
    get_state,
    hide_password,
    translate_error,
)

_T = TypeVar("_T")

# Time limit of one statement, so that a hanging connection is given up.
_STATEMENT_SECONDS = 15.0

# Pause after a failed attempt, so that work waiting meanwhile fails at once.
_REST_SECONDS = 1.0

# Prefixes of SQLSTATE codes of a connection lost or ended by the server.
_LOST_STATES = ("08", "25P03", "57P")


class BlockingRows:
    """The rows of a completed statement."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self._rows = rows

    def fetchone(self) -> Any:  # noqa: ANN401  (its columns)
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[Any]:
        return list(self._rows)


class BlockingConnection:
    """A connection to a database, opened at the first statement and reopened after a loss.

    Call it from one thread at a time, never from the connections' loop.

    All methods raise JournalError.
    """

    def __init__(self, url: str) -> None:
        check_url(url)
        self.place = hide_password(url)
        self.in_transaction = False  # also after the connection of a transaction was lost
        self._url = url
        self._connection: Connection | None = None
        self._rests_until = 0.0
        background = get_background_loop()
        background.close_at_exit(self._close)
        self._loop = background.loop

    def begin(self, *statements: str) -> None:
        """Begin a transaction, and execute statements without placeholders in it."""
        if time.monotonic() < self._rests_until:
            raise JournalError("the database could not be reached just now", where=self.place)
        text = ";".join(("BEGIN", *statements))
        is_reused = self._connection is not None and not self._connection.is_closed()
        try:
            self._wait(lambda connection: connection.execute(text), may_connect=True)
        except Exception as error:
            self._drop()  # also after a refused statement: a transaction may be open
            if is_reused and _is_lost(error):
                self.begin(*statements)  # the server may have closed an idle connection
                return
            if _is_lost(error):
                self._rests_until = time.monotonic() + _REST_SECONDS
            raise translate_error(error, self.place) from error
        self.in_transaction = True

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> BlockingRows:
        """Execute a statement inside a transaction; question marks are placeholders."""
        if not self.in_transaction:
            raise JournalError("the connection to the database was lost", where=self.place)
        try:
            rows = self._wait(make_work(statement, values), may_connect=False)
        except Exception as error:
            if _is_lost(error):
                self._drop()
            raise translate_error(error, self.place) from error
        if statement in ("COMMIT", "ROLLBACK"):
            self.in_transaction = False
        return BlockingRows(rows)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()

    def _wait(self, work: Callable[[Connection], Awaitable[_T]], *, may_connect: bool) -> _T:
        running = self._run(work, may_connect=may_connect)
        return asyncio.run_coroutine_threadsafe(running, self._loop).result()

    async def _run(self, work: Callable[[Connection], Awaitable[_T]], *, may_connect: bool) -> _T:
        connection = self._connection
        if connection is None or connection.is_closed():
            if not may_connect:  # the transaction has ended with its connection
                raise ConnectionResetError("the connection was lost")
            connection = self._connection = await connect(self._url)
        # `terminate` ends the work at once. A cancel would wait for the server's answer.
        stopping = self._loop.call_later(_STATEMENT_SECONDS, connection.terminate)
        try:
            return await work(connection)
        finally:
            stopping.cancel()

    def _drop(self) -> None:
        self.in_transaction = False
        if (connection := self._connection) is not None:
            self._connection = None
            self._loop.call_soon_threadsafe(connection.terminate)

    async def _close(self) -> None:
        if (connection := self._connection) is not None:
            self._connection = None
            self.in_transaction = False
            connection.terminate()


def make_work(
    statement: str, values: Sequence[Any]
) -> Callable[[Connection], Awaitable[Sequence[Any]]]:
    numbered = number_placeholders(statement)
    cleaned = [_clean(value) for value in values]

    async def fetch(connection: Connection) -> Sequence[Any]:
        if cleaned or statement.startswith("SELECT"):
            return await connection.fetch(numbered, *cleaned)
        await connection.execute(numbered)  # one message instead of two
        return ()

    return fetch


@cache
def number_placeholders(statement: str) -> str:
    """Replace the question marks of a statement by $1, $2, and so on."""
    first, *others = statement.split("?")
    return first + "".join(f"${number}{text}" for number, text in enumerate(others, 1))


def _is_lost(error: Exception) -> bool:
    state = get_state(error)
    return not state or state.startswith(_LOST_STATES)


def _clean(value: object) -> object:
    """Remove characters PostgreSQL cannot store in text: lone surrogates and NUL."""
    if not isinstance(value, str):
        return value
    return value.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
