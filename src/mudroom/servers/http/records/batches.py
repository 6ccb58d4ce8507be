"""Batches: their inputs, progress and results. The runs of their lines are in journals."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from ...._core.json_values import get_decoder
from .inputs import BATCH, insert_input
from .sessions import SessionChoices, insert_session
from .state_file import StateFile

_COLUMNS = (
    "batches.number, batches.session, batches.owner, batches.digest, batches.body, "
    "batches.progress, batches.created, batches.cancelled, "
    "coalesce(inputs.state, ''), coalesce(inputs.result, '')"
)
_SOURCE = "batches LEFT JOIN inputs ON inputs.session = batches.session AND inputs.type = 'batch'"
_INPUT_KEY = "batch"
"""Key of the one event that a batch is in its session."""
_Row = tuple[int, str, str, bytes, str, str, float, float, str, str]


class BatchRequest(Struct, frozen=True, kw_only=True):
    """What a client asked for.

    Arguments:
        input_file: id of the file with the lines.
        errors: numbers of wrong lines, 0 for the whole file, and what is wrong; () if it runs.
    """

    endpoint: str
    input_file: str
    window: str = "24h"
    metadata: dict[str, str] | None = None
    errors: tuple[tuple[int, str], ...] = ()


class BatchProgress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a batch is.

    Arguments:
        total, completed, failed: lines.
        started, ended: seconds since 1970, 0 before.
        output_file, error_file: ids of the files with the results, "" for none.
    """

    total: int = 0
    completed: int = 0
    failed: int = 0
    started: float = 0.0
    ended: float = 0.0
    output_file: str = ""
    error_file: str = ""


class BatchResult(Struct, frozen=True):
    """What became of the event of a batch.

    Arguments:
        error: why it could not run, "" if it did.
        ended: seconds since 1970, 0 before.
    """

    reason: str = ""
    error: str = ""
    ended: float = 0.0


class BatchRecord(Struct, frozen=True, kw_only=True):
    """A batch.

    Arguments:
        number: place in the list of all batches.
        session: id of the session that runs the lines.
        digest: of the request that created it.
        cancelled: when its owner cancelled it, seconds since 1970; 0 if not.
        state: "" for a batch that cannot run; "waiting", "working" or "done".
    """

    number: int
    session: str
    owner: str
    digest: bytes
    request: BatchRequest
    progress: BatchProgress
    created: float
    cancelled: float
    state: str
    result: BatchResult


class BatchRecords:
    """The batches of a state file."""

    def __init__(self, state: StateFile) -> None:
        self._state = state

    async def add(
        self,
        session: str,
        owner: str,
        digest: bytes,
        request: BatchRequest,
        total: int,
        choices: SessionChoices,
    ) -> BatchRecord:
        """Store a batch unless its session has one, and return it.

        One that can run gets its session and the event that starts it in the same transaction.
        """
        body = msgspec.json.encode(request).decode()
        progress = msgspec.json.encode(BatchProgress(total=total)).decode()
        values = (session, owner, digest, body, progress, time.time())

        def insert(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT OR IGNORE INTO batches (session, owner, digest, body, progress, created)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                values,
            )
            if not request.errors:
                insert_session(connection, session, owner, digest, choices)
                insert_input(connection, session, _INPUT_KEY, digest, BATCH, {})

        await self._state.run(insert)
        record = await self.read(session)
        assert record
        return record

    async def read(self, session: str) -> BatchRecord | None:
        """Return the batch of a session, None if there is none."""
        row = await self._state.read(
            lambda connection: connection.execute(
                f"SELECT {_COLUMNS} FROM {_SOURCE} WHERE batches.session = ?", (session,)
            ).fetchone()
        )
        return _make_record(row) if row else None

    async def list(self, owner: str, before: str, limit: int) -> Sequence[BatchRecord]:
        """Return batches of an owner, the newest first.

        Arguments:
            before: session of a batch that all of them are older than, "" for none.
        """
        rows = await self._state.read(
            lambda connection: connection.execute(
                f"SELECT {_COLUMNS} FROM {_SOURCE} WHERE batches.owner = ?"
                " AND (? = '' OR batches.number < (SELECT number FROM batches WHERE session = ?))"
                " ORDER BY batches.number DESC LIMIT ?",
                (owner, before, before, limit),
            ).fetchall()
        )
        return [_make_record(row) for row in rows]

    async def is_used(self, file: str) -> bool:
        """Return whether a batch that has not ended reads a file."""
        row = await self._state.read(
            lambda connection: connection.execute(
                f"SELECT 1 FROM {_SOURCE} WHERE inputs.state <> 'done'"
                " AND json_extract(batches.body, '$.input_file') = ?",
                (file,),
            ).fetchone()
        )
        return row is not None

    async def cancel(self, session: str) -> None:
        """Note that the owner cancels a batch."""
        await self._state.run(lambda connection: _cancel(connection, session))

    async def add_cancel(self, session: str, key: str, digest: bytes, type: str) -> int:
        """Note that the owner cancels a batch, and store the event that stops its lines.

        Return the number of the event.

        Arguments:
            key, digest, type: of the event.
        """

        def change(connection: sqlite3.Connection) -> int:
            _cancel(connection, session)
            insert_input(connection, session, key, digest, type, {})
            row = connection.execute(
                "SELECT number FROM inputs WHERE session = ? AND key = ?", (session, key)
            ).fetchone()
            return row[0]

        return await self._state.run(change)

    async def note_progress(self, session: str, progress: BatchProgress) -> None:
        """Note how far a batch is."""
        text = msgspec.json.encode(progress).decode()
        await self._state.run(
            lambda connection: connection.execute(
                "UPDATE batches SET progress = ? WHERE session = ?", (text, session)
            )
        )


def _cancel(connection: sqlite3.Connection, session: str) -> None:
    connection.execute(
        "UPDATE batches SET cancelled = ? WHERE session = ? AND cancelled = 0 AND NOT EXISTS"
        f" (SELECT 1 FROM inputs WHERE session = ? AND type = '{BATCH}' AND state = 'done')",
        (time.time(), session, session),
    )


def _make_record(row: _Row) -> BatchRecord:
    number, session, owner, digest, body, progress, created, cancelled, state, result = row
    return BatchRecord(
        number=number,
        session=session,
        owner=owner,
        digest=digest,
        request=get_decoder(BatchRequest).decode(body),
        progress=get_decoder(BatchProgress).decode(progress),
        created=created,
        cancelled=cancelled,
        state=state,
        result=get_decoder(BatchResult).decode(result) if result else BatchResult(),
    )
