"""Reads a session's events in short queries, so that no transaction stays open."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from uuid import UUID

from mudroom.errors import JournalDamaged
from mudroom.events import StoredEvent

from .connections import Database, make_work
from .event_rows import DAMAGE_REMEDY, decode_row, get_tag

# Events per query.
_BATCH = 256

_QUERY = (
    "SELECT n, body, crc FROM mudroom.events WHERE session = $1 AND n > $2 ORDER BY n "
    f"LIMIT {_BATCH}"
)

_TYPED_QUERY = (
    "SELECT n, body, crc FROM mudroom.events WHERE session = $1 AND n > $2 "
    f"AND type = ANY(string_to_array($3, ',')) ORDER BY n LIMIT {_BATCH}"
)


async def read_events(
    database: Database,
    session: UUID,
    after: int = 0,
    types: Collection[type[StoredEvent]] = (),
) -> AsyncIterator[StoredEvent]:
    """Yield the events recorded so far, oldest first.

    A read of all types detects missing records; a read of some types checks only those.

    Raises JournalDamaged, JournalError.
    """
    place = f"{database.place}, session {session}"
    tags = ",".join(get_tag(event_type) for event_type in types)
    while True:
        if tags:
            work = make_work(_TYPED_QUERY, session, after, tags)
        else:
            work = make_work(_QUERY, session, after)
        rows = await database.run(work)
        for row in rows:
            if not tags and row["n"] != after + 1:
                raise JournalDamaged(
                    f"record {after + 1} is missing", where=place, remedy=DAMAGE_REMEDY
                )
            after = row["n"]
            yield decode_row(row, place)
        if len(rows) < _BATCH:
            return
