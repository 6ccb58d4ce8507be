"""Two processes of `mudroom serve` on one database: either one serves every session.

Each has a state folder of its own, as on two machines.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.waiting import SECONDS

from mudroom._core.messages import ToolCallBlock
from mudroom.testing import ModelServer, ServerRequest
from mudroom.testing.model_server import ServerAnswer

from .conftest import Client, Line, is_idle
from .program import check_whole, list_cursors, make_token, start_server

pytestmark = pytest.mark.usefixtures("database_loop")


async def collect(client: Client, session: str, messages: list[Line], until: Any) -> None:
    """Add the messages of a stream to a list, up to one."""
    async with client.open_stream(session) as stream:
        async for message in stream:
            messages.append(message)
            if until(message):
                return


async def wait_for_status(client: Client, session: str, status: str) -> None:
    """Wait until a session has a status."""
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
            view = await two.get(f"/v1/sessions/{session}")
            assert (view["last"]["id"], view["last"]["reason"]) == (later["id"], "GOAL")
            stored = [each for each in messages if "id" in each]
            check_whole(stored, await list_cursors(two, session))
            assert len({each["id"] for each in stored}) == len(stored)


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


@asynccontextmanager
async def open_balancer(ports: list[int]) -> AsyncGenerator[str]:
    """Run a proxy that takes the first server that answers; yield its address."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for port in ports:
            with suppress(ConnectionError):
                answers, requests = await asyncio.open_connection("127.0.0.1", port)
                await asyncio.gather(copy(reader, requests), copy(answers, writer))
                return
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def follow(client: Client, session: str, answers: int) -> list[Line]:
    """Follow a session over all cuts of its stream until it has some answers."""
    stored: list[Line] = []
    done = 0
    while done < answers:
        last = stored[-1]["id"] if stored else ""
        with suppress(aiohttp.ClientError):
            async with client.open_stream(session, last_id=last) as stream:
                async for message in stream:
                    if "id" not in message:
                        continue
                    stored.append(message)
                    done += message["data"]["type"] == "run_finished"
                    if done == answers:
                        break
        await asyncio.sleep(0.05)
    return stored


@pytest.mark.timeout(300)
async def test_clients_of_a_proxy_go_on_when_the_first_server_is_killed(
    tmp_path: Path, postgres_url: str
) -> None:
    prompts, clients = 3, 4
    answered = asyncio.Semaphore(0)

    async def answer(request: ServerRequest) -> ServerAnswer:
        answered.release()
        await asyncio.sleep(0.3)
        return f"Answer to {len(request.messages)} messages. " * 50

    token = make_token(tmp_path, store=postgres_url)
    flags = ("--store", postgres_url, "--behind-proxy", "--host-name", "agents.test")
    async with (
        ModelServer(answer) as model,
        aiohttp.ClientSession() as http,
        start_server(tmp_path, model.url, *flags) as (first, first_url),
        start_server(tmp_path, model.url, *flags, home="other") as (_, second_url),
        open_balancer([int(url.rpartition(":")[2]) for url in (first_url, second_url)]) as url,
    ):
        client = Client(http, url, token)
        client.headers["Host"] = "agents.test"
        sessions = [(await client.create(prompt="First."))["id"] for _ in range(clients)]
        for session in sessions:
            for number in range(1, prompts):
                await client.post(session, "user.message", text=f"Prompt {number}.")
        async with asyncio.timeout(3 * SECONDS):
            following = [asyncio.create_task(follow(client, s, prompts)) for s in sessions]
            for _ in range(clients + 1):
                await answered.acquire()
            first.kill()
            await first.wait()
            streams = await asyncio.gather(*following)
        for session, stored in zip(sessions, streams, strict=True):
            check_whole(stored, await list_cursors(client, session))
            assert len({each["id"] for each in stored}) == len(stored)
            reasons = [
                each["data"]["report"]["reason"]
                for each in stored
                if each["data"]["type"] == "run_finished"
            ]
            assert reasons == ["GOAL"] * prompts
        assert len((await client.get("/v1/sessions"))["data"]) == clients
