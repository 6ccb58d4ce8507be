"""`mudroom serve` with worker processes: children run in them, which can be stuck."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.waiting import SECONDS, is_alive, wait_until

from mudroom._core.messages import ToolCallBlock
from mudroom.testing import ModelServer, ServerRequest
from mudroom.testing.model_server import ServerAnswer

from .conftest import Client
from .program import list_workers, make_token, run_fleet, start_server

CHILDREN = 4
BUSY_SECONDS = 7.0
"""Longest end on a busy machine: less than the time until silence alone ends the worker."""


class Children:
    """A model whose prompt "Ask." starts children, whose answers wait until they are released."""

    def __init__(self) -> None:
        self.working = 0
        self.go_on = asyncio.Event()

    async def answer(self, request: ServerRequest) -> ServerAnswer:
        if "Ask." not in str(request.messages[0]["content"]):
            self.working += 1
            await self.go_on.wait()
            return "Result of a child."
        if len(request.messages) > 1:
            return str(request.messages[2]["content"])
        prompts = [f"Work {number}." for number in range(CHILDREN)]
        return [ToolCallBlock(f"t{each[5]}", "task", {"prompt": each}) for each in prompts]


@asynccontextmanager
async def serve_children(
    folder: Path, children: Children, *flags: str
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, Client, str]]:
    """Start a server, and a prompt with children; yield both and the id of its session."""
    token = make_token(folder)
    async with (
        ModelServer(children.answer) as model,
        start_server(folder, model.url, *flags) as (process, url),
        aiohttp.ClientSession() as http,
    ):
        client = Client(http, url, token)
        session = await client.create(prompt="Ask.")
        await wait_until(lambda: children.working == CHILDREN)
        yield process, client, session["id"]


def check_reports(events: list[dict[str, Any]]) -> None:
    reports = {each["run"]: each["report"] for each in events if each["type"] == "run_finished"}
    assert {report["reason"] for report in reports.values()} == {"GOAL"}
    assert reports["1"]["text"].count("Result of a child.") == CHILDREN
    assert len(reports) == CHILDREN + 1


async def test_children_run_in_worker_processes_which_can_be_drained(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text('worker = "process:2"\n')
    children = Children()
    async with serve_children(tmp_path, children) as (process, client, session):
        workers = await list_workers(tmp_path)
        assert [len(worker["running"]) for worker in workers] == [2, 2]
        pids = [worker["pid"] for worker in workers]
        assert len({*pids, process.pid}) == 3
        assert "2 runs to finish" in await run_fleet(tmp_path, "drain", "1")
        assert [each["state"] for each in await list_workers(tmp_path)] == ["draining", "working"]
        children.go_on.set()
        view = await client.finish(session)
        assert view["last"]["reason"] == "GOAL"
        check_reports(await client.list_events(session))
        await wait_until(lambda: not is_alive(pids[0]))
        assert is_alive(pids[1])


async def test_a_server_that_stops_lets_its_worker_processes_finish(tmp_path: Path) -> None:
    children = Children()
    flags = ("--worker", "process:2", "--drain-seconds", str(SECONDS))
    async with serve_children(tmp_path, children, *flags) as (process, client, session):
        pids = [worker["pid"] for worker in await list_workers(tmp_path)]
        process.terminate()
        async with asyncio.timeout(SECONDS):
            while (await client.send("GET", "/health"))[0] != 503:  # noqa: ASYNC110  no event says it
                await asyncio.sleep(0.02)
        children.go_on.set()
        async with asyncio.timeout(SECONDS):
            assert await process.wait() == 143
        await wait_until(lambda: not any(map(is_alive, pids)))
    async with ModelServer(children.answer) as model:
        async with start_server(tmp_path, model.url) as (_, url), aiohttp.ClientSession() as http:
            client = Client(http, url, make_token(tmp_path))
            check_reports(await client.list_events(session))
            assert model.request_count == 0


@pytest.mark.parametrize("end", ["delete", "silence", "SIGTERM"])
async def test_a_stuck_child_of_one_owner_does_not_hold_those_of_others(
    tmp_path: Path, end: str
) -> None:
    """Sessions of all owners share the one worker process, which is stopped."""
    children = Children()
    flags = ("--worker", "process:1", "--drain-seconds", "1")
    async with (
        serve_children(tmp_path, children, *flags) as (process, client, first),
        aiohttp.ClientSession() as http,
    ):
        other = Client(http, client.url, make_token(tmp_path, "bob"))
        second = (await other.create(prompt="Ask."))["id"]
        await wait_until(lambda: children.working == 2 * CHILDREN)
        workers = await list_workers(tmp_path)
        assert [len(worker["running"]) for worker in workers] == [CHILDREN] * 2
        (pid,) = {worker["pid"] for worker in workers}
        assert pid != process.pid
        os.kill(pid, signal.SIGSTOP)
        children.go_on.set()
        begin = time.monotonic()
        if end == "SIGTERM":
            process.terminate()
            async with asyncio.timeout(SECONDS):
                assert await process.wait() == 143
        elif end == "delete":
            assert (await client.send("DELETE", f"/v1/sessions/{first}"))[0] == 200
        if end != "silence":
            assert time.monotonic() - begin < BUSY_SECONDS
        await wait_until(lambda: not is_alive(pid))
        if end == "SIGTERM":
            return
        going_on = [(other, second)]
        if end == "delete":
            assert (await client.send("GET", f"/v1/sessions/{first}"))[0] == 404
        else:
            going_on.append((client, first))
        for each, session in going_on:
            assert (await each.finish(session))["last"]["reason"] == "GOAL"
            check_reports(await each.list_events(session))
