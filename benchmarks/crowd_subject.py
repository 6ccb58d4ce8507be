"""One measured process with thousands of children: `python -m benchmarks.crowd_subject ...`

The arguments are those of `benchmarks.subject`. It also prints how late the event loop is: `lag`,
the 99th percentile of the delay of a timer, in seconds; `busy`, the same of the CPU time between
two timers; and `collecting`, the CPU seconds of the garbage collector.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sys
import time

from benchmarks.subject import measure
from mudroom._platform.own_process import collect_garbage_less_often

_SAMPLE_SECONDS = 0.01


class LagSampler:
    """Samples of the lag of the event loop."""

    def __init__(self) -> None:
        self.lags: list[float] = []
        self.busy: list[float] = []
        self.collecting = 0.0
        self._collection_start = 0.0

    async def sample(self) -> None:
        """Sample until cancelled."""
        while True:
            wall, cpu = time.perf_counter(), time.thread_time()
            await asyncio.sleep(_SAMPLE_SECONDS)
            self.lags.append(time.perf_counter() - wall - _SAMPLE_SECONDS)
            self.busy.append(time.thread_time() - cpu)

    def observe_collection(self, phase: str, info: dict[str, int]) -> None:
        """Add the time of a garbage collection (a callback of `gc`)."""
        if phase == "start":
            self._collection_start = time.thread_time()
        else:
            self.collecting += time.thread_time() - self._collection_start


def find_percentile(values: list[float]) -> float:
    """Return the 99th percentile of values."""
    return sorted(values)[int(len(values) * 0.99)]


async def _main() -> dict[str, object]:
    sampler = LagSampler()
    gc.callbacks.append(sampler.observe_collection)
    sampling = asyncio.create_task(sampler.sample())
    figures = await measure(*sys.argv[1:])
    sampling.cancel()
    figures |= {
        "lag": find_percentile(sampler.lags),
        "busy": find_percentile(sampler.busy),
        "collecting": sampler.collecting,
    }
    return figures


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    collect_garbage_less_often()
    print(json.dumps(asyncio.run(_main())))
