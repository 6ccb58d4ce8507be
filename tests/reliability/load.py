"""A program that runs a session under load and prints figures as JSON.

python load.py children FOLDER COUNT SECONDS    a parent with COUNT children at the same time; the
                                                model takes up to SECONDS per answer
python load.py commands FOLDER COUNT            COUNT calls of bash in one run
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import resource
import sys
import time
from pathlib import Path

from mudroom import Budget, Children, Session
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call

TURNS = 3
AT_ONCE = 20


def measure_memory() -> float:
    """Return the memory of this process in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def count_children() -> int:
    """Count the child processes of this process, zombies included."""
    count = 0
    for process in Path("/proc").iterdir():
        try:
            count += (
                process.name.isdecimal()
                and int((process / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid()
            )
        except OSError:
            continue
    return count


async def record_lags(late: list[float], busy: list[float]) -> None:
    """Record the delay of the event loop in seconds, a hundred times a second.

    Arguments:
        late: gets the delays. busy: gets the part of each in which the loop itself used the
            processor: what other programs take on a busy machine is not the loop's delay.
    """
    while True:
        due, worked = time.perf_counter() + 0.01, time.thread_time()
        await asyncio.sleep(0.01)
        late.append(time.perf_counter() - due)
        busy.append(min(late[-1], time.thread_time() - worked))


def make_family(count: int, seconds: float) -> ScriptedModel:
    """Return a model for a parent that starts all children at once; each reads three times."""
    chance = random.Random(5)

    async def script(request: Request) -> Answer:
        if request.prompt == "PARENT":
            return (
                [call("task", prompt=f"CHILD {n}") for n in range(count)]
                if request.turn == 0
                else "All are done."
            )
        await asyncio.sleep(seconds * chance.uniform(0.2, 1.0))
        return (
            call("read", file_path="mud.txt", offset=request.turn + 1)
            if request.turn < TURNS
            else "A report of what I read."
        )

    return ScriptedModel(script)


def make_commands(count: int, memory: list[float]) -> ScriptedModel:
    """Return a model for one run that calls bash many times."""

    def script(request: Request) -> Answer:
        memory.append(measure_memory())
        done = request.turn * AT_ONCE
        calls = [call("bash", command=f"echo {done + n}; sleep 60 & true") for n in range(AT_ONCE)]
        return calls if done < count else "All are done."

    return ScriptedModel(script)


async def run(kind: str, folder: Path, count: int, seconds: float) -> dict[str, object]:
    """Measure the second of two runs: the first opens files that stay open."""
    await run_once(kind, folder, AT_ONCE, 0.1)
    before = count_resources()
    result = await run_once(kind, folder, count, seconds)
    gc.collect()
    return result | {name: now - before[name] for name, now in count_resources().items()}


def count_resources() -> dict[str, int]:
    """Count the tasks, files and processes that exist."""
    return {
        "tasks_left": len(asyncio.all_tasks()),
        "files_left": len(os.listdir("/proc/self/fd")),
        "processes_left": count_children(),
    }


async def run_once(kind: str, folder: Path, count: int, seconds: float) -> dict[str, object]:
    memory, late, busy = list[float](), list[float](), list[float]()
    model = make_family(count, seconds) if kind == "children" else make_commands(count, memory)
    model.requests = _CountOnly()  # pyright: ignore[reportAttributeAccessIssue]  a list of all requests would grow
    lag_recorder, began = asyncio.create_task(record_lags(late, busy)), time.perf_counter()
    budget = Budget(turns=count + 10)
    async with Session(
        model=model,
        cwd=str(folder),
        home=str(folder.parent / "home"),
        children=Children(parallel=count),
        budget=budget,
    ) as session:
        report = await session.run("PARENT")
        memory.append(measure_memory())
    lag_recorder.cancel()
    await asyncio.gather(lag_recorder, return_exceptions=True)
    late.sort()
    busy.sort()
    return {
        "text": report.text,
        "failed": report.failed,
        "seconds": round(time.perf_counter() - began, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
        "memory": [round(figure, 1) for figure in memory[:: max(1, len(memory) // 20)]],
        "lag_p99_ms": round(late[len(late) * 99 // 100] * 1e3, 1),
        "lag_max_ms": round(late[-1] * 1e3, 1),
        "busy_p99_ms": round(busy[len(busy) * 99 // 100] * 1e3, 1),
    }


class _CountOnly(list[Request]):
    """A list that counts its items and does not keep them."""

    _count = 0

    def append(self, item: Request) -> None:
        self._count += 1

    def __len__(self) -> int:
        return self._count


if __name__ == "__main__":
    work = Path(sys.argv[2], "work")
    work.mkdir(parents=True)
    (work / "mud.txt").write_text(
        "a line of mud, as long as lines are in the books that people write\n" * 120
    )
    print(
        json.dumps(
            asyncio.run(
                run(
                    sys.argv[1],
                    work,
                    int(sys.argv[3]),
                    float(sys.argv[4]) if len(sys.argv) > 4 else 0.0,
                )
            )
        )
    )
