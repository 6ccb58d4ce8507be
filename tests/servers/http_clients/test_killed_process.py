"""`kill -9` of `mudroom serve`: streams continue without a gap, prompts run once, keys hold."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import aiohttp
import pytest
from tests.waiting import SECONDS, wait_until

from mudroom._core.messages import ToolCallBlock
from mudroom.testing import ModelServer, ServerRequest
from mudroom.testing.model_server import ServerAnswer

from .conftest import Client, Line
from .program import (
    check_whole,
    continue_stream,
    list_cursors,
    make_token,
    read_until_cut,
    start_server,
)

CHILDREN = 2
SESSIONS = 100 if os.environ.get("MUDROOM_LONG") else 3


pytestmark = pytest.mark.usefixtures("database_loop")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("place", ["workers", "database"])
async def test_sessions_of_a_killed_server_continue_in_a_new_one(
    tmp_path: Path, postgres_url: str, place: str
) -> None:
    store = postgres_url if place == "database" else ""
    flags = ["--parallel", str(SESSIONS + 1), "--parallel-owner", str(SESSIONS)]
    flags += ["--store", store] if store else ["--worker", "process:2"]
    working = 0
    all_work = asyncio.Event()
    is_dead = False

    async def answer(request: ServerRequest) -> ServerAnswer:
        nonlocal working
        prompt = str(request.messages[0]["content"])
        if "Ask." in prompt:
            if len(request.messages) > 1:
                return "".join(str(each["content"]) for each in request.messages[2:])
            return [
                ToolCallBlock(f"t{number}", "task", {"prompt": f"Slow {number}."})
                for number in range(CHILDREN)
            ]
        if is_dead:
            return "Slow result."
        working += 1
        if working == CHILDREN * SESSIONS:
            all_work.set()
        await asyncio.Event().wait()
        return ""

    token = make_token(tmp_path, store=store)
    body = {"prompt": "Ask."}
    connector = aiohttp.TCPConnector(limit=0)
    async with ModelServer(answer) as model, aiohttp.ClientSession(connector=connector) as http:
        async with start_server(tmp_path, model.url, *flags) as (process, url):
            client = Client(http, url, token)
            sessions: list[str] = []
            for number in range(SESSIONS):
                created = await client.send("POST", "/v1/sessions", body, key=f"k{number}")
                assert created[0] == 201
                sessions.append(created[1]["id"])
            before: list[list[Line]] = [[] for _ in sessions]
            streams = [
                asyncio.create_task(read_until_cut(client, each, before[number]))
                for number, each in enumerate(sessions)
            ]
            waiting = await client.post(sessions[0], "user.message", text="Ask. Later.")
            async with asyncio.timeout(SECONDS + 3 * SESSIONS):
                await all_work.wait()
            await wait_until(lambda: all(before))
            process.kill()
            await process.wait()
            await asyncio.gather(*streams)
        is_dead = True
        async with start_server(tmp_path, model.url, *flags) as (process, url):
            client = Client(http, url, token)
            for number, session in enumerate(sessions):
                status, again = await client.send("POST", "/v1/sessions", body, key=f"k{number}")
                assert (status, again["id"]) == (200, session)
                seen = before[number]
                rest = await continue_stream(client, session, seen[-1]["id"])
                check_whole([*seen, *rest], await list_cursors(client, session))
            events = await client.list_events(sessions[0], "?kinds=run_finished")
            reports = [each["report"] for each in events if "." not in each["run"]]
            assert [each["reason"] for each in reports] == ["GOAL", "GOAL"]
            assert reports[0]["text"].count("Slow result.") == CHILDREN
            view = await client.get(f"/v1/sessions/{sessions[0]}")
            assert (view["last"]["id"], view["last"]["run"]) == (waiting["id"], "2")
            process.terminate()
            async with asyncio.timeout(SECONDS):
                assert await process.wait() == 143
