"""Sessions that share two worker processes, beside sessions with two processes of their own.

    python -m benchmarks.shared_workers [SESSIONS]

Each session has two children that wait at the same time. Printed are, for each of the two ways, the
worker processes, their memory (resident, added), the wall time until all children wait, and the
wall time until all sessions are closed.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mudroom import Session, Workers
from mudroom._adapters.models.scripted import Request, ScriptedModel

_CHILDREN = 2


@asynccontextmanager
async def _share(worker: str) -> AsyncGenerator[dict[str, Any]]:
    async with Workers(worker) as workers:
        yield {"worker": workers}


@asynccontextmanager
async def _own(worker: str) -> AsyncGenerator[dict[str, Any]]:
    yield {"worker": worker}


def _list_workers() -> list[int]:
    """Return the ids of the worker processes of this program."""
    tasks = Path("/proc/self/task").iterdir()
    children = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
    return [
        pid for pid in children if b"worker_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def _read_memory(pid: int) -> int:
    """Return the resident bytes of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def _measure(name: str, options: dict[str, Any], sessions: int, folder: str) -> None:
    waiting = 0
    all_wait = asyncio.Event()
    go_on = asyncio.Event()

    async def answer(_: Request) -> str:
        nonlocal waiting
        waiting += 1
        if waiting == sessions * _CHILDREN:
            all_wait.set()
        await go_on.wait()
        return "done"

    start = time.perf_counter()
    async with AsyncExitStack() as stack:
        tasks: list[asyncio.Task[Any]] = []
        for _ in range(sessions):
            session = await stack.enter_async_context(
                Session(
                    model=ScriptedModel(answer),
                    cwd=folder,
                    home=f"{folder}/home",
                    sandbox="off",
                    **options,
                )
            )
            tasks += [asyncio.create_task(session.task("x")) for _ in range(_CHILDREN)]
        await all_wait.wait()
        started = time.perf_counter() - start
        pids = _list_workers()
        megabytes = sum(map(_read_memory, pids)) / 1e6
        go_on.set()
        await asyncio.gather(*tasks)
    seconds = time.perf_counter() - start
    print(
        f"{name}: {len(pids)} processes, {megabytes:.0f} MB, all children wait after "
        f"{started:.2f} s, all closed after {seconds:.2f} s",
        flush=True,
    )


async def main(sessions: int) -> None:
    """Measure both ways in turn, three times."""
    for _ in range(3):
        for name, way in (("own", _own), ("shared", _share)):
            with TemporaryDirectory(prefix="mudroom-bench-") as folder:
                async with way("process:2") as options:
                    await _measure(name, options, sessions, folder)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 16))
