"""The store's tables: creation, and a check of their version.

mudroom.schema_version(version)
mudroom.sessions(id, name, created, program, summary, saved_n, saved_size,
                 lease_token, lease_writer, lease_process, lease_until)
    summary is the state of the session's summary after event saved_n; saved_size is the size of the
    events up to that one. A session without events is not listed.
mudroom.events(session, n, run, type, body, crc, stored)
    n counts from 1 without gaps; body is JSON; crc is crc32(body).
"""

from __future__ import annotations

from mudroom.errors import JournalError, JournalNewer

from .driver import Connection

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
