"""Figures of sessions with ten thousand children: reserving their budgets, and continuing later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any

from mudroom import Agent, Budget, Children, Session
from mudroom._engine.meters.meter import Meter
from mudroom.events import RunFinished, SessionClosed
from mudroom.testing import Answer, MemoryJournal, Request, ScriptedModel, call

from .processes import SHORT_RUNS, Bench
from .rounds import compare, measure_in_turn
from .rows import Row

_FEW = 1_000
_MANY = 10_000
_ALL = Budget(output_tokens=10**9, total_tokens=10**9, usd=1e6)
_SHARE = Budget(output_tokens=500, total_tokens=1_000, usd=0.5)
_MAX_RUNS = 3
"""Each run records a session with ten thousand children first."""


def measure_reserving(_: Bench, times: int) -> Iterator[Row]:
    """Measure the CPU time to reserve the budget of one child, with three shared limits."""
    costs = measure_in_turn(
        (_MANY, _FEW), SHORT_RUNS * times, lambda children: _reserve(children) / children
    )
    many, few = compare(*costs)
    yield Row("CPU to reserve a budget, 10,000 children", "us", 1e6 * many, 50)
    yield Row("the same at 10,000 children / at 1,000", "×", many / few, 1.5, 1.0)


def _reserve(children: int) -> float:
    root = Meter(_ALL)
    start = time.process_time()
    for _ in range(children):
        root.allocate(_SHARE)
    return time.process_time() - start


def measure_resuming(_: Bench, times: int) -> Iterator[Row]:
    """Measure the CPU time to continue a session whose parent was interrupted at its end."""
    costs = measure_in_turn(
        (_MANY, _FEW), min(times, _MAX_RUNS), lambda children: asyncio.run(_resume(children))
    )
    many, few = compare(*costs)
    yield Row("CPU to continue with 10,000 finished children", "s", many, 1.0)
    yield Row("the same, a child, at 10,000 / at 1,000", "×", many / few * _FEW / _MANY, 1.5, 1.0)


async def _resume(children: int) -> float:
    def answer(request: Request) -> Answer:
        if request.prompt == "PARENT" and not request.turn:
            return [call("task", prompt=f"CHILD {n}", agent="small") for n in range(children)]
        return "done"

    recorded = MemoryJournal()
    journal = MemoryJournal()
    with TemporaryDirectory(prefix="mudroom-bench-") as folder:
        options: dict[str, Any] = {
            "model": ScriptedModel(answer),
            "agents": [Agent(name="small", budget=_SHARE)],
            "children": Children(parallel=children),
            "cwd": folder,
            "home": folder,
            "environ": {},
        }
        async with Session(journal=recorded, **options) as session:
            await session.run("PARENT")
        async for event in recorded.read():
            is_end = event.run == "1" and (isinstance(event, RunFinished) or event.turn > 1)
            if not (is_end or isinstance(event, SessionClosed)):
                await journal.append(event)
        start = time.process_time()
        async with Session(journal=journal, resume=session.id, **options) as session:
            await session.resume_unfinished()
        return time.process_time() - start
