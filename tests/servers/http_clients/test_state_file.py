"""The file with the state of the server."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest

from mudroom import MudroomError
from mudroom.servers.http.records.state_file import StateError, StateFile


def break_reference(connection: sqlite3.Connection) -> None:
    """Write a row that the next commit refuses."""
    connection.execute("CREATE TABLE owners (name TEXT PRIMARY KEY)")
    connection.execute(
        "CREATE TABLE notes (owner TEXT REFERENCES owners (name) DEFERRABLE INITIALLY DEFERRED)"
    )
    connection.execute("INSERT INTO notes VALUES ('nobody')")


def count_tables(connection: sqlite3.Connection) -> int:
    """Return the number of tables that the broken change would leave."""
    names = "SELECT count(*) FROM sqlite_schema WHERE name IN ('owners', 'notes')"
    return int(connection.execute(names).fetchone()[0])


def add_note(number: int, connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO notes VALUES (?)", (number,))


async def run_together(state: StateFile, numbers: Iterable[int]) -> list[object]:
    """Add notes while the thread of the file waits, so that all wait at the same time."""
    may_begin = threading.Event()
    blocked = asyncio.create_task(state.read(lambda _: may_begin.wait(60)))
    changes = [asyncio.create_task(state.run(partial(add_note, number))) for number in numbers]
    await asyncio.sleep(0)  # now all wait
    may_begin.set()
    await blocked
    return await asyncio.gather(*changes, return_exceptions=True)


def list_notes(connection: sqlite3.Connection) -> list[int]:
    return [number for (number,) in connection.execute("SELECT n FROM notes ORDER BY n")]


def test_a_commit_that_fails_leaves_no_open_transaction(tmp_path: Path) -> None:
    state = StateFile(str(tmp_path))
    try:
        state._connection.execute("PRAGMA foreign_keys = ON")
        with pytest.raises(MudroomError, match="FOREIGN KEY"):
            state.run_now(break_reference)
        assert state.run_now(count_tables) == 0
    finally:
        state.close()


def test_an_error_of_a_change_is_told_though_sqlite_has_ended_the_transaction(
    tmp_path: Path,
) -> None:
    def change(connection: sqlite3.Connection) -> None:
        connection.execute("ROLLBACK")
        raise ValueError("the change failed")

    state = StateFile(str(tmp_path))
    try:
        with pytest.raises(ValueError, match="the change failed"):
            state.run_now(change)
        assert state.run_now(count_tables) == 0
    finally:
        state.close()


async def test_changes_that_wait_share_a_transaction(tmp_path: Path) -> None:
    state = StateFile(str(tmp_path))
    statements: list[str] = []
    try:
        await state.run(lambda connection: connection.execute("CREATE TABLE notes (n)"))
        await state.run(lambda connection: connection.set_trace_callback(statements.append))
        statements.clear()
        await run_together(state, range(100))
        assert statements.count("COMMIT") == 1
        assert await state.read(list_notes) == [*range(100)]
    finally:
        state.close()


async def test_an_error_of_one_change_stops_no_other(tmp_path: Path) -> None:
    state = StateFile(str(tmp_path))
    try:
        await state.run(lambda connection: connection.execute("CREATE TABLE notes (n UNIQUE)"))
        numbers = [1, 2, 3, 2, 4, 3, 5]
        results = await run_together(state, numbers)
        failed = [isinstance(result, StateError) for result in results]
        assert failed == [False, False, False, True, False, True, False]
        assert await state.read(list_notes) == [1, 2, 3, 4, 5]
    finally:
        state.close()


def test_a_file_of_an_earlier_version_gets_the_tables_of_batches(tmp_path: Path) -> None:
    StateFile(str(tmp_path)).close()
    path = tmp_path / "serve.sqlite3"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "DROP TABLE files; DROP TABLE batches;"
            "ALTER TABLE sessions DROP COLUMN asking; PRAGMA user_version = 1"
        )
        connection.execute("INSERT INTO spending VALUES ('ada', '2026-11-01', 1.5, 7)")
    connection.close()
    state = StateFile(str(tmp_path))
    try:
        read = "SELECT (SELECT usd FROM spending), (SELECT count(*) FROM batches)"
        assert state.read_now(lambda each: each.execute(read).fetchone()) == (1.5, 0)
    finally:
        state.close()
