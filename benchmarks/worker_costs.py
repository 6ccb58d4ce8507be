"""Figures of tasks in two worker processes, beside the same tasks in one process."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from .processes import SHORT_RUNS, Bench
from .rounds import compare, measure_in_turn
from .rows import Row

_HERE = Path(__file__).resolve().parent.parent
_WAITING = (1_000, 3_000)
_TASKS = (200, 1_200)
_SUBJECTS = ("processes", "local")


def measure_worker_costs(bench: Bench, times: int) -> Iterator[Row]:
    """Measure memory and processor time of tasks, with all processes added."""
    few, many = _WAITING
    sizes: dict[str, float] = {}
    for which in _SUBJECTS:
        run = _run(bench, "memory", which, few, many)
        sizes[which] = (run["many"] - run["few"]) / (many - few) / 1_024
    name = "memory of a task that waits in a worker process"
    yield Row(name, "KiB", sizes["processes"], 8, 4, sizes["local"])
    for turns, requests in ((0, "one request"), (3, "four requests")):
        costs = measure_in_turn(
            _SUBJECTS,
            SHORT_RUNS * times,
            lambda which, turns=turns: _measure_cpu(bench, which, turns),
        )
        two, one = compare(*costs)
        name = f"CPU of a task with {requests}, 2 worker processes / 1 process"
        yield Row(name, "×", two / one, 1.75, 1.25)


def _measure_cpu(bench: Bench, which: str, turns: int) -> float:
    """Return the CPU seconds of one more task."""
    few, many = (_run(bench, "cpu", which, tasks, turns)["cpu"] for tasks in _TASKS)
    return (many - few) / (_TASKS[1] - _TASKS[0])


def _run(bench: Bench, what: str, which: str, *numbers: int) -> dict[str, float]:
    """Return the figures of one measured session."""
    with TemporaryDirectory(prefix="mudroom-bench-") as folder:
        shutil.copytree(bench.folder, folder, dirs_exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "benchmarks.worker_subject",
            what,
            which,
            bench.url,
            folder,
        ]
        ended = subprocess.run(
            [*command, *map(str, numbers)],
            stdout=subprocess.PIPE,
            cwd=_HERE,
            env=bench.make_environ(),
            check=True,
        )
        return json.loads(ended.stdout)
