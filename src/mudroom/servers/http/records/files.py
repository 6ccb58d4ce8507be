"""Files of owners: inputs and results of batches."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from .state_file import StateFile

Purpose = Literal["batch", "batch_output"]
_COLUMNS = "number, id, owner, name, purpose, size, created"


class FileRecord(Struct, frozen=True):
    """A file.

    Arguments:
        number: place in the list of all files.
        name: as its owner called it. size: bytes. created: seconds since 1970.
    """

    number: int
    id: str
    owner: str
    name: str
    purpose: Purpose
    size: int
    created: float


class FileRecords:
    """The files of a state file. Their content is in a folder beside it."""

    def __init__(self, state: StateFile) -> None:
        self._state = state

    async def add(
        self,
        id: str,
        owner: str,
        name: str,
        purpose: Purpose,
        size: int,
        *,
        maximum: int | None = None,
    ) -> FileRecord | None:
        """Store a file, or replace the one with the id.

        Arguments:
            maximum: bytes of the owner's other files from which on it is not stored; None for no
                such limit. Then the result is None.
        """
        values = (id, owner, name, purpose, size, time.time())

        def insert(
            connection: sqlite3.Connection,
        ) -> tuple[int, str, str, str, Purpose, int, float] | None:
            if maximum is not None and _count_bytes(connection, owner) >= maximum:
                return None
            connection.execute(
                "INSERT INTO files (id, owner, name, purpose, size, created)"
                " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET size = excluded.size",
                values,
            )
            return connection.execute(
                f"SELECT {_COLUMNS} FROM files WHERE id = ?", (id,)
            ).fetchone()

        row = await self._state.run(insert)
        return FileRecord(*row) if row else None

    async def find(self, id: str, owner: str) -> FileRecord | None:
        """Return a file of an owner, None if there is none."""
        row = await self._state.read(
            lambda connection: connection.execute(
                f"SELECT {_COLUMNS} FROM files WHERE id = ? AND owner = ?", (id, owner)
            ).fetchone()
        )
        return FileRecord(*row) if row else None

    async def list(self, owner: str, purpose: str, before: str, limit: int) -> Sequence[FileRecord]:
        """Return files of an owner, the newest first.

        Arguments:
            purpose: of all of them, "" for any.
            before: id of a file that all of them are older than, "" for none.
        """
        rows = await self._state.read(
            lambda connection: connection.execute(
                f"SELECT {_COLUMNS} FROM files WHERE owner = ? AND (? = '' OR purpose = ?)"
                " AND (? = '' OR number < (SELECT number FROM files WHERE id = ?))"
                " ORDER BY number DESC LIMIT ?",
                (owner, purpose, purpose, before, before, limit),
            ).fetchall()
        )
        return [FileRecord(*row) for row in rows]

    async def count_bytes(self, owner: str) -> int:
        """Return the bytes of all files of an owner."""
        return await self._state.read(lambda connection: _count_bytes(connection, owner))

    async def list_ids(self) -> set[str]:
        """Return the ids of all files."""
        rows = await self._state.read(
            lambda connection: connection.execute("SELECT id FROM files").fetchall()
        )
        return {name for (name,) in rows}

    async def delete(self, id: str) -> None:
        """Remove a file."""
        await self._state.run(
            lambda connection: connection.execute("DELETE FROM files WHERE id = ?", (id,))
        )


def _count_bytes(connection: sqlite3.Connection, owner: str) -> int:
    query = "SELECT coalesce(sum(size), 0) FROM files WHERE owner = ?"
    return connection.execute(query, (owner,)).fetchone()[0]
