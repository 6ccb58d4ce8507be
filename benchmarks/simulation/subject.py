"""One measured process: `python -m benchmarks.simulation.subject WHICH URL FOLDER PROMPT`.

WHICH is "mudroom", or "processes" for two worker processes. It prints its cost as JSON. `cpu` has
the CPU seconds of the process, and `workers` those of the worker processes. `main` has the seconds
for which the event loop worked, and `waiting` those of them in which its thread had no processor,
because other programs had them.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import selectors
import sys
import time

from benchmarks.measured_run import measure_run, open_session, prepare_process


class WorkTimer(selectors.DefaultSelector):
    """Selector of an event loop that measures how long the loop works. Create it in its thread."""

    def __init__(self) -> None:
        super().__init__()
        self._statistics = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self._idle = 0.0
        self._idle_waiting = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait as the base class does."""
        start = time.perf_counter()
        waiting = self._read_waiting()
        ready = super().select(timeout)
        self._idle_waiting += self._read_waiting() - waiting
        self._idle += time.perf_counter() - start
        return ready

    def read(self) -> tuple[float, float]:
        """Return the seconds of work, and those of them without a processor."""
        return time.perf_counter() - self._idle, self._read_waiting() - self._idle_waiting

    def _read_waiting(self) -> float:
        """Return the seconds in which the thread was ready and had no processor."""
        return int(os.pread(self._statistics, 100, 0).split()[1]) / 1e9


async def _measure(
    timer: WorkTimer, which: str, url: str, folder: str, prompt: str
) -> dict[str, object]:
    kind = "process:2" if which == "processes" else "local"
    async with open_session(url, folder, prompt, kind) as session:
        work, waiting = timer.read()
        figures = await measure_run(session, prompt)
        work_end, waiting_end = timer.read()
    # The worker processes have ended with the session.
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return figures | {
        "main": work_end - work,
        "waiting": waiting_end - waiting,
        "workers": ended.ru_utime + ended.ru_stime,
    }


if __name__ == "__main__":
    prepare_process()
    timer = WorkTimer()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(timer)) as runner:
        print(json.dumps(runner.run(_measure(timer, *sys.argv[1:]))))
