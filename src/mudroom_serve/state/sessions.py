"""Owners and options of sessions created by clients, and the owners' daily spending."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from mudroom import Budget

from .inputs import PROMPT, insert_input
from .server_state import ServerState, StateConnection

FIRST_KEY = "first"  # key of the prompt that a session was created with
_COLUMNS = "number, id, owner, digest, body, created, usd, tokens, asking"


class SessionChoices(Struct, frozen=True, kw_only=True):
    """A client's choices for a session, fixed as long as it exists."""

    agent: str = ""  # "" for the default agent
    workspace: str = ""
    mode: str = ""  # "" for that of the server
    budget: Budget = Budget()  # of each prompt; each can only lower a limit of the server
    usd_per_day: float | None = None  # from the token that created it
    tokens_per_day: int | None = None


_CHOICES = msgspec.json.Decoder(SessionChoices)


class SessionRecord(Struct, frozen=True, kw_only=True):
    number: int  # place in the list of all sessions
    id: str
    owner: str
    digest: bytes  # of the request that created it
    choices: SessionChoices
    created: float
    usd: float = 0.0  # spent by its runs
    tokens: int = 0
    asking: str = ""  # the questions of the process running it, as JSON


class SessionRecords:
    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def add(
        self,
        id: str,
        owner: str,
        digest: bytes,
        choices: SessionChoices,
        first: dict[str, Any] | None = None,
    ) -> tuple[SessionRecord, bool]:
        """Store a session unless one has the id; return it, and whether it is new.

        Its first prompt is stored with it under the key FIRST_KEY.
        """

        def insert(connection: StateConnection) -> bool:
            if connection.execute("SELECT 1 FROM sessions WHERE id = ?", (id,)).fetchone():
                return False
            connection.execute(
                "INSERT INTO sessions (id, owner, digest, body, created) VALUES (?, ?, ?, ?, ?)",
                (id, owner, digest, msgspec.json.encode(choices).decode(), time.time()),
            )
            if first is not None:
                insert_input(connection, id, FIRST_KEY, digest, PROMPT, first)
            return True

        is_new = await self._state.run(insert)
        record = await self.read(id)
        assert record
        return record, is_new

    async def find(self, id: str, owner: str) -> SessionRecord | None:
        """Find an owner's session, None if there is none."""
        record = await self.read(id)
        return record if record and record.owner == owner else None

    async def read(self, id: str) -> SessionRecord | None:
        """Read any owner's session, None if there is none."""
        row = await self._state.find_row(f"SELECT {_COLUMNS} FROM sessions WHERE id = ?", id)
        return _make_record(row) if row else None

    async def list(self, owner: str, before: int, limit: int) -> Sequence[SessionRecord]:
        """List an owner's sessions, newest first; those below `before` unless it is 0."""
        rows = await self._state.list_rows(
            f"SELECT {_COLUMNS} FROM sessions WHERE owner = ?"
            " AND (CAST(? AS BIGINT) = 0 OR number < ?) ORDER BY number DESC LIMIT ?",
            owner,
            before,
            before,
            limit,
        )
        return [_make_record(row) for row in rows]

    async def note_questions(self, id: str, asking: str) -> None:
        """Note a session's open questions: JSON, "" for none."""
        await self._state.execute("UPDATE sessions SET asking = ? WHERE id = ?", asking, id)

    async def delete(self, id: str) -> None:
        """Remove a session and its inputs."""

        def remove(connection: StateConnection) -> None:
            connection.execute("DELETE FROM sessions WHERE id = ?", (id,))
            connection.execute("DELETE FROM inputs WHERE session = ?", (id,))

        await self._state.run(remove)


def _make_record(row: tuple[int, str, str, bytes, str, float, float, int, str]) -> SessionRecord:
    number, session, owner, digest, body, created, usd, tokens, asking = row
    return SessionRecord(
        number=number,
        id=session,
        owner=owner,
        digest=digest,
        choices=_CHOICES.decode(body),
        created=created,
        usd=usd,
        tokens=tokens,
        asking=asking,
    )


class Amounts(Struct, frozen=True):
    usd: float = 0.0
    tokens: int = 0

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(self.usd + other.usd, self.tokens + other.tokens)


class SpendingRecords:
    """What owners spent; each event of a journal is charged once. A day begins at 0:00 UTC."""

    def __init__(self, state: ServerState, get_time: Callable[[], float] = time.time) -> None:
        self._state = state
        self._get_time = get_time

    async def read_today(self, owner: str) -> Amounts:
        row = await self._state.find_row(
            "SELECT usd, tokens FROM spending WHERE owner = ? AND day = ?", owner, self._get_day()
        )
        return Amounts(*row) if row else Amounts()

    async def read_session(self, session: str) -> tuple[int, Amounts]:
        """Read the position of the last charged event, and the amounts so far."""
        row = await self._state.find_row(
            "SELECT charged, usd, tokens FROM sessions WHERE id = ?", session
        )
        return (row[0], Amounts(row[1], row[2])) if row else (0, Amounts())

    async def charge(
        self, session: str, owner: str, after: int, position: int, amounts: Amounts
    ) -> None:
        """Charge a session's events up to a position, unless already charged."""
        day = self._get_day()

        def add(connection: StateConnection) -> None:
            query = "SELECT 1 FROM sessions WHERE id = ? AND charged = ?"
            if connection.execute(query, (session, after)).fetchone() is None:
                return
            connection.execute(
                "UPDATE sessions SET charged = ?, usd = usd + ?, tokens = tokens + ? WHERE id = ?",
                (position, amounts.usd, amounts.tokens, session),
            )
            connection.execute(
                "INSERT INTO spending VALUES (?, ?, ?, ?) ON CONFLICT (owner, day) DO UPDATE"
                " SET usd = spending.usd + excluded.usd,"
                " tokens = spending.tokens + excluded.tokens",
                (owner, day, amounts.usd, amounts.tokens),
            )

        await self._state.run(add)

    def get_seconds_left(self) -> int:
        return 86_400 - int(self._get_time()) % 86_400

    def _get_day(self) -> str:
        return time.strftime("%Y-%m-%d", time.gmtime(self._get_time()))
