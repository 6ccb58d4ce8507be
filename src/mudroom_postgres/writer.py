"""Writes a session's events, one COPY for all that are waiting (group commit).

Runs in the background loop. The primary key (session, n) keeps two writers apart, because a second
event with the same number is refused. After a lost connection the same events are sent again: if
they had been stored, the key refuses them, and comparing bytes shows that they are the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from mudroom.errors import MudroomError

from . import wait_notice
from .connections import Database, make_work
from .driver import Connection
from .errors import (
    UNIQUE_VIOLATION,
    AppendCollision,
    describe_cause,
    get_state,
    is_temporary,
    make_lost_session_error,
    make_unrecorded_error,
)
from .event_rows import COLUMNS, is_stored_row, make_copy_message
from .lease import Lease
from .wait_notice import Tell

# Seconds that appends wait for an unreachable database.
PATIENCE = 60.0

# Time limit of one attempt, after which a hanging connection is given up.
_ATTEMPT_SECONDS = 15.0

# Seconds between two attempts.
_FIRST_DELAY = 0.05
_MAX_DELAY = 0.5

_STORED = "SELECT n, body, crc FROM mudroom.events WHERE session = $1 AND n = $2"

_SAVE = """
UPDATE mudroom.sessions
SET summary = $2, saved_n = $3, saved_size = saved_size + coalesce((
    SELECT sum(octet_length(body)) FROM mudroom.events e
    WHERE e.session = sessions.id AND e.n > sessions.saved_n AND e.n <= $3), 0)
WHERE id = $1 AND saved_n < $3
"""


class EventWriter:
    """Stores the events of a session whose lease is held.

    Arguments:
        tell: shows a notice about a wait; called in the background loop.
    """

    def __init__(self, database: Database, lease: Lease, place: str, tell: Tell) -> None:
        self._database = database
        self._lease = lease
        self._place = place
        self._tell = tell
        self._cause = ""  # of the last failed attempt

    async def store(self, first: int, rows: Sequence[bytes]) -> None:
        """Store encoded rows, numbered from `first`. They are durable on return.

        Waits `PATIENCE` seconds for an unreachable database.

        Raises JournalBusy if another process writes the session, and JournalError.
        """
        self._cause = ""
        is_stored = False
        timer = self._database.loop.call_later(wait_notice.NOTICE_SECONDS, self._tell_of_wait)
        try:
            await self._store(first, rows)
            is_stored = True
        finally:
            timer.cancel()
            self._database.wait_notice.end(self, self._tell, is_stored=is_stored)

    def _tell_of_wait(self) -> None:
        cause = self._cause or "no answer yet"
        self._database.wait_notice.start(self, cause, PATIENCE, self._tell)

    async def _store(self, first: int, rows: Sequence[bytes]) -> None:
        message = make_copy_message(rows)
        deadline = time.monotonic() + PATIENCE
        delay = _FIRST_DELAY
        while True:
            try:
                await self._lease.require()
                await self._database.work_once(
                    lambda connection: _copy(connection, message), seconds=_ATTEMPT_SECONDS
                )
                return
            except AppendCollision as error:
                await self._require_stored(first, rows, error)
                return
            except MudroomError:
                raise
            except Exception as error:  # asyncpg raises plain exceptions when a server dies
                if not is_temporary(error) or time.monotonic() + delay > deadline:
                    raise make_unrecorded_error(error, self._place, PATIENCE) from error
                self._cause = describe_cause(error)
            await asyncio.sleep(delay)
            delay = min(2 * delay, _MAX_DELAY)

    async def save_summary(self, summary: str, position: int) -> None:
        """Save the summary state after an event. Errors as for `work_once`."""
        work = make_work(_SAVE, self._lease.session, summary, position)
        await self._database.work_once(work, seconds=_ATTEMPT_SECONDS)

    async def _require_stored(
        self, first: int, rows: Sequence[bytes], error: AppendCollision
    ) -> None:
        """Raise JournalBusy unless these very rows are stored.

        They are if the connection was lost after they had become durable.
        """
        for n, row in enumerate(rows, first):
            stored = await self._database.run(make_work(_STORED, self._lease.session, n))
            if not stored or not is_stored_row(row, stored[0]):
                raise make_lost_session_error(self._place) from error


async def _copy(connection: Connection, message: bytearray) -> None:
    try:
        await connection.copy_to_table(
            "events", schema_name="mudroom", columns=COLUMNS, source=message, format="binary"
        )
    except Exception as error:  # only `driver` imports asyncpg, so its types are unknown here
        if get_state(error) == UNIQUE_VIOLATION:
            raise AppendCollision from error
        raise
