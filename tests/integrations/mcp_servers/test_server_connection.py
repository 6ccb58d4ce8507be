"""Connections to MCP servers: rude servers, limits, cancels, and the end of processes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mudroom import ServerSpec
from mudroom._adapters.integrations.mcp_servers.listing import ListedTool, Listing, ServerResult
from mudroom._adapters.integrations.mcp_servers.server_connection import Connection, ServerError
from mudroom._adapters.integrations.mcp_servers.server_process import MAX_LINE

from ...waiting import is_alive, wait_until
from .servers import count_starts, make_quick, read_log

END_SECONDS = 2.0
"""Longest time in which a server ends."""


@asynccontextmanager
async def connect(spec: ServerSpec, folder: Path, **more: Any) -> AsyncGenerator[Connection]:
    connection = Connection(spec, str(folder), dict(os.environ), lambda _: None, **more)
    try:
        yield connection
    finally:
        await connection.close()


async def call(connection: Connection, tool: str, **arguments: object) -> ServerResult:
    return await connection.call(ListedTool(tool, "", {}), arguments, lambda _: None)


async def add(connection: Connection) -> str:
    return (await call(connection, "add", a=1, b=2)).content[0].text


@pytest.mark.parametrize("fault", ["garbage", "wrong_id", "double"])
async def test_a_rude_server_does_no_harm(fault: str, tmp_path: Path) -> None:
    async with connect(make_quick(fault=fault), tmp_path) as connection:
        assert await add(connection) == "3"
        assert await add(connection) == "3"
        assert connection.starts == 1


SIZE = MAX_LINE + (4 << 20)
RESULT = '"result":{"content":[{"type":"text","text":"~"}],"id":1}'
LONG_ANSWERS = {
    "id first": '{"jsonrpc":"2.0","id":@,' + RESULT + "}",
    "id last": "{" + RESULT + ',"id": @, "jsonrpc": "2.0" }',
    "id between": '{"jsonrpc": "2.0", ' + RESULT + ',"id":@}',
    "id alone": '{ "id" : @ , ' + RESULT + ', "jsonrpc" : "2.0"}',
    "error": '{"jsonrpc":"2.0","id":@,"error":{"code":1,"message":"~"}}',
}
BROKEN_ANSWERS = {
    "cut off": '{"jsonrpc":"2.0","id":@,"result":{"content":[{"type":"text","te',
    "no object": '{"jsonrpc":"2.0","id":@,"result":"text"}',
    "nothing": '{"jsonrpc":"2.0","id":@}',
    "no JSON": '{"jsonrpc":"2.0","id":@,"result":{NaN: undefined}}',
    "two on a line": '{"jsonrpc":"2.0","id":@,"result":{}}{"jsonrpc":"2.0","id":@,"result":{}}',
    "no content": '{"jsonrpc":"2.0","id":@,"result":{"content":7}}',
    "half a character": '{"jsonrpc":"2.0","id":@,"result":{"content":[],"more":"\\ud8"}}',
}


@pytest.mark.parametrize("kind", LONG_ANSWERS)
async def test_a_long_answer_fails_its_call_only(kind: str, tmp_path: Path) -> None:
    async with connect(make_quick(), tmp_path) as connection:
        pid = (await call(connection, "pid")).content[0].text
        other = asyncio.create_task(call(connection, "sleep"))
        await asyncio.sleep(0)
        with pytest.raises(ServerError, match="a line of more than 16 MiB"):
            await call(connection, "write", line=LONG_ANSWERS[kind], size=SIZE)
        assert not other.done()
        assert (await call(connection, "pid")).content[0].text == pid
        other.cancel()


@pytest.mark.parametrize("kind", BROKEN_ANSWERS)
async def test_a_broken_answer_fails_its_call_only(kind: str, tmp_path: Path) -> None:
    async with connect(make_quick(), tmp_path) as connection:
        pid = (await call(connection, "pid")).content[0].text
        other = asyncio.create_task(call(connection, "sleep"))
        await asyncio.sleep(0)
        with pytest.raises(ServerError):
            await asyncio.wait_for(call(connection, "write", line=BROKEN_ANSWERS[kind]), 60)
        assert not other.done()
        assert (await call(connection, "pid")).content[0].text == pid
        other.cancel()


async def test_a_long_answer_of_nobodys_fails_the_only_call(tmp_path: Path) -> None:
    """Nothing tells whose it is, but only one call waits."""
    async with connect(make_quick(), tmp_path) as connection:
        with pytest.raises(ServerError, match="a line of more than 16 MiB"):
            await call(connection, "write", line="{" + RESULT + ', "more": {}}', size=SIZE)
        assert await add(connection) == "3"
        assert connection.starts == 1


async def test_a_long_answer_that_could_be_of_any_call_ends_the_open_calls_only(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    async with connect(make_quick(log=log), tmp_path) as connection:
        await connection.open()
        other = asyncio.create_task(call(connection, "sleep"))
        await wait_until(lambda: "tools/call" in read_log(log))
        for calling in (
            call(connection, "write", line="{" + RESULT + ', "more": {}}', size=SIZE),
            other,
        ):
            with pytest.raises(ServerError, match="does not say which call it answers"):
                await calling
        assert await add(connection) == "3"
        assert connection.starts == 1


async def test_a_long_line_that_is_no_message_is_ignored(tmp_path: Path) -> None:
    async with connect(make_quick(fault="huge"), tmp_path) as connection:
        assert await add(connection) == "3"
        assert connection.starts == 1


async def test_a_long_question_of_the_server_is_refused(tmp_path: Path) -> None:
    """The call that waits for the answer goes on; its id is that of the question, by chance."""
    log = tmp_path / "log"
    question = '{"jsonrpc":"2.0","id":@,"method":"elicitation/create","params":{"message":"~"}}'
    async with connect(make_quick(log=log), tmp_path) as connection:
        asking = asyncio.create_task(call(connection, "write", line=question, size=SIZE))
        await wait_until(lambda: "refused" in read_log(log))
        assert not asking.done()
        asking.cancel()


async def test_a_server_without_end_of_its_tools_is_cut(tmp_path: Path) -> None:
    listings: list[Listing] = []
    spec = make_quick(fault="endless")
    connection = Connection(spec, str(tmp_path), {}, listings.append)
    await connection.open()
    await connection.close()
    assert len(listings[0].tools) == 50
    assert "more than 50 tools" in listings[0].fault


async def test_a_server_that_dies_in_a_call_is_not_called_twice(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with connect(make_quick(log=log), tmp_path) as connection:
        with pytest.raises(ServerError) as caught:
            await call(connection, "die")
        assert "server quick ended (signal 9; last lines: about to die)" in str(caught.value)
        assert await add(connection) == "3"
    assert count_starts(log) == 2
    assert read_log(log).count("tools/call") == 2


async def test_secrets_are_replaced_in_all_that_a_server_says_of_its_end(tmp_path: Path) -> None:
    async with connect(make_quick(), tmp_path, redact=hide_die) as connection:
        with pytest.raises(ServerError, match="unknown tool no-XXX"):
            await call(connection, "no-die")
        with pytest.raises(ServerError, match="last lines: about to XXX"):
            await call(connection, "die")
        assert connection.last_lines == "about to XXX"
    spec = make_quick(fault="no_start", env={"LAST_LINES": "die " * 300})
    async with connect(spec, tmp_path, redact=hide_die) as connection:
        with pytest.raises(ServerError, match="XXX XXX"):
            await add(connection)
        assert "die" not in connection.reason and len(connection.reason) < 1_100


async def test_secrets_are_replaced_in_the_reason_of_a_short_list(tmp_path: Path) -> None:
    listings: list[Listing] = []
    spec = make_quick(fault="offers_one_page")
    connection = Connection(
        spec, str(tmp_path), {}, listings.append, redact=lambda text: text.replace("index", "XXX")
    )
    await connection.open()
    await connection.close()
    assert "the XXX is broken" in listings[0].fault and "index" not in listings[0].fault


def hide_die(text: str) -> str:
    return text.replace("die", "XXX")


async def test_a_trusted_server_repeats_a_call_that_changes_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    spec = make_quick(log=log, is_trusted=True)
    async with connect(spec, tmp_path) as connection:
        with pytest.raises(ServerError):
            await connection.call(ListedTool("die", "", {}, is_read_only=True), {}, print)
    assert read_log(log).count("tools/call") == 2


async def test_a_server_that_ends_again_and_again_counts_as_failed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with connect(make_quick(log=log), tmp_path) as connection:
        for _ in range(3):
            with pytest.raises(ServerError, match="signal 9"):
                await call(connection, "die")
        with pytest.raises(ServerError, match="it ended 3 times in 60 s"):
            await add(connection)
        assert connection.state == "failed"
    assert count_starts(log) == 3


async def test_a_server_that_cannot_start_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect(make_quick(fault="no_start"), tmp_path) as connection:
        with pytest.raises(ServerError, match="exit code 1; last lines: no licence"):
            await connection.open()
        assert connection.state == "failed"
    spec = ServerSpec(name="x", origin="file", scope="option", command="/does/not/exist")
    async with connect(spec, tmp_path) as connection:
        with pytest.raises(ServerError):
            await connection.open()
        with pytest.raises(ServerError) as raised:
            await connection.open()
    text = "the program '/does/not/exist' cannot be started: No such file or directory"
    assert text in str(raised.value)
    assert str(raised.value).count("(file)") == 1
    # The user reads each reason once.
    assert sum(text in record.getMessage() for record in caplog.records) == 1


async def test_a_late_server_is_not_waited_for_longer_than_its_limit(tmp_path: Path) -> None:
    log = tmp_path / "log"
    await _load_package_once()
    async with connect(make_quick(fault="late", log=log, start_timeout=0.5), tmp_path) as each:
        with pytest.raises(ServerError, match="not ready within"):
            await each.open()
        pids = [int(line.split()[1]) for line in read_log(log)]
    assert not any(map(is_alive, pids))


async def _load_package_once() -> None:
    from mudroom._adapters.integrations.mcp_servers.server_connection import load_package

    await load_package()


async def test_a_call_without_a_sign_of_life_fails(tmp_path: Path) -> None:
    async with connect(make_quick(), tmp_path, idle_seconds=0.2) as connection:
        with pytest.raises(ServerError, match="sent nothing for"):
            await call(connection, "sleep")
        assert connection.state == "ready"
    async with connect(make_quick(call_timeout=0.2), tmp_path) as connection:
        with pytest.raises(ServerError, match=r"took more than 0.2 s"):
            await call(connection, "sleep")


async def test_a_cancelled_call_is_cancelled_in_the_server_and_others_go_on(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    async with connect(make_quick(log=log), tmp_path) as connection:
        task = asyncio.create_task(call(connection, "sleep"))
        await wait_until(lambda: "tools/call" in read_log(log))
        task.cancel()
        await wait_until(lambda: "notifications/cancelled" in read_log(log))
        assert await add(connection) == "3"


async def test_changed_tools_are_listed_again(tmp_path: Path) -> None:
    listings: list[Listing] = []
    connection = Connection(make_quick(), str(tmp_path), {}, listings.append)
    await call(connection, "change")
    await wait_until(lambda: len(listings) == 2)
    await connection.close()
    assert "new" in [tool.name for tool in listings[1].tools]


async def test_all_concurrent_calls_get_their_own_answer(tmp_path: Path) -> None:
    async with connect(make_quick(), tmp_path) as connection:
        results = await asyncio.gather(
            *(call(connection, "add", a=number, b=0) for number in range(1_000))
        )
    assert [result.content[0].text for result in results] == [str(each) for each in range(1_000)]


@pytest.mark.parametrize("fault", ["", "ignores_end"])
async def test_the_process_ends_with_the_connection(fault: str, tmp_path: Path) -> None:
    async with connect(make_quick(fault=fault), tmp_path) as connection:
        await connection.open()
        pid = connection.pid
        assert pid
        start = time.monotonic()
        await connection.close()
    assert not is_alive(pid)
    assert time.monotonic() - start < END_SECONDS * 3  # the machine may be busy
    with pytest.raises(ServerError, match="the session is closed"):
        await add(connection)
