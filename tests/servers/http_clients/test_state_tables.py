"""The state of the server in a database, where servers of several machines share it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.journals.postgres.proxy import CuttingProxy
from tests.postgres_server import PostgresServer

from mudroom.errors import UnknownName
from mudroom_postgres import blocking
from mudroom_postgres.blocking import BlockingConnection
from mudroom_serve.state import state_tables
from mudroom_serve.state.inputs import PROMPT, InputRecords, InputResult
from mudroom_serve.state.server_state import ServerState, StateConnection, StateError
from mudroom_serve.state.sessions import Amounts, SessionChoices, SessionRecords, SpendingRecords
from mudroom_serve.state.state_file import StateFile
from mudroom_serve.state.state_tables import StateTables
from mudroom_serve.state.tokens import TokenRecords

# What lives longer than a test is started before the first one.
pytestmark = pytest.mark.usefixtures("database_loop", "postgres_server")


@asynccontextmanager
async def open_tables(url: str) -> AsyncGenerator[StateTables]:
    state = await asyncio.to_thread(lambda: StateTables(BlockingConnection(url)))
    try:
        yield state
    finally:
        await asyncio.to_thread(state.close)


@pytest.fixture(params=["file", "tables"])
async def states(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncGenerator[tuple[ServerState, ServerState]]:
    """Yield the state of two processes that share it."""
    async with AsyncExitStack() as stack:
        if request.param == "file":
            both = (StateFile(str(tmp_path)), StateFile(str(tmp_path)))
            for state in both:
                stack.callback(state.close)
            yield both
        else:
            server: PostgresServer = request.getfixturevalue("postgres_server")
            url = server.create_database()
            # At the same time: both want to create the tables.
            opening = [stack.enter_async_context(open_tables(url)) for _ in range(2)]
            first, second = await asyncio.gather(*opening)
            yield first, second


@asynccontextmanager
async def open_through_proxy(
    server: PostgresServer,
) -> AsyncGenerator[tuple[StateTables, CuttingProxy]]:
    """Open the tables of a new database through a proxy."""
    proxy = CuttingProxy(server.port)
    name = server.create_database().rpartition("/")[2]
    try:
        async with open_tables(server.make_url(name, await proxy.start())) as state:
            yield state, proxy
    finally:
        await proxy.close()


async def add_session(state: ServerState, name: str, owner: str = "ada") -> bool:
    records = SessionRecords(state)
    return (await records.add(name, owner, b"\0digest", SessionChoices(), {"text": "Go."}))[1]


async def test_both_have_the_same_tokens(states: tuple[ServerState, ServerState]) -> None:
    one, two = map(TokenRecords, states)
    token, text = await asyncio.to_thread(one.add, "ada", tokens_per_day=5)
    assert await two.find(text) == token
    assert await two.find(text + "x") is None
    assert await two.find("mudroom_\0_\ud800") is None
    assert await asyncio.to_thread(two.list) == [token]
    await asyncio.to_thread(two.remove, token.id)
    with pytest.raises(UnknownName):
        await asyncio.to_thread(one.remove, token.id)


async def test_each_accepted_event_is_stored_once(states: tuple[ServerState, ServerState]) -> None:
    assert await asyncio.gather(*(add_session(state, "s") for state in states)) in (
        [True, False],
        [False, True],
    )
    inputs = [InputRecords(state) for state in states]
    body: dict[str, Any] = {"text": "nul \0 and a quote ' and a ?"}
    added = await asyncio.gather(
        *(inputs[n % 2].add("s", f"key {n // 2}", b"d", PROMPT, body) for n in range(20))
    )
    assert sum(is_new for _, is_new in added) == 10
    opened = await inputs[0].list_open("s")
    assert [item.number for item in opened] == sorted(
        {item.number for item, _ in added} | {opened[0].number}
    )
    assert opened[-1].body == body
    assert await inputs[1].list_open_sessions() == ["s"]
    assert await inputs[1].count_waiting("ada") == await inputs[0].count_open() == 11
    last = opened[-1]
    await inputs[1].start(last.number, 3)
    await inputs[0].finish(last.number, InputResult(run="1", reason="GOAL"))
    done = await inputs[1].find(last.number)
    assert done and (done.state, done.runs_before, done.result.reason) == ("done", 3, "GOAL")
    assert await inputs[0].find_last_prompt("s") == done
    assert await inputs[0].has("s", "key 3") and not await inputs[0].has("s", "\0")
    await SessionRecords(states[1]).delete("s")
    assert await inputs[0].list_open("s") == []


async def test_pages_of_sessions(states: tuple[ServerState, ServerState]) -> None:
    for number in range(5):
        await add_session(states[number % 2], f"s{number}", "ada" if number else "bob")
    records = SessionRecords(states[0])
    newest = await records.list("ada", 0, 2)
    assert [each.id for each in newest] == ["s4", "s3"]
    assert [each.id for each in await records.list("ada", newest[-1].number, 9)] == ["s2", "s1"]
    await records.note_questions("s4", "[]")
    session = await SessionRecords(states[1]).find("s4", "ada")
    assert session and (session.asking, session.digest) == ("[]", b"\0digest")
    assert await records.find("s4", "bob") is None


async def test_each_amount_is_charged_once(states: tuple[ServerState, ServerState]) -> None:
    await add_session(states[0], "s")
    now = 1_000_000.0
    spending = [SpendingRecords(state, lambda: now) for state in states]
    charge = (0, 7, Amounts(0.25, 100))
    await asyncio.gather(*(each.charge("s", "ada", *charge) for each in spending * 2))
    await spending[1].charge("s", "ada", 7, 9, Amounts(0.5, 1))
    assert await spending[0].read_session("s") == (9, Amounts(0.75, 101))
    assert await spending[0].read_today("ada") == Amounts(0.75, 101)
    now += 86_400
    assert await spending[0].read_today("ada") == Amounts()


async def test_only_changes_of_the_other_process_are_noticed(
    states: tuple[ServerState, ServerState],
) -> None:
    one, two = states
    numbers = [await state.read_change_number() for state in states]
    await add_session(one, "s")
    assert await one.read_change_number() == numbers[0]
    assert await two.read_change_number() != numbers[1]


async def test_an_error_of_one_change_stops_no_other(
    states: tuple[ServerState, ServerState],
) -> None:
    state = states[0]

    def add(name: str, connection: StateConnection) -> None:
        statement = "INSERT INTO tokens VALUES (?, 'ada', ?, '')"
        connection.execute(statement, (name, b""))

    works = [state.run(partial(add, name)) for name in ("a", "b", "a", "c")]
    results = await asyncio.gather(*works, return_exceptions=True)
    assert [isinstance(result, StateError) for result in results] == [False, False, True, False]
    rows = await states[1].list_rows("SELECT id FROM tokens ORDER BY id")
    assert [name for (name,) in rows] == ["a", "b", "c"]


async def test_a_connection_that_was_cut_is_opened_again(postgres_server: PostgresServer) -> None:
    async with open_through_proxy(postgres_server) as (state, proxy):
        for number in range(3):
            assert await add_session(state, f"s{number}")
            proxy.cut_all()
        assert len(await SessionRecords(state).list("ada", 0, 9)) == 3


async def test_a_database_that_falls_silent_is_an_error(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking, "_STATEMENT_SECONDS", 0.3)
    async with open_through_proxy(postgres_server) as (state, proxy):
        proxy.text, proxy.faults = b"UPDATE changes", ["stall"]
        assert await add_session(state, "first")  # on a new connection
        for text in (b"INSERT INTO sessions", b"COMMIT"):
            proxy.text, proxy.faults = text, ["stall"]
            with pytest.raises(StateError, match="the state of the server cannot be used"):
                await add_session(state, "s")
            await add_session(state, "s")  # it works again
            await SessionRecords(state).delete("s")


async def test_a_server_that_hangs_inside_a_change_does_not_hold_the_others(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = (
        "SET LOCAL lock_timeout = '5s'",
        "SET LOCAL idle_in_transaction_session_timeout = '1s'",
    )
    monkeypatch.setattr(state_tables, "_LIMITS", limits)
    url = postgres_server.create_database()
    async with open_tables(url) as first, open_tables(url) as second:
        await asyncio.to_thread(first._begin)  # and nothing follows
        assert await add_session(second, "s")


async def test_requests_do_not_wait_one_after_the_other_for_a_database_that_is_gone(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = 0
    async with open_through_proxy(postgres_server) as (state, proxy):
        await proxy.close()
        connect = blocking.connect

        async def count(url: str) -> Any:
            nonlocal attempts
            attempts += 1
            return await connect(url)

        monkeypatch.setattr(blocking, "connect", count)
        waiting = [SessionRecords(state).list("ada", 0, 9) for _ in range(20)]
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(result, StateError) for result in results)
        assert attempts < len(waiting)
