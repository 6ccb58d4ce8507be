"""Soak: 200 clients for ten minutes; delays, leaks, gaps.

The server is killed in the middle. Before and after that, a worker process stops with children in
it: they continue in another one, and no other client waits for them.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import time
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from tests.waiting import is_alive, wait_until

from mudroom._core.messages import ToolCallBlock
from mudroom._core.runs import is_child_id
from mudroom.testing import ModelServer, ServerRequest
from mudroom.testing.model_server import ServerAnswer

from .conftest import Client, Line
from .program import check_whole, list_cursors, list_workers, make_token, start_server

pytestmark = [
    pytest.mark.skipif(not os.environ.get("MUDROOM_LONG"), reason="it takes minutes"),
    pytest.mark.usefixtures("database_loop"),
]
CLIENTS = 200
SECONDS = float(os.environ.get("MUDROOM_SOAK_SECONDS", "600"))
PAUSE = 25.0
"""Mean seconds between two prompts of a client."""
MODEL_SECONDS = 0.3
CHILD_SHARE = 0.1
"""Share of the prompts whose work a child does, in a worker process."""
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
        kind = "Ask" if self._chance.random() < CHILD_SHARE else "Prompt"
        body = {"type": "user.message", "text": f"{kind} {self.prompts}."}
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
        is_end = message["event"] == "run_finished"
        self.ended += is_end and not is_child_id(message["data"]["run"])


def read_size(process: int) -> tuple[int, int]:
    """Return the memory of a process in KiB, and its open files."""
    status = Path(f"/proc/{process}/status").read_text()
    memory = int(status.partition("VmRSS:")[2].split()[0])
    return memory, len(os.listdir(f"/proc/{process}/fd"))


async def answer(request: ServerRequest) -> ServerAnswer:
    """Return the answer to a prompt, to the prompt of a child, or to a child's report."""
    await asyncio.sleep(MODEL_SECONDS)
    if "Ask" in str(request.messages[-1]["content"]):
        return [ToolCallBlock(f"t{len(request.messages)}", "task", {"prompt": "Work."})]
    return "Done."


async def stop_a_worker(folder: Path) -> int:
    """Stop a worker process at a moment at which it has children; return its id."""
    while True:
        for worker in await list_workers(folder):
            if worker["running"]:
                os.kill(worker["pid"], signal.SIGSTOP)
                return worker["pid"]
        await asyncio.sleep(0.02)


def check_children(events: list[tuple[str, Line]]) -> int:
    """Check that each child has reached its goal; return their number."""
    reports = [
        event["report"]
        for _, event in events
        if event["type"] == "run_finished" and is_child_id(event["run"])
    ]
    assert {report["reason"] for report in reports} <= {"GOAL"}
    return len(reports)


@pytest.mark.timeout(SECONDS + 1_200)
@pytest.mark.parametrize("store", ["files", "database"])
async def test_200_clients_with_a_kill_and_stuck_children(
    tmp_path: Path, postgres_url: str, store: str
) -> None:
    address = postgres_url if store == "database" else ""
    token = make_token(tmp_path, store=address)
    flags = ("--parallel", "64", "--parallel-owner", "64", "--worker", "process:2")
    flags += ("--store", address) if address else ()
    connector = aiohttp.TCPConnector(limit=0)
    began = time.monotonic()
    children = 0
    async with ModelServer(answer) as model, aiohttp.ClientSession(connector=connector) as http:
        async with start_server(tmp_path, model.url, *flags) as (process, url):
            client = Client(http, url, token)
            clients = [SoakClient(client, number) for number in range(CLIENTS)]
            for each in clients:
                await each.create()
            following = [asyncio.create_task(each.follow()) for each in clients]
            sending = [asyncio.create_task(each.send_prompts(began + SECONDS)) for each in clients]
            await asyncio.sleep(SECONDS / 4)
            stuck = [await stop_a_worker(tmp_path)]
            await asyncio.sleep(SECONDS / 4)
            process.kill()
            await process.wait()
            killed = time.time()
        port = int(url.rpartition(":")[2])
        async with start_server(tmp_path, model.url, *flags, port=port) as (process, _):
            await asyncio.sleep(SECONDS / 8)
            before = read_size(process.pid)
            stuck.append(await stop_a_worker(tmp_path))
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
            assert not any(map(is_alive, stuck))
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)
            for each in clients:
                recorded = await list_cursors(client, each.session)
                check_whole(each.messages, recorded)
                children += check_children(recorded)
    delays = sorted(
        delay
        for each in clients
        for at, delay in each.delays
        if not killed - 1 < at < killed + DISTURBED_SECONDS
    )
    assert delays and children
    p99 = delays[int(len(delays) * 0.99)]
    print(
        f"{store}: {CLIENTS} clients, {sum(each.prompts for each in clients)} prompts, {children} "
        f"children, delay of an event {statistics.median(delays):.3f} s, p99 {p99:.3f} s; memory "
        f"{before[0]:,} and {after[0]:,} KiB, files {before[1]} and {after[1]}"
    )
    assert p99 <= 0.25
    assert after[0] <= 1.25 * before[0]
    assert after[1] <= before[1] + CLIENTS  # sessions that are open at this moment have files
