"""Load: memory of idle sessions, and the delay of events in many streams."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from mudroom.testing import Request, call

from .conftest import MakeSite

pytestmark = pytest.mark.skipif(not os.environ.get("MUDROOM_LONG"), reason="it takes a minute")
STREAMS = 200
TURNS = 40


def read_memory() -> int:
    """Return the memory of this process in KiB."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


async def test_1000_idle_sessions_need_little_memory(make_site: MakeSite) -> None:
    async with make_site(["Done."]).connect() as client:
        first = await client.create(prompt="Go.")
        await client.finish(first["id"])
        before = read_memory()
        for _ in range(1_000):
            await client.create()
        used = read_memory() - before
        print(f"1,000 idle sessions: {used:,} KiB")
        assert used < 100 * 1024


@pytest.mark.timeout(600)
async def test_events_reach_200_streams_soon(make_site: MakeSite) -> None:
    opened = asyncio.Event()

    async def answer(request: Request) -> Any:
        await opened.wait()
        await asyncio.sleep(0.2)  # about 4 events for each turn, so 20 a second
        return call("read", path=f"f{request.number}.md") if request.turn < TURNS else "Done."

    async with make_site(answer).connect() as client:
        session = (await client.create(prompt="Go."))["id"]
        delays: list[float] = []

        async def follow() -> int:
            events = 0
            async with client.open_stream(session) as stream:
                async for message in stream:
                    if "id" not in message:
                        continue
                    events += 1
                    if message["event"] == "turn_finished":  # the others may be stored later
                        delays.append(time.time() - message["data"]["at"])
                    if message["event"] == "run_finished":
                        break
            return events

        cpu = time.process_time()
        following = [asyncio.create_task(follow()) for _ in range(STREAMS)]
        await asyncio.sleep(5)
        opened.set()
        counts = await asyncio.gather(*following)
        cpu = time.process_time() - cpu
        delays.sort()
        p95 = delays[int(len(delays) * 0.95)]
        print(
            f"{STREAMS} streams, {counts[0]} events each: delay {statistics.median(delays):.3f} s, "
            f"p95 {p95:.3f} s, {cpu:.1f} s of CPU with the clients"
        )
        assert len(set(counts)) == 1
        assert p95 <= 0.5
