"""MCP hosts that do not follow the rules, or end in the middle."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest
from tests.waiting import SECONDS, wait_until

from mudroom import Reason
from mudroom.events import RunFinished
from mudroom.testing import Request
from mudroom_hosts.line_streams import MAX_LINE

from .conftest import MakeHost

GARBAGE = (
    b"\n",
    b"{\n",
    b"\xff\xfe\x00\n",
    b"[]\n",
    b'"text"\n',
    b'{"jsonrpc": "1.0", "id": 1}\n',
    b"[" * 100_000 + b"\n",
    b'{"jsonrpc": "2.0", "id": "nobody", "result": {}}\n',
    b'{"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": "m"}}\n',
    b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}}\n',
    b'{"jsonrpc": "2.0", "method": "notifications/cancelled"}\n',
    b'{"jsonrpc": "2.0", "method": "notifications/unknown", "params": {}}\n',
)


WRONG: tuple[tuple[str, dict[str, Any]], ...] = (
    ("tools/call", {}),
    ("tools/call", {"name": 5}),
    ("tools/none", {}),
    ("initialize", {}),
)


async def block(_: Request) -> str:
    await asyncio.Event().wait()
    return ""


@pytest.mark.parametrize("is_early", [True, False])
async def test_garbage_does_no_harm(make_host: MakeHost, is_early: bool) -> None:
    host = make_host(["Done."])
    async with host.connect_raw(shakes_hands=not is_early) as raw:
        await raw.write(*GARBAGE)
        if is_early:
            await raw.shake_hands()
        else:
            await raw.write(b"x" * (MAX_LINE + (1 << 18)) + b"\n")
        await raw.call(1, "task", prompt="Work.")
        answer = await raw.finish(1)
        assert answer["result"]["structuredContent"]["report"] == "Done."
    assert any("is no message of JSON-RPC" in notice for notice in host.notices)
    huge = "a line of more than 16 MiB on stdin is not used"
    assert (host.notices[-1] == huge) is not is_early


async def test_requests_with_wrong_parameters_are_errors(make_host: MakeHost) -> None:
    host = make_host([])
    async with host.connect_raw() as raw:
        for number, (method, params) in enumerate(WRONG):
            line: dict[str, Any] = {"jsonrpc": "2.0", "id": number, "method": method}
            await raw.write({**line, "params": params})
            assert (await raw.finish(number))["error"]["code"] in (-32602, -32601)


async def test_a_host_that_ends_stops_its_tasks(make_host: MakeHost) -> None:
    finished: list[RunFinished] = []
    host = make_host(block)
    async with host.connect_raw() as raw:
        host.sessions[0].watch(
            lambda event: finished.append(event) if isinstance(event, RunFinished) else None
        )
        await raw.call(1, "task", prompt="Work.")
        await raw.call(2, "task", prompt="Work.", wait=0.05)
        await raw.finish(2)
        await raw.write(b'{"jsonrpc": "2.0", "id": 3, "meth')  # ends in the middle of a line
    assert [event.report.reason for event in finished] == [Reason.CANCELLED] * 2


async def test_a_host_that_reads_no_more_ends_the_server(make_host: MakeHost) -> None:
    host = make_host(["Done."])
    async with host.serve() as (reads, writes):
        os.close(reads)
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        await asyncio.to_thread(os.write, writes, json.dumps(ping).encode() + b"\n")
        assert host.running
        await asyncio.wait({host.running}, timeout=SECONDS)
        host.running.result()


async def test_a_host_that_does_not_read_stops_no_task(make_host: MakeHost) -> None:
    """Answers fill the pipe; the tasks go on, and the end of the input ends the server."""
    host = make_host(["x" * 20_000] * 5)
    finished: list[str] = []
    async with host.connect_raw() as raw:
        await raw.stop_reading()
        host.sessions[0].watch(
            lambda event: finished.append(event.run) if isinstance(event, RunFinished) else None
        )
        for number in range(5):
            await raw.call(number, "task", prompt="Write.")
        await wait_until(lambda: len(finished) == 5)
