"""Two processes of `mudroom serve` on one database: either one serves every session.

Each has a state folder of its own, as on two machines.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from tests.waiting import SECONDS

from mudroom.testing import ModelServer, ServerRequest
from mudroom.testing.model_server import ServerAnswer

from .conftest import Client, Line
from .program import check_whole, list_cursors, make_token, start_server

pytestmark = pytest.mark.usefixtures("database_loop")


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
