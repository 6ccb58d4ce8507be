"""The first request of a host is answered before the package is loaded."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_until

from mudroom.errors import MudroomError
from mudroom_hosts.line_streams import LineInput, LineOutput
from mudroom_hosts.mcp.first_answer import FILE, FirstAnswer

from .conftest import MakeHost

INITIALIZE = b'{"jsonrpc":"2.0","id":"init","method":"initialize","params":{}}\n'
SUCCESS = b'{"jsonrpc":"2.0","id":"init","result":{"version":1}}'
ERROR = b'{"jsonrpc":"2.0","id":"init","error":{"code":-32602,"message":"unsupported"}}'


async def greet(make_host: MakeHost, method: str) -> dict[str, Any]:
    if method == "initialize":
        async with make_host([]).connect_raw() as host:
            answer = await host.finish("init")
            await host.write({"jsonrpc": "2.0", "id": "last", "method": "ping"})
            await host.finish("last")  # the answer of the package would be before this one
    else:
        async with make_host([]).connect_tasks() as host:
            answer = await host.ask(method)
            assert (await host.ask("tools/list"))["result"]["tools"]
    return answer["result"]


@pytest.mark.parametrize("method", ["initialize", "server/discover"])
async def test_the_answer_of_the_last_start_is_sent_once_and_corrected(
    make_host: MakeHost, tmp_path: Path, method: str
) -> None:
    file = tmp_path / "home" / FILE
    own = await greet(make_host, method)
    (key,) = json.loads(file.read_text())
    assert json.loads(file.read_text())[key] == own
    file.write_text(json.dumps({key: {**own, "instructions": "kept"}}))
    assert (await greet(make_host, method))["instructions"] == "kept"
    assert json.loads(file.read_text()) == {key: own}
    file.write_text("no JSON")
    assert await greet(make_host, method) == own


@asynccontextmanager
async def begin(home: Path) -> AsyncGenerator[FirstAnswer]:
    """Yield the lines of a host that has sent its first request."""
    threads = set(threading.enumerate())
    reads, writes = os.pipe()
    nothing = os.open(os.devnull, os.O_WRONLY)
    output = LineOutput(nothing, print)
    try:
        os.write(writes, INITIALIZE)
        first = FirstAnswer(LineInput(reads), output, str(home))
        await first.begin()
        yield first
    finally:
        output.end()
        os.close(writes)
        await wait_until(lambda: set(threading.enumerate()) <= threads)
        os.close(reads)
        os.close(nothing)


async def test_an_error_of_the_package_removes_the_kept_answer(tmp_path: Path) -> None:
    suppressed: list[bool] = []
    for answer in (SUCCESS, SUCCESS, ERROR, ERROR):
        async with begin(tmp_path) as first:
            assert not first.suppresses(b'{"jsonrpc":"2.0","method":"notifications/message"}')
            suppressed.append(first.suppresses(answer))
            first.keep(answer)
            assert not first.suppresses(answer)
    assert suppressed == [False, True, True, False]
    assert json.loads((tmp_path / FILE).read_text()) == {}


async def test_a_server_that_cannot_open_sends_no_kept_answer(
    make_host: MakeHost, tmp_path: Path
) -> None:
    async with begin(tmp_path / "home") as first:
        first.keep(SUCCESS)
    async with begin(tmp_path / "home") as first:
        assert first.suppresses(SUCCESS)
    host = make_host([], session={"resume": "unknown"})
    with pytest.raises(MudroomError, match="unknown"):
        async with host.serve() as (reads, writes):
            os.write(writes, INITIALIZE)
            assert host.running
            await asyncio.wait({host.running})
            os.set_blocking(reads, False)
            with pytest.raises(BlockingIOError):
                os.read(reads, 1)
