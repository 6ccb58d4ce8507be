"""Session store in a PostgreSQL database, which may not have tables yet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from uuid import UUID

from mudroom import __version__
from mudroom.errors import JournalError, UnknownName
from mudroom.events import StoredEvent
from mudroom.ports import (
    SessionHeader,
    SessionInfo,
    check_session_name,
    make_busy_error,
    make_missing_session_error,
    select_session,
)
from mudroom.views import SummarySaver, find_folder

from .connections import Database, get_database, make_work
from .driver import UNIQUE_VIOLATION, AppendCollision, Connection, get_state
from .journal import PostgresJournal, decode_row, read_events
from .lease import LEASE_SECONDS, Lease, describe_process, find_writer, is_gone, read_holder

# Between polls for events appended by another process: LISTEN does not work through a proxy.
_POLL_SECONDS = 0.2

_LIST = """
SELECT s.id, extract(epoch FROM last.stored)::float8 AS modified, s.saved_size + coalesce((
    SELECT sum(octet_length(e.body)) FROM mudroom.events e
    WHERE e.session = s.id AND e.n > s.saved_n), 0)::bigint AS size
FROM mudroom.sessions s CROSS JOIN LATERAL (
    SELECT e.stored FROM mudroom.events e WHERE e.session = s.id ORDER BY e.n DESC LIMIT 1
) last
"""

_HEADER = """
SELECT s.name, s.created, s.program, s.summary, e.n, e.body, e.crc
FROM mudroom.sessions s JOIN mudroom.events e ON e.session = s.id AND e.n = 1
WHERE s.id = $1
"""

_STATE = """
SELECT summary, saved_n, (SELECT max(n) FROM mudroom.events WHERE session = id) AS last
FROM mudroom.sessions WHERE id = $1
"""

_NAMES = "SELECT name, id FROM mudroom.sessions WHERE name <> ''"

_REMOVE_ABANDONED = """
DELETE FROM mudroom.sessions s
WHERE lease_until < clock_timestamp() - interval '1 hour'
    AND NOT EXISTS (SELECT FROM mudroom.events e WHERE e.session = s.id)
"""

_CREATE = f"""
INSERT INTO mudroom.sessions
    (id, created, program, lease_token, lease_writer, lease_process, lease_until)
VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp() + interval '{LEASE_SECONDS} seconds')
ON CONFLICT (id) DO UPDATE SET created = $2, program = $3, name = '',
    lease_token = $4, lease_writer = $5, lease_process = $6, lease_until = excluded.lease_until
WHERE NOT EXISTS (SELECT FROM mudroom.events WHERE session = $1)
    AND (sessions.lease_token = $4 OR sessions.lease_until < clock_timestamp())
RETURNING id
"""

_DELETE = """
WITH deleted AS (
    DELETE FROM mudroom.sessions WHERE id = $1 AND (
        lease_token IS NULL OR lease_until < clock_timestamp() OR lease_process = $2)
    RETURNING id
), events AS (
    DELETE FROM mudroom.events USING deleted WHERE session = deleted.id
)
SELECT id FROM deleted
"""


class PostgresStore:
    """A session store in a PostgreSQL database. It creates its tables at first use.

    Arguments:
        url: the address, postgresql://USER@HOST:PORT/DATABASE. Missing parts come from the
            variables PGHOST, PGUSER, PGPASSWORD, … and from ~/.pgpass.

    Raises UsageError for a bad address, or if asyncpg is not installed.
    """

    def __init__(self, url: str) -> None:
        self._database = get_database(url)

    async def create(self, session: str) -> PostgresJournal:
        lease = Lease(self._database, _parse_id(session))
        values = (lease.session, time.time(), __version__, lease.token, *describe_process())
        await self._database.run(make_work(_REMOVE_ABANDONED))
        if not await self._database.run(make_work(_CREATE, *values)):
            where = f"{self._database.place}, session {session}"
            # Two servers may take a session's first prompt at once; the second one waits.
            if writer := await find_writer(self._database, lease.session):
                raise make_busy_error(writer, where)
            raise JournalError(
                "this session exists already", where=where, remedy="Resume it, or use another id."
            )
        lease.assume()
        return PostgresJournal(self._database, lease, 0, SummarySaver())

    async def open(
        self, session: str, *, read_only: bool = False
    ) -> PostgresJournal | PostgresReader:
        key = await self._require(session)
        if read_only:
            return PostgresReader(self._database, key)
        lease = Lease(self._database, key)
        if not await lease.take():
            holder = await read_holder(self._database, key)
            writer = holder["lease_writer"] if holder else "another process"
            raise make_busy_error(writer, f"{self._database.place}, session {session}")
        try:
            # Only now, because the last writer may have appended until its lease was taken.
            [row] = await self._database.run(make_work(_STATE, key))
            saver = await self._load_saver(key, row["summary"])
        except BaseException:
            await lease.release()
            raise
        return PostgresJournal(self._database, lease, row["last"], saver)

    async def list(self) -> Sequence[SessionInfo]:
        rows = await self._database.run(make_work(_LIST + "ORDER BY modified DESC"))
        return [
            SessionInfo(id=str(row["id"]), modified=row["modified"], size=row["size"])
            for row in rows
        ]

    async def read_info(self, session: str) -> SessionInfo:
        key = await self._require(session)
        [row] = await self._database.run(make_work(_LIST + "WHERE s.id = $1", key))
        return SessionInfo(id=session, modified=row["modified"], size=row["size"])

    async def read_header(self, session: str) -> SessionHeader:
        key = await self._require(session)
        rows = await self._database.run(make_work(_HEADER, key))
        if not rows:
            raise make_missing_session_error(session)
        row = rows[0]
        first = decode_row(row, f"{self._database.place}, session {session}")
        return SessionHeader(
            id=session,
            name=row["name"],
            created=row["created"],
            program=row["program"],
            folder=find_folder(first, row["summary"]),
            summary=row["summary"],
        )

    async def find(self, text: str) -> str:
        return select_session(text, await self._list_ids(), await self._list_names())

    async def check_name(self, name: str, session: str = "") -> None:
        check_session_name(name, await self._list_names(), session)

    async def rename(self, session: str, name: str) -> None:
        key = await self._require(session, needs_events=False)
        await self.check_name(name, session)

        async def store_name(connection: Connection) -> None:
            try:
                statement = "UPDATE mudroom.sessions SET name = $2 WHERE id = $1"
                await connection.fetch(statement, key, name)
            except Exception as error:
                if get_state(error) == UNIQUE_VIOLATION:
                    raise AppendCollision from error
                raise

        try:
            await self._database.run(store_name)
        except AppendCollision:
            await self.check_name(name, session)  # another process has just given the name
            raise

    async def delete(self, session: str) -> None:
        key = await self._require(session)
        where = f"{self._database.place}, session {session}"
        holder = await read_holder(self._database, key)
        if holder and not is_gone(holder["lease_process"]):
            raise make_busy_error(holder["lease_writer"], where)
        dead = holder["lease_process"] if holder else "-"
        # Refused if another process has taken the lease in the meantime.
        if not await self._database.run(make_work(_DELETE, key, dead), is_repeatable=False):
            raise make_busy_error("another process", where)

    async def find_writer(self, session: str) -> str:
        try:
            key = _parse_id(session)
        except UnknownName:
            return ""
        return await find_writer(self._database, key)

    async def _load_saver(self, key: UUID, summary: str) -> SummarySaver:
        saver = SummarySaver(summary)
        async for event in read_events(self._database, key, saver.position, SummarySaver.TYPES):
            saver.catch_up(event)
        return saver

    async def _list_ids(self) -> list[str]:
        return [info.id for info in await self.list()]

    async def _list_names(self) -> list[tuple[str, str]]:
        rows = await self._database.run(make_work(_NAMES))
        return [(row["name"], str(row["id"])) for row in rows]

    async def _require(self, session: str, *, needs_events: bool = True) -> UUID:
        """Return the key of an existing session. Raises UnknownName."""
        statement = "SELECT id FROM mudroom.sessions WHERE id = $1"
        if needs_events:
            statement += " AND EXISTS (SELECT FROM mudroom.events WHERE session = id)"
        key = _parse_id(session)
        if not await self._database.run(make_work(statement, key)):
            raise make_missing_session_error(session)
        return key


def _parse_id(session: str) -> UUID:
    """Parse an id. Raises UnknownName unless it is a UUID in its standard form."""
    try:
        key = UUID(session)
    except ValueError:
        raise make_missing_session_error(session) from None
    if str(key) != session:
        raise make_missing_session_error(session)
    return key


class PostgresReader:
    """The journal of a session that another process may be writing."""

    def __init__(self, database: Database, session: UUID) -> None:
        self.place = f"{database.place}, session {session}"
        self._database = database
        self._session = session
        self._closed = asyncio.Event()

    async def append(self, *events: StoredEvent) -> int:
        raise JournalError(
            "the journal is open for reading only", where=self.place, remedy="Open it to write."
        )

    def read(
        self, after: int = 0, *, types: Collection[type[StoredEvent]] = ()
    ) -> AsyncIterator[StoredEvent]:
        return read_events(self._database, self._session, after, types)

    async def follow(self, after: int = 0) -> AsyncIterator[StoredEvent]:
        while True:
            is_closed = self._closed.is_set()
            async for event in self.read(after):
                after += 1
                yield event
            if is_closed:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), _POLL_SECONDS)

    async def close(self) -> None:
        self._closed.set()
