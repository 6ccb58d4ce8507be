"""MCP servers over HTTP: both eras, sessions that end, answers without an end, redirects."""

from __future__ import annotations

import asyncio
import gzip
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from mudroom import ServerSpec
from mudroom._adapters.integrations.mcp_servers.listing import ListedTool, Listing
from mudroom._adapters.integrations.mcp_servers.server_connection import Connection, ServerError
from mudroom._adapters.integrations.mcp_servers.server_process import MAX_LINE
from mudroom._adapters.integrations.mcp_servers.servers import McpServers
from mudroom._adapters.integrations.mcp_servers.stored_logins import LoginFile, StoredLogin
from mudroom._adapters.output_filters import Redactor

from ...waiting import SECONDS, block_until, wait_until
from .old_http_server import OldHttpServer, serve_old


@contextmanager
def serve() -> Generator[tuple[str, subprocess.Popen[bytes]]]:
    command = [sys.executable, str(Path(__file__).with_name("http_server.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        port = int(process.stdout.readline())
        try:
            yield f"http://127.0.0.1:{port}/mcp", process
        finally:
            process.kill()


def make_spec(url: str, **more: Any) -> ServerSpec:
    return ServerSpec(name="web", origin="test", scope="option", transport="http", url=url, **more)


async def test_calls_progress_logins_and_the_end_over_http(tmp_path: Path) -> None:
    with serve() as (url, process):
        listings: list[Listing] = []
        lines: list[str] = []

        def connect(environ: dict[str, str], **more: Any) -> Connection:
            return Connection(make_spec(url, **more), str(tmp_path), environ, listings.append)

        missing = connect({}, bearer_token_variable="WEB_TOKEN")
        with pytest.raises(ServerError, match="the variable WEB_TOKEN is not set"):
            await missing.open()
        wrong = connect({}, headers_helper='echo \'{"Authorization": "Bearer wrong"}\'')
        with pytest.raises(ServerError, match="HTTP 401: it wants a login"):
            await wrong.open()
        helped = connect({}, headers_helper='echo \'{"Authorization": "Bearer secret"}\'')
        await helped.open()
        await asyncio.gather(missing.close(), wrong.close(), helped.close())

        connection = connect({"WEB_TOKEN": "secret"}, bearer_token_variable="WEB_TOKEN")
        result = await connection.call(ListedTool("add", "", {}), {"a": 1, "b": 2}, print)
        assert result.content[0].text == "3"
        await connection.call(ListedTool("work", "", {}), {"steps": 2}, lines.append)
        assert lines == ["1 of 2: working", "2 of 2: working"]
        assert listings[0].protocol == "2026-07-28"
        process.kill()
        block_until(lambda: process.poll() is not None)
        with pytest.raises(ServerError, match="server web"):
            await connection.call(ListedTool("add", "", {}), {"a": 1, "b": 2}, print)
        await connection.close()


async def test_secrets_of_a_helper_and_of_a_login_are_replaced_in_errors(tmp_path: Path) -> None:
    header, token, secret = "helper-1a2b3c4d", "access-9f8e7d6c", "client-5e6f7a8b"
    printed = '{"Authorization": "Bearer secret", "X-Pass": "HEADER"}'.replace("HEADER", header)
    with serve() as (url, _):
        login = StoredLogin(url, tokens={"access_token": token}, client={"client_secret": secret})
        LoginFile(str(tmp_path / "logins"), url).store(login)
        servers = McpServers(
            [make_spec(url, headers_helper=f"echo '{printed}'")],
            folder=str(tmp_path),
            environ=dict(os.environ),
            cache_folder=str(tmp_path),
            is_allowed=bool,
            parse_image=lambda _: "it is none",
            make_redact=Redactor,
        )
        try:
            with pytest.raises(ServerError) as caught:
                await servers.read_resource("web", f"unknown://{header}/{token}/{secret}")
        finally:
            await servers.close()
    error = str(caught.value)
    assert "$LOGIN_ACCESS_TOKEN]/[redacted: $LOGIN_CLIENT_SECRET]" in error
    assert not [each for each in (header, token, secret) if each in error]


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


KEY = "very-secret"
OK = b"HTTP/1.1 200 OK\r\n"
JSON_HEAD = OK + b"Content-Type: application/json\r\n"
EVENTS_HEAD = OK + b"Content-Type: text/event-stream\r\n\r\n"
BLOCK = b" " * 65_536


class RudeServer:
    """A server that sends bytes again and again.

    Arguments:
        begin: sent once. part: sent until the client ends the connection.
        pause: seconds between two parts.
    """

    def __init__(self, begin: bytes, part: bytes = b"", pause: float = 0.0) -> None:
        self.port = 0
        self.received = b""
        self.sent = 0
        self._begin = begin
        self._part = part
        self._pause = pause

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.received += await reader.read(65_536)
        try:
            writer.write(self._begin)
            for part in repeat(self._part):
                if not part:
                    break
                writer.write(part)
                self.sent += len(part)
                await writer.drain()
                await asyncio.sleep(self._pause)
        except ConnectionError:
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[str]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        try:
            self.port = server.sockets[0].getsockname()[1]
            yield f"http://127.0.0.1:{self.port}/mcp"
        finally:
            server.close()


async def fail_to_connect(folder: Path, url: str, seconds: float) -> str:
    """Return why a server cannot be used."""
    spec = ServerSpec(
        name="web",
        origin="test",
        scope="option",
        transport="http",
        url=url,
        headers={"Authorization": f"Bearer {KEY}", "X-Team": KEY},
        start_timeout=seconds,
    )
    connection = Connection(spec, str(folder), {}, print)
    try:
        async with asyncio.timeout(SECONDS):
            with pytest.raises(ServerError) as caught:
                await connection.open()
    finally:
        await connection.close()
    return str(caught.value)


ENDLESS = {
    "a status line": (b"HTTP/1.1 200 " + BLOCK, BLOCK),
    "a header": (JSON_HEAD + b"A: " + BLOCK, BLOCK),
    "headers": (JSON_HEAD, b"A: b\r\n" * 1_000),
    "interim responses": (b"", b"HTTP/1.1 103 Hints\r\nA: b\r\n\r\n" * 1_000),
    "a JSON answer": (JSON_HEAD + b"\r\n", BLOCK),
    "chunks of a JSON answer": (
        JSON_HEAD + b"Transfer-Encoding: chunked\r\n\r\n",
        b"10000\r\n" + BLOCK + b"\r\n",
    ),
    "a refusal": (JSON_HEAD.replace(b"200 OK", b"400 No") + b"\r\n", BLOCK),
    "a text": (OK + b"Content-Type: text/html\r\n\r\n", BLOCK),
    "an event": (EVENTS_HEAD + b"data: ", BLOCK),
    "compressed zeros": (
        JSON_HEAD + b"Content-Encoding: gzip\r\n\r\n",
        gzip.compress(bytes(10_000_000)),
    ),
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_an_answer_without_an_end_is_bounded(tmp_path: Path, name: str) -> None:
    server = RudeServer(*ENDLESS[name])
    async with server.open() as url:
        # The package skips interim responses without a count: only the time bounds them.
        text = await fail_to_connect(
            tmp_path, url, seconds=1.0 if name == "interim responses" else 10.0
        )
    assert text.startswith("server web ")
    assert KEY not in text
    assert server.sent < 64 << 20


SLOW = {
    "a status line": (b"HTTP/1.1 200 ", b"x"),
    "headers": (JSON_HEAD, b"A: b\r\n"),
    "a JSON answer": (JSON_HEAD + b"\r\n", b" "),
    "events": (EVENTS_HEAD, b": still here\n\n"),
}


@pytest.mark.parametrize("name", SLOW)
async def test_an_answer_that_trickles_has_a_time_limit(tmp_path: Path, name: str) -> None:
    async with RudeServer(*SLOW[name], pause=0.02).open() as url:
        text = await fail_to_connect(tmp_path, url, seconds=0.5)
    assert "0.5 s" in text


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_takes_no_header_to_another_server(tmp_path: Path, status: int) -> None:
    other = RudeServer(b"")
    async with other.open() as url:
        location = url.replace("127.0.0.1", "localhost") if status == 303 else url
        answer = f"HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
        async with RudeServer(answer.encode()).open() as first:
            text = await fail_to_connect(tmp_path, first, seconds=10.0)
    assert other.received == b""
    assert "Redirect to" in text and url.rpartition("/")[0].rpartition(":")[2] in text
    assert KEY not in text
