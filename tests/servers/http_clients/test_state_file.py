"""The file with the state of the server."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest
from tests.waiting import SECONDS

from mudroom import MudroomError
from mudroom_serve.state.server_state import Rows, StateConnection, StateError
from mudroom_serve.state.state_file import StateFile

Work = Callable[[StateConnection], object]


class Stop(BaseException):
    """An exception that is no Exception, such as SystemExit."""


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateFile]:
    """Yield a file with a table of notes, which waits 0.1 s for another process."""
    with closing(StateFile(str(tmp_path), busy_seconds=0.1)) as file:
        file.run_now(lambda connection: connection.execute("CREATE TABLE notes (n UNIQUE)"))
        yield file


def break_reference(connection: StateConnection) -> None:
    """Write a row that the next commit refuses."""
    connection.execute("CREATE TABLE owners (name TEXT PRIMARY KEY)")
    connection.execute(
        "CREATE TABLE links (owner TEXT REFERENCES owners (name) DEFERRABLE INITIALLY DEFERRED)"
    )
    connection.execute("INSERT INTO links VALUES ('nobody')")


def count_tables(connection: StateConnection) -> int:
    """Return the number of tables that the broken change would leave."""
    names = "SELECT count(*) FROM sqlite_schema WHERE name IN ('owners', 'links')"
    return int(connection.execute(names).fetchone()[0])


def add_note(number: int, connection: StateConnection) -> None:
    connection.execute("INSERT INTO notes VALUES (?)", (number,))


def add_long_note(number: int, connection: StateConnection) -> None:
    """Add a note that is too long for the file. SQLite ends the transaction."""
    connection.execute("PRAGMA max_page_count = 1")  # the file keeps its size
    try:
        connection.execute("INSERT INTO notes VALUES (?)", (f"{number}" * 100_000,))
    finally:
        connection.execute("PRAGMA max_page_count = 1000000")


def add_and_raise(error: BaseException, connection: StateConnection) -> NoReturn:
    add_note(7, connection)
    raise error


@asynccontextmanager
async def keep_waiting(state: StateFile) -> AsyncGenerator[None]:
    """Let the thread of the file run no change until the block ends, and then all of them."""
    may_go_on = threading.Event()
    blocked = asyncio.create_task(state.read(lambda _: may_go_on.wait(SECONDS)))
    await asyncio.sleep(0)
    try:
        yield
        await asyncio.sleep(0)  # now the changes of the block wait
    finally:
        may_go_on.set()
        await blocked


async def run_together(state: StateFile, works: Iterable[Work]) -> list[object]:
    async with asyncio.timeout(SECONDS):
        async with keep_waiting(state):
            changes = [asyncio.create_task(state.run(work)) for work in works]
        return await asyncio.gather(*changes, return_exceptions=True)


def check_errors(results: list[object], text: str) -> None:
    for result in results:
        assert isinstance(result, StateError)
        assert text in str(result)
    assert len(set(map(id, results))) == len(results)


def list_notes(connection: StateConnection) -> list[int]:
    return [number for (number,) in connection.execute("SELECT n FROM notes ORDER BY n").fetchall()]


async def test_changes_that_wait_share_a_transaction(state: StateFile) -> None:
    statements: list[str] = []
    assert isinstance(state._connection, sqlite3.Connection)
    state._connection.set_trace_callback(statements.append)
    await run_together(state, [partial(add_note, number) for number in range(100)])
    assert statements.count("COMMIT") == 1
    assert await state.read(list_notes) == [*range(100)]


def add_wrong_note(connection: StateConnection) -> None:
    add_note(7, connection)
    connection.execute("INSERT INTO no_such_table VALUES (1)")


def add_unread_notes(connection: StateConnection) -> Rows:
    return connection.execute("INSERT INTO notes VALUES (7), (8) RETURNING n")


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        (add_wrong_note, StateError, "no_such_table"),
        (add_unread_notes, StateError, "SQL statements in progress"),
        (partial(add_and_raise, ValueError("wrong")), ValueError, "wrong"),
        (partial(add_and_raise, Stop("wrong")), Stop, "wrong"),
    ],
)
async def test_a_change_that_fails_runs_once_and_undoes_only_itself(
    state: StateFile, change: Work, kind: type[BaseException], text: str
) -> None:
    begun: list[Work] = []

    def count(connection: StateConnection) -> object:
        begun.append(change)
        return change(connection)

    results = await run_together(state, [partial(add_note, 1), count, partial(add_note, 2)])
    error = results.pop(1)
    assert isinstance(error, kind) and text in str(error)
    assert results == [None, None]
    assert len(begun) == 1
    assert await state.read(list_notes) == [1, 2]


async def test_changes_fail_while_another_process_changes_the_file(state: StateFile) -> None:
    works = [partial(add_note, number) for number in range(3)]
    with closing(sqlite3.connect(state.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        check_errors(await run_together(state, works), "database is locked")
    assert await run_together(state, works) == [None] * 3
    assert await state.read(list_notes) == [0, 1, 2]


async def test_all_changes_fail_with_their_commit(state: StateFile) -> None:
    await state.read(lambda connection: connection.execute("PRAGMA foreign_keys = ON"))
    error = ValueError("wrong")
    works = [partial(add_note, 1), break_reference, partial(add_and_raise, error)]
    results = await run_together(state, works)
    assert results.pop() is error
    check_errors(results, "FOREIGN KEY constraint failed")
    assert await state.read(count_tables) == 0
    assert await run_together(state, [partial(add_note, 2), partial(add_note, 3)]) == [None] * 2
    assert await state.read(list_notes) == [2, 3]


async def test_all_changes_fail_when_the_disk_is_full(state: StateFile) -> None:
    works = [partial(add_note, 1), partial(add_long_note, 2), partial(add_note, 3)]
    check_errors(await run_together(state, works), "database or disk is full")
    assert await state.read(list_notes) == []
    assert await run_together(state, [partial(add_note, 4), partial(add_note, 5)]) == [None] * 2
    assert await state.read(list_notes) == [4, 5]


async def test_a_change_that_is_cancelled_before_it_begins_does_not_run(state: StateFile) -> None:
    async with keep_waiting(state):
        changes = [asyncio.create_task(state.run(partial(add_note, n))) for n in range(3)]
        await asyncio.sleep(0)
        changes[1].cancel()
        await asyncio.wait([changes[1]])
    results = await asyncio.gather(*changes, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), asyncio.CancelledError, type(None)]
    assert await state.read(list_notes) == [0, 2]


async def test_a_change_that_is_cancelled_while_it_runs_stops_no_other(state: StateFile) -> None:
    has_begun = threading.Event()
    may_end = threading.Event()

    def add_slowly(connection: StateConnection) -> None:
        has_begun.set()
        assert may_end.wait(SECONDS)
        add_note(2, connection)

    works: list[Work] = [partial(add_note, 1), add_slowly, partial(add_note, 3)]
    async with keep_waiting(state):
        changes = [asyncio.create_task(state.run(work)) for work in works]
    assert await asyncio.to_thread(has_begun.wait, SECONDS)
    changes[1].cancel()
    await asyncio.wait([changes[1]])
    may_end.set()
    assert await asyncio.gather(changes[0], changes[2]) == [None, None]
    assert changes[1].cancelled()
    assert await state.read(list_notes) == [1, 2, 3]


def test_an_error_of_a_single_change_leaves_no_open_transaction(state: StateFile) -> None:
    assert isinstance(state._connection, sqlite3.Connection)
    state._connection.execute("PRAGMA foreign_keys = ON")
    with pytest.raises(MudroomError, match="FOREIGN KEY"):
        state.run_now(break_reference)
    with pytest.raises(ValueError, match="the change failed"):
        state.run_now(partial(roll_back, ValueError("the change failed")))
    assert state.run_now(count_tables) == 0


def roll_back(error: Exception | None, connection: StateConnection) -> None:
    """End the transaction, as SQLite does after some errors."""
    connection.execute("ROLLBACK")
    if error:
        raise error


async def test_a_change_that_ended_the_transaction_gets_its_error(state: StateFile) -> None:
    error = ValueError("the change failed")
    for change, text in ((error, "the change failed"), (None, "no such savepoint")):
        works = [partial(add_note, 1), partial(roll_back, change), partial(add_note, 2)]
        results = await run_together(state, works)
        assert change is None or results.pop(1) is error
        check_errors(results, text)
        assert await state.read(list_notes) == []
