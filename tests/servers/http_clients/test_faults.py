"""Damaged records, clients that disconnect, and a store that fails, below a running server."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import aiohttp
import pytest
from tests.waiting import SECONDS, wait_until
from yarl import URL

from mudroom._adapters.journals.sessions import open_store
from mudroom.errors import JournalError
from mudroom_serve import information_routes
from mudroom_serve.monitoring import Faults

from ..gate import Gate
from .conftest import Client, Line, MakeSite, Site, WrappedStore

pytestmark = pytest.mark.usefixtures("database_loop")

CLOSED = "127.0.0.1:1"
"""Address at which no program listens."""


async def wait_until_closed(site: Site, session: str) -> None:
    store = open_store(site.home)
    async with asyncio.timeout(SECONDS):
        while await store.find_writer(session):  # noqa: ASYNC110  a file sends no notice
            await asyncio.sleep(0.01)


def set_byte(home: str, session: str, record: int, byte: str) -> None:
    """Change the first byte of a record. `byte`: in hexadecimal."""
    path = Path(home, "sessions", f"{session}.db")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            f"UPDATE events SET body = CAST(X'{byte}' || substr(body, 2) AS BLOB) WHERE seq = ?",
            (record,),
        )


async def test_a_damaged_record_is_told_once_until_it_can_be_read_again(
    make_site: MakeSite,
) -> None:
    site = make_site(["One."], options={"idle_seconds": 0.0})
    async with site.connect() as client:
        session = await client.run("Go.")
        await wait_until_closed(site, session)
        for _ in range(2):
            set_byte(site.home, session, 2, "00")
            for _ in range(2):
                async with client.open_stream(session) as stream:
                    assert [each async for each in stream] == []
            set_byte(site.home, session, 2, "7B")
            await client.finish(session)
        told = [notice for notice in site.notices if "a stream has ended" in notice]
        assert len(told) == 2
        assert "record 2 is damaged" in told[0]
        await wait_until_closed(site, session)
        set_byte(site.home, session, 2, "00")
        status, value = await client.send("GET", f"/v1/sessions/{session}/events")
        assert (status, value["error"]["code"]) == (500, "failed")
        assert value["error"]["message"] == "record 2 is damaged", "clients get no path"
        assert f"{session}.db" in site.notices[-1]


def test_notices_of_many_faults_take_limited_memory_and_are_repeated_after_some_time() -> None:
    faults = Faults(limit=2)
    assert [faults.add(name, "damaged") for name in "abca"] == [True, True, True, True]
    assert not faults.add("c", "damaged")
    faults = Faults(seconds=0.0)
    assert [faults.add("a", "damaged") for _ in range(2)] == [True, True]


async def test_an_answer_is_read_without_the_record_before_it(make_site: MakeSite) -> None:
    site = make_site(["One.", "Two."], options={"idle_seconds": 0.0})
    async with site.connect() as client:
        first = await respond(client)
        second = await respond(client, previous_response_id=first["id"])
        session = (await client.get("/v1/sessions"))["data"][0]["id"]
        await wait_until_closed(site, session)
        set_byte(site.home, session, 2, "00")
        assert await read_answer(client, first) == "One."
        assert await read_answer(client, second) == "Two."


async def test_an_answer_is_found_if_its_place_is_not_known(make_site: MakeSite) -> None:
    site = make_site(["One."])
    move = "UPDATE inputs SET result = json_set(result, '$.position', ?)"
    async with site.connect() as client:
        response = await respond(client)
        for position in (0, 3, 10_000):
            with closing(sqlite3.connect(Path(site.home, "serve.sqlite3"))) as state, state:
                state.execute(move, (position,))
            assert await read_answer(client, response) == "One."


async def test_ready_says_whether_the_store_can_be_used(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(information_routes, "_READY_SECONDS", 0.0)
    site = make_site([])
    site.store = WrappedStore(open_store(site.home))

    async def fail(_: str) -> str:
        raise JournalError("the database cannot be reached")

    async def fall_silent(_: str) -> str:
        await asyncio.Event().wait()
        return ""

    async def ask(client: Client) -> tuple[int, str]:
        status, body = await client.send("GET", "/ready")
        return status, body["status"]

    async with site.connect() as client:
        client.headers = {}  # no token is needed
        assert await ask(client) == (200, "ready")
        for find_writer, seconds in ((fail, SECONDS), (fall_silent, 0.05)):
            with monkeypatch.context() as patch:
                patch.setattr(information_routes, "_CHECK_SECONDS", seconds)
                patch.setattr(site.store, "find_writer", find_writer, raising=False)
                assert await ask(client) == (503, "unavailable")
            assert (await client.send("GET", "/health"))[0] == 200
            assert await ask(client) == (200, "ready")


class SlowDelete:
    """Deletes sessions of a site at once, and returns when it may."""

    def __init__(self, site: Site) -> None:
        self.has_deleted = asyncio.Event()
        self.may_return = asyncio.Event()
        self._store = open_store(site.home)
        site.store = WrappedStore(self._store, delete=self.delete)

    async def delete(self, session: str) -> None:
        await self._store.delete(session)
        self.has_deleted.set()
        await self.may_return.wait()


async def test_a_delete_goes_on_if_its_client_disconnects(make_site: MakeSite) -> None:
    site = make_site(["One."])
    store = SlowDelete(site)
    async with site.connect() as client:
        session = await client.run("Go.")
        url = URL(client.url)
        assert url.host
        _, writer = await asyncio.open_connection(url.host, url.port)
        path = f"/v1/sessions/{session}"
        head = f"DELETE {path} HTTP/1.1\r\nHost: {url.host}:{url.port}\r\n"
        writer.write(f"{head}Authorization: Bearer {client.token}\r\n\r\n".encode())
        await asyncio.wait_for(store.has_deleted.wait(), SECONDS)
        writer.transport.abort()
        for _ in range(3):  # the server sees meanwhile that the connection has ended
            await client.get("/health")
        store.may_return.set()
        async with asyncio.timeout(SECONDS):
            while (await client.send("GET", path))[0] != 404:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_a_prompt_does_not_run_again_if_the_server_ends_inside_a_delete(
    make_site: MakeSite,
) -> None:
    gate = Gate()
    site = make_site(gate)
    store = SlowDelete(site)
    async with site.connect() as client:
        session = (await client.create(prompt="Go."))["id"]
        await gate.asked.wait()
        path = f"/v1/sessions/{session}"
        deleting = asyncio.create_task(client.send("DELETE", path))
        await asyncio.wait_for(store.has_deleted.wait(), SECONDS)
    with suppress(aiohttp.ClientError):
        await deleting
    store.may_return.set()
    async with site.connect() as client:
        view = await client.get(path)
        assert (view["status"], view["last"]["reason"]) == ("idle", "CANCELLED")
        status, value = await client.send("DELETE", path)
        assert (status, value["deleted"]) == (200, True)
        assert (await client.send("GET", path))[0] == 404
        assert (await client.get("/v1/sessions"))["data"] == []
    assert len(site.model.requests) == 1


async def test_a_prompt_goes_on_if_its_session_cannot_be_deleted(make_site: MakeSite) -> None:
    gate = Gate()
    site = make_site(gate, options={"poll_seconds": 0.01})
    async with site.connect() as client:
        session = (await client.create(prompt="Go."))["id"]
        await gate.asked.wait()
        await asyncio.sleep(0.1)  # no look for prompts is due
        assert site.server
        state = site.server._state
        state.read_now(lambda connection: connection.execute("PRAGMA query_only = ON"))
        assert (await client.send("DELETE", f"/v1/sessions/{session}"))[0] == 503
        state.read_now(lambda connection: connection.execute("PRAGMA query_only = OFF"))
        assert (await client.finish(session))["last"]["state"] == "done"
    [notice] = [notice for notice in site.notices if not notice.startswith("session ")]
    assert f"DELETE /v1/sessions/{session}: the state of the server cannot be used" in notice


REFUSE = """
CREATE TRIGGER refuse BEFORE INSERT ON inputs BEGIN SELECT RAISE(FAIL, 'the disk is full'); END
"""


async def test_a_session_whose_first_prompt_cannot_be_stored_is_not_created(
    make_site: MakeSite,
) -> None:
    site = make_site(["One."])
    async with site.connect() as client:
        assert site.server
        state = site.server._state
        state.run_now(lambda connection: connection.execute(REFUSE))
        assert (await client.send("POST", "/v1/sessions", {"prompt": "Go."}, key="k"))[0] == 503
        assert (await client.get("/v1/sessions"))["data"] == []
        state.run_now(lambda connection: connection.execute("DROP TRIGGER refuse"))
        status, session = await client.send("POST", "/v1/sessions", {"prompt": "Go."}, key="k")
        assert status == 201
        assert (await client.finish(session["id"]))["last"]["reason"] == "GOAL"


def cut_store(site: Site) -> WrappedStore:
    site.store = WrappedStore(open_store(site.home, f"postgresql://me@{CLOSED}/sessions"))
    return site.store


async def test_a_request_that_needs_a_store_that_is_away_can_be_repeated(
    make_site: MakeSite,
) -> None:
    site = make_site([])
    cut_store(site)
    async with site.connect() as client:
        session = (await client.create())["id"]
        for _ in range(2):
            url = f"{client.url}/v1/sessions/{session}/events"
            async with client._http.get(url, headers=client.headers) as response:
                error = (await response.json())["error"]
                assert response.status == 503
                assert response.headers["Retry-After"] == "5"
                assert error["code"] == "not_available"
                # Clients need not know where the database is.
                assert error["message"] == "the database cannot be reached: Connection refused"
    [notice] = site.notices
    assert f"Connection refused (postgresql://me@{CLOSED}/sessions). Check the" in notice


async def test_prompts_that_wait_for_a_store_are_counted_and_told_once(
    make_site: MakeSite,
) -> None:
    site = make_site(["One."], options={"retry_seconds": 0.02, "poll_seconds": 0.02})
    switched = cut_store(site)
    async with site.connect(scopes=("read", "run", "admin")) as client:
        session = (await client.create(prompt="Go."))["id"]
        await asyncio.sleep(0.5)  # it is tried again meanwhile
        metrics = await client.get("/metrics")
        assert "mudroom_prompts_open 1\n" in metrics
        assert "mudroom_prompts_working 0\n" in metrics
        told = [notice for notice in site.notices if "Connection refused" in notice]
        assert len([notice for notice in told if session in notice]) == 1
        assert len(told) <= 2  # the look for prompts of other processes fails, too
        switched.store = open_store(site.home)
        assert (await client.finish(session))["last"]["reason"] == "GOAL"
        assert "mudroom_prompts_open 0\n" in await client.get("/metrics")


async def test_a_session_that_is_deleted_is_not_tried_again(make_site: MakeSite) -> None:
    site = make_site([], options={"retry_seconds": 0.3, "poll_seconds": 0.02})
    switched = cut_store(site)
    async with site.connect() as client:
        session = (await client.create(prompt="Go."))["id"]
        assert site.server
        retries = site.server._registry._retries
        await wait_until(lambda: bool(retries))
        switched.store = open_store(site.home)
        assert (await client.send("DELETE", f"/v1/sessions/{session}"))[0] == 200
        await wait_until(lambda: not retries)


async def respond(client: Client, **fields: str) -> Line:
    body = {"model": "mudroom", "input": "Go.", **fields}
    status, response = await client.send("POST", "/v1/responses", body)
    assert status == 200, response
    return response


async def read_answer(client: Client, response: Line) -> str:
    again = await client.get(f"/v1/responses/{response['id']}")
    assert again["status"] == "completed", again
    return again["output"][0]["content"][0]["text"]
