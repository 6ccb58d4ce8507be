"""Eras of the protocol: the question for it, what is remembered, and the old era over HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from mudroom._adapters.integrations.mcp_servers.listing import ListedTool, Listing
from mudroom._adapters.integrations.mcp_servers.server_connection import (
    Connection,
    Link,
    ServerError,
)
from mudroom._adapters.integrations.mcp_servers.servers import McpServers

from ...waiting import wait_until
from .servers import count_starts, make_quick, make_small, read_log
from .test_http_servers import make_spec, serve
from .test_session_servers import open_session

ADD = ListedTool("add", "", {})
OLD = "2025-11-25"


async def add(connection: Connection) -> str:
    try:
        return (await connection.call(ADD, {"a": 1, "b": 2}, print)).content[0].text
    finally:
        await connection.close()


async def test_a_silent_server_of_the_old_era_is_waited_for_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = make_quick(fault="silent", log=log)
    listings: list[Listing] = []
    calling = asyncio.create_task(add(Connection(server, str(tmp_path), {}, listings.append)))
    await wait_until(lambda: "server/discover" in read_log(log))
    asked = asyncio.get_running_loop().time()
    await wait_until(lambda: "initialize" in read_log(log))
    assert asyncio.get_running_loop().time() - asked < 9.0, "the package waits for 10 s"
    assert await calling == "3"
    assert listings[0].protocol == OLD
    assert read_log(log).count("server/discover") == 1
    known = Connection(server, str(tmp_path), {}, listings.append, protocol=OLD)
    assert await add(known) == "3"
    assert read_log(log).count("server/discover") == 1


async def test_the_next_session_remembers_the_era(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for _ in range(2):
        async with open_session(tmp_path, [], [make_quick(log=log)]) as session:
            await session.mcp.restart("quick")
    assert count_starts(log) == 2
    assert read_log(log).count("server/discover") == 1


async def test_a_server_that_left_the_old_era_is_asked_again(tmp_path: Path) -> None:
    listings: list[Listing] = []
    log = tmp_path / "log"
    server = make_quick(fault="refuses_greeting", log=log)
    connection = Connection(server, str(tmp_path), {}, listings.append, protocol=OLD)
    with pytest.raises(ServerError, match="no greeting"):
        await add(connection)
    assert count_starts(log) == 2
    assert read_log(log).count("server/discover") == 1
    small = Connection(make_small(), str(tmp_path), {}, listings.append, protocol="2026-07-28")
    assert await add(small) == "3"
    assert listings[-1].protocol == "2026-07-28"


async def test_a_server_that_reports_no_changes_lists_its_tools_again_once_for_all(
    tmp_path: Path,
) -> None:
    names: list[str] = []

    def allow(name: str) -> bool:
        names.append(name)
        return True

    servers = McpServers(
        [make_small(env={"QUIET": "1"})],
        folder=str(tmp_path),
        environ={},
        cache_folder=str(tmp_path / "cache"),
        is_allowed=allow,
        parse_image=lambda _: "it is none",
        make_redact=lambda _: str,
    )
    try:
        await servers.load(servers.patterns)
        await servers.call_tool("small", "grow", {})
        assert "mcp__small__grown" not in servers.tools
        await asyncio.gather(*(servers.load(servers.patterns) for _ in range(10)))
        assert "mcp__small__grown" in servers.tools
        assert names.count("mcp__small__add") == 2
        (status,) = servers.list_states()
        assert status.starts == 1 and status.pid
        await load_while_it_hangs(servers, status.pid)
    finally:
        await servers.close()


async def load_while_it_hangs(servers: McpServers, pid: int) -> None:
    """Load the tools often while the server is stopped; only the first time waits for it."""
    connection = servers._servers["small"].connection
    connection.spec = replace(connection.spec, start_timeout=0.3)
    began = asyncio.get_running_loop().time()
    os.kill(pid, signal.SIGSTOP)
    try:
        for _ in range(20):
            assert await servers.load(servers.patterns) == ()
    finally:
        os.kill(pid, signal.SIGCONT)
    assert asyncio.get_running_loop().time() - began < 5.0, "20 times 0.3 s are 6 s"


async def test_a_listing_is_valid_as_long_as_its_server_says() -> None:
    link = Link(str)
    for seconds, is_stale in ((None, False), (0.0, True), (3_600.0, False)):
        link.note_listing(Listing(fresh_seconds=seconds))
        assert link.is_stale is is_stale


async def test_the_old_era_works_over_http(tmp_path: Path) -> None:
    listings: list[Listing] = []
    with serve() as (url, _):
        spec = make_spec(url, headers={"Authorization": "Bearer secret"})
        connection = Connection(spec, str(tmp_path), {}, listings.append, protocol=OLD)
        lines: list[str] = []
        await connection.call(ListedTool("work", "", {}), {"steps": 2}, lines.append)
        assert lines == ["1 of 2: working", "2 of 2: working"]
        assert await add(connection) == "3"
    assert listings[0].protocol == OLD
