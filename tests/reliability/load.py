"""A program under load: many children at once, or many commands in a row. It prints JSON.

python load.py children FOLDER COUNT SECONDS    a parent with COUNT children, all alive at once; a
model that takes up to SECONDS
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

from mudroom import Budget, Session
from mudroom.models.scripted import Answer, Request, ScriptedModel, call

TURNS = 3
AT_ONCE = 20


def resident() -> float:
    """Memory of this process in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def descendants() -> int:
    """Processes whose parent is this one, zombies too."""
    found = 0
    for process in Path("/proc").iterdir():
        try:
            found += (
                process.name.isdecimal()
                and int((process / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid()
            )
        except OSError:
            continue
    return found


async def lags(into: list[float]) -> None:
    """How much too late the loop wakes a task, in seconds, a hundred times a second."""
    while True:
        due = time.perf_counter() + 0.01
        await asyncio.sleep(0.01)
        into.append(time.perf_counter() - due)


def family(count: int, seconds: float) -> ScriptedModel:
    """A parent that starts them all at once.

    Children that read, three times, and answer at their leisure.
    """
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


def commands(count: int, memory: list[float]) -> ScriptedModel:
    """One run that gives command after command."""

    def script(request: Request) -> Answer:
        memory.append(resident())
        done = request.turn * AT_ONCE
        calls = [call("bash", command=f"echo {done + n}; sleep 60 & true") for n in range(AT_ONCE)]
        return calls if done < count else "All are done."

    return ScriptedModel(script)


async def run(kind: str, folder: Path, count: int, seconds: float) -> dict[str, object]:
    """The second of two runs is measured: what the first one opened for good is no leak."""
    await once(kind, folder, AT_ONCE, 0.1)
    before = kept()
    found = await once(kind, folder, count, seconds)
    gc.collect()
    return found | {name: now - before[name] for name, now in kept().items()}


def kept() -> dict[str, int]:
    """What a run may not leave behind."""
    return {
        "tasks_left": len(asyncio.all_tasks()),
        "files_left": len(os.listdir("/proc/self/fd")),
        "processes_left": descendants(),
    }


async def once(kind: str, folder: Path, count: int, seconds: float) -> dict[str, object]:
    memory, late = list[float](), list[float]()
    model = family(count, seconds) if kind == "children" else commands(count, memory)
    model.requests = _Nothing()  # pyright: ignore[reportAttributeAccessIssue]  the record of all that was asked is not what is measured
    watching, began = asyncio.create_task(lags(late)), time.perf_counter()
    budget = Budget(turns=count + 10)
    async with Session(
        model=model,
        cwd=str(folder),
        home=str(folder.parent / "home"),
        max_children=count,
        budget=budget,
    ) as session:
        report = await session.run("PARENT")
        memory.append(resident())
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    late.sort()
    return {
        "text": report.text,
        "failed": report.failed,
        "seconds": round(time.perf_counter() - began, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
        "memory": [round(figure, 1) for figure in memory[:: max(1, len(memory) // 20)]],
        "lag_p99_ms": round(late[len(late) * 99 // 100] * 1e3, 1),
        "lag_max_ms": round(late[-1] * 1e3, 1),
    }


class _Nothing(list[Request]):
    """Counts, and keeps nothing."""

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
