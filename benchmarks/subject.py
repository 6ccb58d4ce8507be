"""One measured process: `python -m benchmarks.subject mudroom|memory|floor URL FOLDER PROMPT`.

It prints its cost as JSON. CPU and wall time are those of the run alone, after imports and set-up;
the peak of memory is that of the process. With BENCH_PROFILE=FILE it writes a cProfile of the run.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import os
import resource
import sys
import time
from contextlib import AsyncExitStack

from mudroom import Children


def _read_cpu_time() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


async def measure(which: str, url: str, folder: str, prompt: str) -> dict[str, object]:
    """Run a subject and return its cost."""
    children, turns = (int(part) for part in prompt.split(":")[3:5])
    async with AsyncExitStack() as stack:
        if which == "floor":
            from benchmarks.floor import Floor

            subject = Floor(url, folder)
        else:
            os.environ |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none"}
            from mudroom import Session

            subject = await stack.enter_async_context(
                Session(
                    model="anthropic:bench",
                    cwd=folder,
                    children=Children(turns=turns + 2, parallel=max(64, children)),
                    worker="process:2" if which == "processes" else "local",
                    journal="memory" if which == "memory" else "sqlite",
                )
            )
        cpu, wall = _read_cpu_time(), time.perf_counter()
        report = await subject.run(prompt)
        cpu, wall = _read_cpu_time() - cpu, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"cpu": cpu, "wall": wall, "peak": peak, "text": getattr(report, "text", report)}


def _main() -> None:
    profile = cProfile.Profile() if os.environ.get("BENCH_PROFILE") else None
    figures = (
        profile.runcall(asyncio.run, measure(*sys.argv[1:]))
        if profile
        else asyncio.run(measure(*sys.argv[1:]))
    )
    if profile:
        profile.dump_stats(os.environ["BENCH_PROFILE"])
    print(json.dumps(figures))


if __name__ == "__main__":
    _main()
