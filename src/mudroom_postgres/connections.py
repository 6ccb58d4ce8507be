"""Connections to a database, borrowed for one piece of work and kept for the next.

Connections belong to one event loop, but stores outlive the loops that use them: a command may call
`asyncio.run` several times. So all connections live in a loop of their own, in a thread. Leases are
also renewed there while the caller's loop is busy.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import shlex
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import cache
from threading import Thread
from typing import Any, TypeVar

from mudroom.errors import JournalError, JournalNewer, MudroomError

from .driver import (
    AppendCollision,
    Connection,
    check_url,
    connect,
    find_exposed_password_file,
    hide_password,
    is_temporary,
    translate_error,
)

T = TypeVar("T")

log = logging.getLogger("mudroom")

# Longest wait for connections to close when the process ends.
_CLOSE_SECONDS = 2.0


class BackgroundLoop:
    """An event loop that runs until the process ends."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(_log_unread_error)
        self._closers: list[Callable[[], Coroutine[Any, Any, None]]] = []
        Thread(target=self.loop.run_forever, name="postgres", daemon=True).start()
        atexit.register(self._close)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread. A cancel reaches it there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    def close_at_exit(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Register a coroutine function to call in the thread when the process ends."""
        self._closers.append(close)

    def _close(self) -> None:
        for close in self._closers:
            with suppress(Exception):
                asyncio.run_coroutine_threadsafe(close(), self.loop).result(_CLOSE_SECONDS)
        self.loop.call_soon_threadsafe(self.loop.stop)


def _log_unread_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error that no one awaits; asyncpg leaves some when a server dies."""
    log.debug("postgres: %s", context.get("message"), exc_info=context.get("exception"))


@cache
def get_background_loop() -> BackgroundLoop:
    """Return the loop of this process, starting its thread at the first call."""
    return BackgroundLoop()


# The store's tables:
#
# mudroom.schema_version(version)
# mudroom.sessions(id, name, created, program, summary, saved_n, saved_size,
#                  lease_token, lease_writer, lease_process, lease_until)
#     summary is the state of the session's summary after event saved_n; saved_size is the size of
#     the events up to that one. A session without events is not listed.
# mudroom.events(session, n, run, type, body, crc, stored)
#     n counts from 1 without gaps; body is JSON; crc is crc32(body).
SCHEMA_VERSION = 1

# Key of the lock a process holds while it creates the tables: "mudr" in ASCII.
_LOCK = 0x6D756472

_CREATE = f"""
SELECT pg_advisory_xact_lock({_LOCK});
CREATE SCHEMA IF NOT EXISTS mudroom;
CREATE TABLE IF NOT EXISTS mudroom.schema_version (version int NOT NULL);
CREATE TABLE IF NOT EXISTS mudroom.sessions (
    id uuid PRIMARY KEY,
    name text NOT NULL DEFAULT '',
    created double precision NOT NULL,
    program text NOT NULL,
    summary text NOT NULL DEFAULT '',
    saved_n bigint NOT NULL DEFAULT 0,
    saved_size bigint NOT NULL DEFAULT 0,
    lease_token uuid,
    lease_writer text NOT NULL DEFAULT '',
    lease_process text NOT NULL DEFAULT '',
    lease_until timestamptz
);
CREATE UNIQUE INDEX IF NOT EXISTS sessions_name ON mudroom.sessions (name) WHERE name <> '';
CREATE TABLE IF NOT EXISTS mudroom.events (
    session uuid NOT NULL,
    n bigint NOT NULL,
    run text NOT NULL,
    type text NOT NULL,
    body bytea NOT NULL,
    crc bigint NOT NULL,
    stored timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (session, n)
);
INSERT INTO mudroom.schema_version
    SELECT {SCHEMA_VERSION} WHERE NOT EXISTS (SELECT FROM mudroom.schema_version);
"""
# Sent as one message, these statements run in one transaction even without BEGIN.


async def prepare_schema(connection: Connection, place: str) -> None:
    """Create the tables if the database has none, and check their version.

    Raises JournalNewer, JournalError, and errors of the database.
    """
    [row] = await connection.fetch(
        "SELECT to_regclass('mudroom.schema_version') IS NOT NULL AS is_created"
    )
    if not row["is_created"]:
        await connection.execute(_CREATE)
    rows = await connection.fetch("SELECT version FROM mudroom.schema_version")
    if len(rows) != 1:
        raise JournalError(
            f"the table mudroom.schema_version has {len(rows)} rows instead of one",
            where=place,
            remedy="Restore the schema mudroom from a backup.",
        )
    _check_version(rows[0]["version"], place)


def _check_version(version: int, place: str) -> None:
    message = f"the tables have schema {version}; this program knows {SCHEMA_VERSION}"
    if version > SCHEMA_VERSION:
        raise JournalNewer(
            message, where=place, remedy="Use a newer mudroom. This one leaves them unchanged."
        )
    if version < SCHEMA_VERSION:
        raise JournalError(
            message,
            where=place,
            remedy="Use the version of mudroom that created them, or another database.",
        )


# Shorter waits are not worth a notice.
NOTICE_SECONDS = 2.0

Tell = Callable[[str], object]


class WaitNotice:
    """The notice about one database, shared by the sessions that wait for it.

    All methods are called in the background loop.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._waiting: set[object] = set()
        self._began = 0.0

    def start(self, writer: object, cause: str, seconds: float, tell: Tell) -> None:
        """Report that a writer has waited for NOTICE_SECONDS; it waits at most `seconds`."""
        if not self._waiting:
            self._began = time.monotonic() - NOTICE_SECONDS
            tell(
                f"waiting for the database ({self._place}): {cause}. mudroom tries again for "
                f"about {seconds:.0f} s; nothing is recorded meanwhile."
            )
        self._waiting.add(writer)

    def end(self, writer: object, tell: Tell, *, is_stored: bool) -> None:
        """Report that a writer has stopped waiting. If it gave up, its own error says so."""
        if writer not in self._waiting:
            return
        self._waiting.remove(writer)
        if is_stored and not self._waiting:
            seconds = time.monotonic() - self._began
            tell(f"the database answers again after {seconds:.0f} s ({self._place}). Work goes on.")


# Per process and database, shared by all sessions.
_MAX_CONNECTIONS = 4

# An unused connection is closed after this time.
_IDLE_SECONDS = 30.0

# Time limit of one piece of work, so that a hanging connection is given up.
_WORK_SECONDS = 30.0


class Database:
    """This process's connections to a database. Create it with `get_database`."""

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

        The work runs in the background loop and ends at the first failing statement. If repeatable,
        it runs once more after losing its connection, so it may take effect twice.
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
        """Close connections idle for too long, and schedule the next check."""
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
    return lambda connection: connection.fetch(statement, *values)
