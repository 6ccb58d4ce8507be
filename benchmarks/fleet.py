"""Children on two Ray workers against the same children in one process.

    scripts/fleet --scale [CHILDREN [MILLISECONDS]]

MILLISECONDS is the range of the times before an answer, as 5000-25000. Each child has three turns
with a tool call and one more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from .processes import Bench, Figures

_TURNS = 3
_MOST_WALL = 1.15
"""Goal of the wall time on Ray, relative to one process."""
_MOST_RAY = 50.0
"""Goal of the Ray process's CPU time, in microseconds per child."""

_MOST_MEMORY = 1.3
"""Goal of the memory of all processes, relative to one process. On Ray _RAY_MEMORY is added."""
_RAY_MEMORY = 600e6


def measure_memory(run: Figures) -> float:
    """Return the peak bytes of the session's, the Ray process's and the worker processes, added."""
    return 1_024 * (run.peak + run.ray_peak + run.workers_peak)


def _measure(bench: Bench, which: str, children: int, delay: str) -> Figures:
    return bench.run(which, children, _TURNS, delay, module="benchmarks.fleet_subject")


def main(children: int, delay: str) -> int:
    """Measure, print the figures side by side, and return 1 if a goal is missed."""
    with Bench() as bench:
        alone = {which: _measure(bench, which, 1, "10-20") for which in ("local", "ray")}
        runs = {which: _measure(bench, which, children, delay) for which in ("local", "ray")}
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{children:,} children of {_TURNS} turns, answers after {delay} ms, load {load}")
    figures: dict[str, Callable[[str], float]] = {
        "wall, s": lambda which: runs[which].wall,
        "CPU of the session's process, us per child": lambda which: (
            1e6 * runs[which].cpu / children
        ),
        "CPU of the Ray process, us per child": lambda which: (
            1e6 * runs[which].ray_process / children
        ),
        "CPU of the worker processes, us per child": lambda which: (
            1e6 * runs[which].workers / children
        ),
        "lag of the session's event loop, p99, ms": lambda which: 1e3 * runs[which].lag,
        "memory of the session's process, KiB per child": lambda which: (
            (runs[which].peak - alone[which].peak) / children
        ),
        "memory of the Ray process, KiB per child": lambda which: (
            (runs[which].ray_peak - alone[which].ray_peak) / children
        ),
        "memory of the worker processes, KiB per child": lambda which: (
            (runs[which].workers_peak - alone[which].workers_peak) / children
        ),
        "memory of the session's process, MB": lambda which: runs[which].peak * 1_024 / 1e6,
        "memory of the Ray process and worker processes, MB": lambda which: (
            (runs[which].ray_peak + runs[which].workers_peak) * 1_024 / 1e6
        ),
        "memory of all these processes, MB": lambda which: measure_memory(runs[which]) / 1e6,
        "most requests at the same time": lambda which: runs[which].most,
    }
    print(f"{'':<50} {'local':>10} {'ray:2':>10}")
    for name, get in figures.items():
        print(f"{name:<50} {get('local'):>10,.2f} {get('ray'):>10,.2f}")
    ratio = runs["ray"].wall / runs["local"].wall
    ray_process = 1e6 * runs["ray"].ray_process / children
    print(f"wall on Ray / local: {ratio:.2f} (goal {_MOST_WALL})")
    print(f"CPU of the Ray process: {ray_process:.0f} us per child (goal {_MOST_RAY:.0f})")
    memory = measure_memory(runs["ray"])
    most = _MOST_MEMORY * measure_memory(runs["local"]) + _RAY_MEMORY
    print(f"memory on Ray: {memory / 1e6:,.0f} MB (goal {most / 1e6:,.0f})")
    return int(ratio > _MOST_WALL or ray_process > _MOST_RAY or memory > most)


if __name__ == "__main__":
    _, number, milliseconds, *_ = [*sys.argv, "", ""]
    sys.exit(main(int(number or 10_000), milliseconds or "5000-25000"))
