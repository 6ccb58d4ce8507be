"""`kill -9` of `mudroom serve`, and two processes on one database, which serve each session.

Streams continue without a gap, prompts run once, and keys hold.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.waiting import SECONDS, wait_until

from mudroom._core.messages import ToolCallBlock
from mudroom.testing import ModelServer, ServerRequest
from mudroom.testing.model_server import ServerAnswer

from .conftest import Client, Line, is_idle
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
@pytest.mark.parametrize("worker", [[], ["--worker", "process:2"]])
async def test_sessions_of_a_killed_server_continue_in_a_new_one(
    tmp_path: Path, worker: list[str]
) -> None:
    flags = ["--parallel", str(SESSIONS + 1), "--parallel-owner", str(SESSIONS), *worker]
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

    token = make_token(tmp_path)
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


async def collect(client: Client, session: str, messages: list[Line], until: Any) -> None:
    """Add the messages of a stream to a list, up to one."""
    async with client.open_stream(session) as stream:
        async for message in stream:
            messages.append(message)
            if until(message):
                return


async def wait_for_status(client: Client, session: str, status: str) -> None:
    async with asyncio.timeout(SECONDS):
        while (await client.get(f"/v1/sessions/{session}"))["status"] != status:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.mark.timeout(300)
async def test_sessions_of_one_process_are_served_by_the_other(
    tmp_path: Path, postgres_url: str
) -> None:
    asked: list[str] = []
    held = asyncio.Event()
    opened = asyncio.Event()
    is_dead = False

    async def answer(request: ServerRequest) -> ServerAnswer:
        prompt = str(request.messages[-1]["content"])
        asked.append(prompt)
        if "Slow" in prompt and not is_dead:
            held.set()
            await asyncio.Event().wait()
        if "Held" in prompt:
            await opened.wait()
        return f"Answer {len(asked)}."

    token = make_token(tmp_path, store=postgres_url)
    flags = ("--store", postgres_url)
    async with (
        ModelServer(answer) as model,
        aiohttp.ClientSession() as http,
        start_server(tmp_path, model.url, *flags) as (first, first_url),
    ):
        one = Client(http, first_url, token)
        session = (await one.create(prompt="Held."))["id"]
        await wait_for_status(one, session, "working")
        # Only now, because any process may take a session that none has opened yet.
        async with start_server(tmp_path, model.url, *flags, home="other") as (_, second_url):
            two = Client(http, second_url, token)
            messages: list[Line] = []
            stream = asyncio.create_task(collect(two, session, messages, is_idle))
            cut: list[Line] = []
            cut_stream = asyncio.create_task(read_until_cut(one, session, cut))
            await wait_for_status(two, session, "working")
            assert [each["id"] for each in (await two.get("/v1/sessions"))["data"]] == [session]
            later = await two.post(session, "user.message", text="Slow.")
            opened.set()
            async with asyncio.timeout(SECONDS):
                await held.wait()
            assert len(asked) == 2  # the process that has the session took the prompt, once
            is_dead = True  # before the kill: the other process may ask the model at once
            first.kill()
            await first.wait()
            async with asyncio.timeout(SECONDS):
                await stream
                await cut_stream
            view = await two.get(f"/v1/sessions/{session}")
            assert (view["last"]["id"], view["last"]["reason"]) == (later["id"], "GOAL")
            recorded = await list_cursors(two, session)
            check_whole([each for each in messages if "id" in each], recorded)
            assert cut
            rest = await continue_stream(two, session, cut[-1]["id"])
            check_whole([*cut, *rest], recorded)


@pytest.mark.timeout(300)
async def test_questions_and_conversations_cross_processes(
    tmp_path: Path, postgres_url: str
) -> None:
    def answer(request: ServerRequest) -> ServerAnswer:
        if len(request.messages) == 1 and "Write." in str(request.messages):
            return [ToolCallBlock("t1", "write", {"file_path": "f.md", "content": "x"})]
        return f"Answer to {len(request.messages)} messages."

    token = make_token(tmp_path, store=postgres_url)
    flags = ("--store", postgres_url, "--workspace", f"main={tmp_path / 'project'}")
    (tmp_path / "project").mkdir()
    async with (
        ModelServer(answer) as model,
        aiohttp.ClientSession() as http,
        start_server(tmp_path, model.url, *flags) as (_, first_url),
        start_server(tmp_path, model.url, *flags, home="other") as (_, second_url),
    ):
        one = Client(http, first_url, token)
        two = Client(http, second_url, token)
        session = (await one.create(prompt="Write."))["id"]
        async with asyncio.timeout(SECONDS), two.open_stream(session) as stream:
            async for message in stream:
                data = message["data"]
                if message["event"] == "status" and data["questions"]:
                    assert (data["status"], data["run"]) == ("asking", "1")
                    question = data["questions"][0]
                    assert question["arguments"]["file_path"] == "f.md"
                    await two.post(session, "question.answer", question=question["id"], allow=True)
                    break
            async for message in stream:
                if is_idle(message):
                    break
        assert (tmp_path / "project" / "f.md").read_text() == "x"
        assert (await two.get(f"/v1/sessions/{session}"))["questions"] == []
        body = {"model": "mudroom", "input": "First."}
        status, first = await one.send("POST", "/v1/responses", body)
        assert status == 200, first
        more = {"model": "mudroom", "input": "Second.", "previous_response_id": first["id"]}
        async with asyncio.timeout(SECONDS):
            status, second = await two.send("POST", "/v1/responses", more)
        assert status == 200, second
        assert second["output"][0]["content"][0]["text"] == "Answer to 3 messages."
