"""Sessions that an HTTP server has forgotten: a new one begins, no call takes effect twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from mudroom._adapters.integrations.mcp_servers.listing import ListedTool, Listing
from mudroom._adapters.integrations.mcp_servers.server_connection import Connection, ServerError
from mudroom._adapters.integrations.mcp_servers.server_process import MAX_LINE

from ...waiting import SECONDS, wait_until
from .old_http_server import OldHttpServer, serve_old


def connect(server: OldHttpServer, folder: Path) -> Connection:
    return Connection(server.make_spec(), str(folder), {}, lambda _: None)


async def add(connection: Connection) -> str:
    """Call the tool; return the id of the session that carried it out."""
    result = await connection.call(ListedTool("add", "", {}), {}, lambda _: None)
    return result.content[0].text


@pytest.mark.parametrize("has_body", [False, True])
async def test_a_call_of_a_forgotten_session_is_sent_in_a_new_one(
    has_body: bool, tmp_path: Path
) -> None:
    async with serve_old(has_body=has_body) as server:
        connection = connect(server, tmp_path)
        assert await add(connection) == "s1"
        server.sessions.clear()
        results = await asyncio.gather(*(add(connection) for _ in range(20)))
        assert results == ["s2"] * 20
        assert server.greetings == 2
        assert connection.state == "ready"
        await connection.close()


async def test_a_call_that_works_in_a_forgotten_session_ends_there(tmp_path: Path) -> None:
    async with serve_old() as server:
        connection = connect(server, tmp_path)
        is_working, may_end = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            server.before_call = None
            is_working.set()
            await may_end.wait()

        server.before_call = wait
        first = asyncio.create_task(add(connection))
        await is_working.wait()
        server.sessions.clear()
        assert await add(connection) == "s2"
        may_end.set()
        assert await first == "s1"
        assert server.calls == ["s2", "s1"]
        await connection.close()


async def test_a_server_that_forgets_each_session_is_named_plainly(tmp_path: Path) -> None:
    async with serve_old() as server:
        connection = connect(server, tmp_path)
        assert await add(connection) == "s1"
        server.sessions.clear()
        server.forgets_all = True
        with pytest.raises(ServerError, match="cannot be used: it has forgotten the session"):
            await add(connection)
        assert server.calls == ["s1"]
        await connection.close()


async def test_a_session_forgotten_while_prompts_are_listed_gives_no_listing(
    tmp_path: Path,
) -> None:
    listings: list[Listing] = []
    async with serve_old() as server:
        connection = Connection(server.make_spec(), str(tmp_path), {}, listings.append)
        server.forgets_before = "prompts/list"
        with pytest.raises(ServerError, match="it has forgotten the session"):
            await connection.open()
        assert not listings
        await connection.open()
        assert [[prompt.name for prompt in each.prompts] for each in listings] == [["review"]]
        await connection.close()


async def test_a_connection_that_breaks_does_not_count_as_the_end_of_a_server(
    tmp_path: Path,
) -> None:
    async with serve_old() as server:
        connection = connect(server, tmp_path)
        await add(connection)
    with pytest.raises(ServerError) as caught:
        await add(connection)
    assert "the connection to server web broke" in str(caught.value)
    assert "The next call connects again." in str(caught.value)
    await wait_until(lambda: connection.state == "not started")
    await connection.close()


EVENTS = {"Content-Type": "text/event-stream"}
JSON = {"Content-Type": "application/json"}
LONG = b"x" * (MAX_LINE + (1 << 20))
BAD_ANSWERS: dict[str, tuple[bytes, dict[str, str]]] = {
    "long JSON": (b'{"jsonrpc":"2.0","id":1,"result":"' + LONG, JSON),
    "long event": (b"data: " + LONG + b"\n\n", EVENTS),
    "broken JSON": (b'{"jsonrpc":', JSON),
    "broken event": (b'data: {"jsonrpc":\n\n', EVENTS),
    "no answer": (b": nothing\n\n", EVENTS),
    "cut off JSON": (b'{"jsonrpc":', JSON | {"Content-Length": "100"}),
    "cut off event": (b"data: {", EVENTS | {"Content-Length": "100"}),
    "compressed": (b"\x1f\x8b", JSON | {"Content-Encoding": "gzip"}),
    "page": (b"<html>", {"Content-Type": "text/html"}),
}


@pytest.mark.parametrize("kind", BAD_ANSWERS)
async def test_a_bad_answer_fails_its_call_only(kind: str, tmp_path: Path) -> None:
    async with serve_old() as server:
        connection = connect(server, tmp_path)
        is_working, may_end = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            server.before_call = answer_badly
            is_working.set()
            await may_end.wait()

        async def answer_badly() -> web.Response:
            server.before_call = None
            body, headers = BAD_ANSWERS[kind]
            response = web.Response(body=body, headers=headers)
            response.force_close()
            return response

        server.before_call = wait
        other = asyncio.create_task(add(connection))
        await is_working.wait()
        with pytest.raises(ServerError):
            await asyncio.wait_for(add(connection), SECONDS)
        assert not other.done()
        assert (await add(connection)).startswith("s")
        may_end.set()
        assert await other == "s1"
        await connection.close()
