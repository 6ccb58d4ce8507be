"""Connections to a database, borrowed for one piece of work and kept for the next."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

from mudroom.errors import MudroomError

from .background_loop import get_background_loop
from .driver import Connection, check_url, connect, find_exposed_password_file, hide_password
from .errors import AppendCollision, is_temporary, translate_error
from .schema import prepare_schema
from .wait_notice import WaitNotice

T = TypeVar("T")

log = logging.getLogger("mudroom")

# Per process and database, shared by all sessions.
_MAX_CONNECTIONS = 4

# An unused connection is closed after this time.
_IDLE_SECONDS = 30.0

# Time limit of one piece of work, so that a hanging connection is given up.
_WORK_SECONDS = 30.0


class Database:
    """This process's connections to a database. Create it with `get_database`.

    Attributes:
        place: its address without the password, for messages.
        wait_notice: reports to the user that sessions are waiting for it.
    """

    def __init__(self, url: str) -> None:
        check_url(url)
        self.place = hide_password(url)
        self.wait_notice = WaitNotice(self.place)
        self._url = url
        # With the time since when each is idle. The last one is reused first, so that a burst's
        # extra connections age and close.
        self._idle: list[tuple[float, Connection]] = []
        self._limit = asyncio.Semaphore(_MAX_CONNECTIONS)
        self._is_prepared = False
        self._has_checked = False
        self._closing: asyncio.TimerHandle | None = None
        self._background = get_background_loop()
        self._background.close_at_exit(self._close)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the connections."""
        return self._background.loop

    async def run(
        self, work: Callable[[Connection], Awaitable[T]], *, is_repeatable: bool = True
    ) -> T:
        """Work with a connection, from any event loop, and return the result.

        Arguments:
            work: runs in the background loop and ends at the first failing statement.
            is_repeatable: repeat it once if its connection was lost, so it may have effect twice.

        Raises JournalError.
        """
        self._tell_of_password_file()
        return await self._background.run(self._run(work, 2 if is_repeatable else 1))

    def _tell_of_password_file(self) -> None:
        """Warn once about an unusable password file, in the caller's thread as screens require."""
        if self._has_checked:
            return
        self._has_checked = True
        if path := find_exposed_password_file(self._url):
            log.warning(
                "the password file %s is not used, because other users can read it. "
                "Run: chmod 0600 %s",
                path,
                shlex.quote(path),
            )

    async def _run(self, work: Callable[[Connection], Awaitable[T]], attempts: int) -> T:
        while True:
            attempts -= 1
            try:
                return await self.work_once(work)
            except MudroomError:
                raise
            except Exception as error:  # asyncpg raises plain exceptions when a server dies
                if not attempts or not is_temporary(error) or isinstance(error, OSError):
                    raise translate_error(error, self.place) from error

    async def work_once(
        self, work: Callable[[Connection], Awaitable[T]], *, seconds: float = _WORK_SECONDS
    ) -> T:
        """Work with a connection, in the background loop.

        Raises the errors of the work and of asyncpg, OSError, TimeoutError, and JournalError for
        tables of another version.
        """
        async with self._limit:
            connection = self._take_idle() or await connect(self._url)
            try:
                # `terminate` ends the work at once. A cancel would wait for the server's answer.
                stopping = self.loop.call_later(seconds, connection.terminate)
                try:
                    if not self._is_prepared:
                        await prepare_schema(connection, self.place)
                        self._is_prepared = True
                    result = await work(connection)
                finally:
                    stopping.cancel()
            # Expected, and the connection is still good.
            except AppendCollision:
                self._keep(connection)
                raise
            except BaseException:
                connection.terminate()
                raise
            self._keep(connection)
            return result

    def _take_idle(self) -> Connection | None:
        while self._idle:
            _, connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    def _keep(self, connection: Connection) -> None:
        self._idle.append((self.loop.time(), connection))
        if self._closing is None:
            self._closing = self.loop.call_later(_IDLE_SECONDS, self._terminate_idle)

    def _terminate_idle(self) -> None:
        """Close the connections idle for too long, and schedule the next look."""
        self._closing = None
        while self._idle and self._idle[0][0] + _IDLE_SECONDS <= self.loop.time():
            _, connection = self._idle.pop(0)
            connection.terminate()
        if self._idle:
            self._closing = self.loop.call_at(
                self._idle[0][0] + _IDLE_SECONDS, self._terminate_idle
            )

    async def _close(self) -> None:
        for _, connection in self._idle:
            with suppress(Exception):
                await connection.close(timeout=1)


@cache
def get_database(url: str) -> Database:
    """Return this process's connections to a database. Raises UsageError for a bad address."""
    return Database(url)


def make_work(statement: str, *values: Any) -> Callable[[Connection], Awaitable[Any]]:
    """Make work that runs one statement and returns its rows."""
    return lambda connection: connection.fetch(statement, *values)
