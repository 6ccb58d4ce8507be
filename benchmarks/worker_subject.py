"""One measured session with tasks: `python -m benchmarks.worker_subject WHAT WHICH URL FOLDER ...`.

    memory WHICH URL FOLDER FEW MANY   memory of tasks that wait for their first answer
    cpu WHICH URL FOLDER TASKS TURNS   processor time of tasks with TURNS calls of `read`

WHICH is "local", or "processes" for two worker processes. It prints its figures as JSON. `few` and
`many` are the bytes of Python objects in the session's process with so many tasks. `cpu` has the
processor seconds of the session's process and of the worker processes, their starts included.

To count instructions, run it with
`valgrind --tool=cachegrind --cache-sim=no --trace-children=yes --cachegrind-out-file=FILE.%p`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import sys
import tracemalloc
import urllib.request

from mudroom import Children, Session
from mudroom._platform.own_process import collect_garbage_less_often

_NO_ANSWER = 3_600_000
"""Milliseconds before an answer that does not come."""
_AT_ONCE = 64
"""Tasks that work at the same time, where their processor time is measured."""
_POLL_SECONDS = 0.2


def _open(which: str, url: str, folder: str, children: int) -> Session:
    return Session(
        model="anthropic:bench",
        cwd=folder,
        home=folder,
        environ={**os.environ, "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none"},
        children=Children(parallel=children),
        sandbox="off",
        worker="process:2" if which == "processes" else "local",
    )


def _read_requests(url: str, run: str) -> int:
    with urllib.request.urlopen(f"{url}/{run}") as response:
        seen = json.load(response)
    return seen["requests"] if seen else 0


async def _wait_for_requests(url: str, run: str, count: int) -> None:
    """Wait until the model server has so many requests of a run."""
    while await asyncio.to_thread(_read_requests, url, run) < count:  # noqa: ASYNC110
        await asyncio.sleep(_POLL_SECONDS)


def _read_memory() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def _measure_memory(
    which: str, url: str, folder: str, few: str, many: str
) -> dict[str, float]:
    run = f"wait{os.getpid()}"
    sizes: list[int] = []
    tasks: list[asyncio.Task[object]] = []
    async with _open(which, url, folder, int(many)) as session:
        await session.task("bench:warm:0:1:0:0:0:0:read")  # starts the worker processes
        tracemalloc.start()
        for count in (int(few), int(many)):
            for number in range(len(tasks), count):
                prompt = f"bench:{run}:{number}:1:0:{_NO_ANSWER}:0:0:read"
                tasks.append(asyncio.create_task(session.task(prompt)))
            await _wait_for_requests(url, run, count)
            sizes.append(_read_memory())
        tracemalloc.stop()
        session.runs.cancel()
        await asyncio.gather(*tasks)
    return {"few": sizes[0], "many": sizes[1]}


async def _measure_cpu(
    which: str, url: str, folder: str, tasks: str, turns: str
) -> dict[str, float]:
    run = f"cpu{os.getpid()}"
    async with _open(which, url, folder, _AT_ONCE) as session:
        prompts = [f"bench:{run}:{each}:1:{turns}:0:0:0:read" for each in range(int(tasks))]
        reports = await session.map(prompts)
        assert all(report.ok for report in reports), reports
    own = resource.getrusage(resource.RUSAGE_SELF)
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"cpu": own.ru_utime + own.ru_stime + workers.ru_utime + workers.ru_stime}


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    collect_garbage_less_often()
    _, what, *arguments = sys.argv
    measure = _measure_memory if what == "memory" else _measure_cpu
    print(json.dumps(asyncio.run(measure(*arguments))))
