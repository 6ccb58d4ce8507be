"""Amounts that owners have spent, day by day; each event of a journal is charged once."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable

from msgspec import Struct

from .state_file import StateFile


class Amounts(Struct, frozen=True):
    """US dollars and tokens."""

    usd: float = 0.0
    tokens: int = 0

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(self.usd + other.usd, self.tokens + other.tokens)


class SpendingRecords:
    """The spending of a state file. A day begins at 0:00 UTC.

    Arguments:
        get_time: returns seconds since 1970.
    """

    def __init__(self, state: StateFile, get_time: Callable[[], float] = time.time) -> None:
        self._state = state
        self._get_time = get_time

    async def read_today(self, owner: str) -> Amounts:
        """Return what an owner has spent today."""
        row = await self._state.find_row(
            "SELECT usd, tokens FROM spending WHERE owner = ? AND day = ?", owner, self._get_day()
        )
        return Amounts(*row) if row else Amounts()

    async def read_session(self, session: str) -> tuple[int, Amounts]:
        """Return the position of the last event that was charged, and the amounts so far."""
        row = await self._state.find_row(
            "SELECT charged, usd, tokens FROM sessions WHERE id = ?", session
        )
        return (row[0], Amounts(row[1], row[2])) if row else (0, Amounts())

    async def charge(
        self, session: str, owner: str, after: int, position: int, amounts: Amounts
    ) -> None:
        """Charge the events of a session up to a position, unless they were charged.

        Arguments:
            after: position of the last event that was charged before.
        """
        day = self._get_day()

        def add(connection: sqlite3.Connection) -> None:
            cursor = connection.execute(
                "UPDATE sessions SET charged = ?, usd = usd + ?, tokens = tokens + ?"
                " WHERE id = ? AND charged = ?",
                (position, amounts.usd, amounts.tokens, session, after),
            )
            if cursor.rowcount == 0:
                return
            connection.execute(
                "INSERT INTO spending VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE"
                " SET usd = usd + excluded.usd, tokens = tokens + excluded.tokens",
                (owner, day, amounts.usd, amounts.tokens),
            )

        await self._state.run(add)

    def get_seconds_left(self) -> int:
        """Return the seconds until the next day begins."""
        return 86_400 - int(self._get_time()) % 86_400

    def _get_day(self) -> str:
        return time.strftime("%Y-%m-%d", time.gmtime(self._get_time()))
