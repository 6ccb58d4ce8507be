"""Soak: 200 clients for ten minutes, with a kill in the middle; delays, leaks, gaps."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from tests.waiting import wait_until

from mudroom.testing import ModelServer, ServerRequest

from .conftest import Client, Line
from .program import check_whole, list_cursors, make_token, start_server

pytestmark = pytest.mark.skipif(not os.environ.get("MUDROOM_LONG"), reason="it takes minutes")
CLIENTS = 200
SECONDS = float(os.environ.get("MUDROOM_SOAK_SECONDS", "600"))
PAUSE = 25.0
"""Mean seconds between two prompts of a client."""
MODEL_SECONDS = 0.3
DISTURBED_SECONDS = 15.0
"""After the kill, delays are not counted for this time: streams open again."""


class SoakClient:
    """A client with one session and one stream that it opens again when it is cut.

    Attributes:
        prompts: sent so far. ended: runs whose end the stream has shown.
        messages: all recorded events that the stream has shown.
        delays: pairs of the time of an event and the seconds until it arrived.
    """

    def __init__(self, client: Client, number: int) -> None:
        self.session = ""
        self.prompts = 0
        self.ended = 0
        self.messages: list[Line] = []
        self.delays: list[tuple[float, float]] = []
        self._client = client
        self._number = number
        self._chance = random.Random(number)

    async def create(self) -> None:
        """Create the session."""
        _, session = await self._client.send("POST", "/v1/sessions", {}, key=f"s{self._number}")
        self.session = session["id"]

    async def send_prompts(self, until: float) -> None:
        """Send prompts with pauses, up to a time of `time.monotonic`."""
        while True:
            await asyncio.sleep(self._chance.uniform(0, 2 * PAUSE))
            if time.monotonic() > until:
                return
            self.prompts += 1
            await self._send_prompt()

    async def _send_prompt(self) -> None:
        body = {"type": "user.message", "text": f"Prompt {self.prompts}."}
        path = f"/v1/sessions/{self.session}/events"
        while True:
            try:
                status, _ = await self._client.send("POST", path, body, key=f"p{self.prompts}")
            except aiohttp.ClientError:
                await asyncio.sleep(0.5)  # the server starts again; the key keeps it one prompt
                continue
            assert status in (200, 202)
            return

    async def follow(self) -> None:
        """Follow the session until the task is cancelled."""
        while True:
            last_id = self.messages[-1]["id"] if self.messages else ""
            try:
                async with self._client.open_stream(self.session, last_id=last_id) as stream:
                    async for message in stream:
                        self._take(message)
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.5)

    def _take(self, message: Line) -> None:
        if "id" not in message:
            return
        self.messages.append(message)
        if message["event"] == "turn_finished":
            at = message["data"]["at"]
            self.delays.append((at, time.time() - at))
        self.ended += message["event"] == "run_finished"


def read_size(process: int) -> tuple[int, int]:
    """Return the memory of a process in KiB, and its open files."""
    status = Path(f"/proc/{process}/status").read_text()
    memory = int(status.partition("VmRSS:")[2].split()[0])
    return memory, len(os.listdir(f"/proc/{process}/fd"))


@pytest.mark.timeout(SECONDS + 1_200)
async def test_200_clients_for_ten_minutes_with_a_kill_in_the_middle(tmp_path: Path) -> None:
    async def answer(_: ServerRequest) -> str:
        await asyncio.sleep(MODEL_SECONDS)
        return "Done."

    token = make_token(tmp_path)
    flags = ("--parallel", "64", "--parallel-owner", "64")
    connector = aiohttp.TCPConnector(limit=0)
    began = time.monotonic()
    async with ModelServer(answer) as model, aiohttp.ClientSession(connector=connector) as http:
        async with start_server(tmp_path, model.url, *flags) as (process, url):
            client = Client(http, url, token)
            clients = [SoakClient(client, number) for number in range(CLIENTS)]
            for each in clients:
                await each.create()
            following = [asyncio.create_task(each.follow()) for each in clients]
            sending = [asyncio.create_task(each.send_prompts(began + SECONDS)) for each in clients]
            await asyncio.sleep(SECONDS / 2)
            process.kill()
            await process.wait()
            killed = time.time()
        port = int(url.rpartition(":")[2])
        async with start_server(tmp_path, model.url, *flags, port=port) as (process, _):
            await asyncio.sleep(SECONDS / 8)
            before = read_size(process.pid)
            await asyncio.gather(*sending)
            after = read_size(process.pid)
            with suppress(TimeoutError):
                await wait_until(lambda: all(each.ended == each.prompts for each in clients))
            assert [task.exception() for task in following if task.done()] == []
            assert [
                (await client.get(f"/v1/sessions/{each.session}"), each.prompts, each.ended)
                for each in clients
                if each.ended != each.prompts
            ] == []
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)
            for each in clients:
                check_whole(each.messages, await list_cursors(client, each.session))
    delays = sorted(
        delay
        for each in clients
        for at, delay in each.delays
        if not killed - 1 < at < killed + DISTURBED_SECONDS
    )
    assert delays
    p99 = delays[int(len(delays) * 0.99)]
    print(
        f"{CLIENTS} clients, {sum(each.prompts for each in clients)} prompts: delay of an event "
        f"{statistics.median(delays):.3f} s, p99 {p99:.3f} s; memory {before[0]:,} and "
        f"{after[0]:,} KiB, files {before[1]} and {after[1]}"
    )
    assert p99 <= 0.25
    assert after[0] <= 1.25 * before[0]
    assert after[1] <= before[1] + CLIENTS  # sessions that are open at this moment have files
