"""A measured run of a session, and the process around it: what several subjects share."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from mudroom import Children, Session
from mudroom._platform.own_process import collect_garbage_less_often


def prepare_process() -> None:
    """Let this process open as many files as it may, and collect garbage as the program does."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    collect_garbage_less_often()


@asynccontextmanager
async def open_session(url: str, folder: str, prompt: str, worker: str) -> AsyncGenerator[Session]:
    """Open a session for a prompt of the model server; all of its children run at once."""
    children, turns = (int(part) for part in prompt.split(":")[3:5])
    os.environ |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none"}
    async with Session(
        model="anthropic:bench",
        cwd=folder,
        children=Children(turns=turns + 2, parallel=children),
        worker=worker,
    ) as session:
        yield session


async def measure_run(session: Session, prompt: str) -> dict[str, object]:
    """Run a prompt. Return its text, its seconds, and the CPU seconds and the peak of this process.

    The peak is in KiB.
    """
    cpu = time.process_time()
    wall = time.perf_counter()
    report = await session.run(prompt)
    return {
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "text": report.text,
    }
