"""One measured session: `python -m benchmarks.fleet_subject local|ray URL FOLDER PROMPT`.

It prints its cost as JSON. `main` has the CPU seconds of the thread with the event loop, `cpu`
those of the session's process, `ray_process` those of the process that is connected to Ray, and
`workers` those of the worker processes. `peak` and the like are in KiB. `lag` is as in
`benchmarks.crowd_subject`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.crowd_subject import LagSampler, find_percentile
from benchmarks.measured_run import measure_run, open_session, prepare_process
from mudroom import Session
from mudroom._adapters.workers.remote.worker import RemoteWorker

_ACTORS = 2
_TICKS = os.sysconf("SC_CLK_TCK")


def _read_cpu_time(pids: Sequence[int]) -> float:
    """Return the CPU seconds of processes."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS


def _read_peak(pids: Sequence[int]) -> float:
    """Return the highest memory of processes, in KiB each, added."""
    lines = [
        line
        for pid in pids
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmHWM:")
    ]
    return sum(float(line.split()[1]) for line in lines)


def _list_ray_process() -> list[int]:
    """Return the child processes of this process."""
    pid = os.getpid()
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _list_workers(session: Session) -> Sequence[int]:
    worker = session._require_open().resources.worker  # pyright: ignore[reportPrivateUsage]
    return worker.pids if isinstance(worker, RemoteWorker) else ()


async def _measure(which: str, url: str, folder: str, prompt: str) -> dict[str, object]:
    sampler = LagSampler()
    gc.callbacks.append(sampler.observe_collection)
    kind = f"ray:{_ACTORS}" if which == "ray" else "local"
    async with open_session(url, folder, prompt, kind) as session:
        workers, ray_process = _list_workers(session), _list_ray_process() if which == "ray" else []
        far = {"ray_process": _read_cpu_time(ray_process), "workers": _read_cpu_time(workers)}
        main = time.thread_time()
        sampling = asyncio.create_task(sampler.sample())
        figures = await measure_run(session, prompt)
        sampling.cancel()
        return figures | {
            "main": time.thread_time() - main,
            "ray_process": _read_cpu_time(ray_process) - far["ray_process"],
            "workers": _read_cpu_time(workers) - far["workers"],
            "ray_peak": _read_peak(ray_process),
            "workers_peak": _read_peak(workers),
            "lag": find_percentile(sampler.lags),
        }


if __name__ == "__main__":
    prepare_process()
    print(json.dumps(asyncio.run(_measure(*sys.argv[1:]))))
