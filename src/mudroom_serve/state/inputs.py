"""Events sent by clients: durable before they are accepted, and used once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from mudroom import Reason

from .server_state import ServerState, StateConnection

State = Literal["waiting", "working", "done"]
_COLUMNS = "number, session, key, digest, type, body, state, runs_before, result"
PROMPT = "user.message"  # type of events that start runs


class InputResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    run: str = ""  # root run of a prompt, if one started
    position: int = 0  # of its report in the journal, to find it at once; 0 if unknown
    reason: str = ""  # why the run ended
    is_applied: bool | None = None  # not for prompts; False if there was nothing to act on
    error: str = ""  # why it could not be used
    is_wrong: bool = False  # a different prompt is needed, such as one without an image


CANCELLED_BEFORE = InputResult(
    reason=Reason.CANCELLED.value, error="it was cancelled before it started"
)

_RESULT = msgspec.json.Decoder(InputResult)


class Input(Struct, frozen=True, kw_only=True):
    number: int  # place among all events
    session: str
    key: str  # unique in the session
    digest: bytes  # of the request
    type: str
    body: dict[str, Any]
    state: State = "waiting"
    runs_before: int = 0  # prompts in the session's record before this one started
    result: InputResult = InputResult()


class InputRecords:
    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def add(
        self, session: str, key: str, digest: bytes, type: str, body: dict[str, Any]
    ) -> tuple[Input, bool]:
        """Store an event unless one has the key; return it, and whether it is new."""

        def insert(connection: StateConnection) -> tuple[tuple[Any, ...], bool]:
            statement = f"SELECT {_COLUMNS} FROM inputs WHERE session = ? AND key = ?"
            row = connection.execute(statement, (session, key)).fetchone()
            if row:  # an ignored insert would use up a number
                return row, False
            insert_input(connection, session, key, digest, type, body)
            return connection.execute(statement, (session, key)).fetchone(), True

        row, is_new = await self._state.run(insert)
        return _make_input(row), is_new

    async def has(self, session: str, key: str) -> bool:
        row = await self._state.find_row(
            "SELECT 1 FROM inputs WHERE session = ? AND key = ?", session, key
        )
        return row is not None

    async def list_open(self, session: str) -> Sequence[Input]:
        """List a session's unfinished events in order."""
        rows = await self._state.list_rows(
            f"SELECT {_COLUMNS} FROM inputs WHERE session = ? AND state <> 'done' ORDER BY number",
            session,
        )
        return [_make_input(row) for row in rows]

    async def list_open_sessions(self) -> Sequence[str]:
        """List the ids of sessions with unfinished events, oldest event first."""
        rows = await self._state.list_rows(
            "SELECT session FROM inputs WHERE state <> 'done' GROUP BY session ORDER BY min(number)"
        )
        return [session for (session,) in rows]

    async def count_waiting(self, owner: str) -> int:
        """Count an owner's unfinished prompts."""
        row = await self._state.find_row(
            "SELECT count(*) FROM inputs JOIN sessions ON sessions.id = inputs.session"
            " WHERE owner = ? AND state <> 'done' AND type = ?",
            owner,
            PROMPT,
        )
        return row[0]

    async def count_open(self) -> int:
        """Count all owners' unfinished prompts."""
        row = await self._state.find_row(
            "SELECT count(*) FROM inputs WHERE state <> 'done' AND type = ?", PROMPT
        )
        return row[0]

    async def find(self, number: int) -> Input | None:
        row = await self._state.find_row(f"SELECT {_COLUMNS} FROM inputs WHERE number = ?", number)
        return _make_input(row) if row else None

    async def find_last_prompt(self, session: str) -> Input | None:
        row = await self._state.find_row(
            f"SELECT {_COLUMNS} FROM inputs WHERE session = ? AND type = ?"
            " ORDER BY number DESC LIMIT 1",
            session,
            PROMPT,
        )
        return _make_input(row) if row else None

    async def start(self, number: int, runs_before: int) -> None:
        """Note that a prompt is starting, so that it never starts twice, even after a crash."""
        await self._state.execute(
            "UPDATE inputs SET state = 'working', runs_before = ? WHERE number = ?",
            runs_before,
            number,
        )

    async def finish(self, number: int, result: InputResult) -> None:
        text = msgspec.json.encode(result).decode()
        await self._state.execute(
            "UPDATE inputs SET state = 'done', result = ? WHERE number = ?", text, number
        )

    async def cancel_waiting(self, session: str) -> bool:
        """Cancel the prompts that have not started. Return False if there are none."""
        waiting = [
            item
            for item in await self.list_open(session)
            if item.type == PROMPT and item.state == "waiting"
        ]
        for item in waiting:
            await self.finish(item.number, CANCELLED_BEFORE)
        return bool(waiting)


def insert_input(
    connection: StateConnection,
    session: str,
    key: str,
    digest: bytes,
    type: str,
    body: dict[str, Any],
) -> None:
    """Store an event unless one has the key."""
    connection.execute(
        "INSERT INTO inputs (session, key, digest, type, body, state)"
        " VALUES (?, ?, ?, ?, ?, 'waiting') ON CONFLICT DO NOTHING",
        (session, key, digest, type, msgspec.json.encode(body).decode()),
    )


def _make_input(row: tuple[Any, ...]) -> Input:
    number, session, key, digest, kind, body, state, runs_before, result = row
    return Input(
        number=number,
        session=session,
        key=key,
        digest=digest,
        type=kind,
        body=msgspec.json.decode(body),
        state=state,
        runs_before=runs_before,
        result=_RESULT.decode(result) if result else InputResult(),
    )
