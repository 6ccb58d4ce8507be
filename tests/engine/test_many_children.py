"""Work for a turn and for each child: little, and it does not grow with their number.

The tests count calls of functions, which does not depend on the speed of the machine.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.engine.conftest import Lines, Stage

from mudroom import Agent, Budget, Children, Effect, Usage, tool
from mudroom._core.budgets import Limit
from mudroom._core.events import RunFinished, SessionClosed, StoredEvent, ToolCallFinished
from mudroom._core.messages import ToolCallBlock
from mudroom._engine.conversation import RunTurn
from mudroom._engine.meters.meter import Meter
from mudroom._engine.meters.request_gate import Meters
from mudroom._engine.run_context import RunContext
from mudroom.errors import BudgetExceeded
from mudroom.testing import Answer, MemoryJournal, Request, call

SHARE = Budget(turns=5, input_tokens=10, output_tokens=10, total_tokens=20, usd=0.001)


MAX_CALLS_PER_RESUMED_CHILD = {"reported": 119, "finished": 472, "interrupted": 960}
"""Calls for one child when the run of its parent continues in another process."""

MAX_CALLS_PER_TURN = 185
"""Calls of one turn with one call of `read`. Raise it only for something that every turn needs."""

TURN_FOLDERS = frozenset({"_engine", "journals", "permissions", "tools", "workers", "workspaces"})

MISSING_EVENTS: dict[str, tuple[type[StoredEvent], ...]] = {
    "reported": (),
    "finished": (ToolCallFinished,),
    "interrupted": (ToolCallFinished, RunFinished),
}
"""Events of the children that a cut record lacks, by what the children have done."""


class CallCounter:
    """Number of function calls inside a `with` block.

    Arguments:
        folders: if given, only calls of Python functions in these folders count.
    """

    def __init__(self, folders: frozenset[str] = frozenset()) -> None:
        self.count = 0
        self._folders = folders

    def __enter__(self) -> CallCounter:
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        if not self._folders:
            self.count += event in ("call", "c_call")
        elif event == "call":
            self.count += not self._folders.isdisjoint(split_path(frame.f_code.co_filename))


@cache
def split_path(path: str) -> tuple[str, ...]:
    return Path(path).parts


async def count_calls_of_turns(stage: Stage, turns: int) -> int:
    """Return the calls of functions in a run that reads a file in each turn."""
    reads = [[call("read", file_path="notes.txt", offset=n + 1)] for n in range(turns)]
    async with stage.open([*reads, "done"]) as session:
        with CallCounter(TURN_FOLDERS) as counter:
            report = await session.run("PARENT")
    assert report.ok and report.turns == turns + 1
    return counter.count


async def test_a_turn_without_limits_and_watchers_takes_few_calls(stage: Stage) -> None:
    await count_calls_of_turns(stage, 2)  # fills caches, and imports modules
    few = await count_calls_of_turns(stage, 2)
    many = await count_calls_of_turns(stage, 12)
    assert (many - few) / 10 <= MAX_CALLS_PER_TURN


async def count_calls_to_reserve(children: int) -> int:
    meters = Meters()
    everything = Budget(input_tokens=10**9, output_tokens=10**9, total_tokens=10**9, usd=1e6)
    root = meters.get(meters.open("1", everything))
    with CallCounter() as counter:
        grants = [await meters.allocate(root, f"1.1.{n}", SHARE, 0.0) for n in range(children)]
        for grant in grants:
            meters.get(grant).charge(Usage(3, 2), 0.0001)
        for grant in grants:
            meters.close(grant)
    assert root.compute_amount_left(Limit.TOTAL_TOKENS) == 10**9 - 5 * children
    return counter.count


async def test_reserving_budgets_takes_linear_time() -> None:
    assert await count_calls_to_reserve(2_000) < 4.4 * await count_calls_to_reserve(500)


def delegate(children: int) -> Callable[[Request], Answer]:
    """Return a model whose first answer starts this many children with limits of their own."""

    def answer(request: Request) -> Answer:
        if request.prompt == "PARENT" and not request.turn:
            return [call("task", prompt=f"child {n}", agent="small") for n in range(children)]
        return "done"

    return answer


async def count_calls_to_resume(stage: Stage, children: int, state: str) -> int:
    """Count the calls of a resume when the parent was interrupted.

    Arguments:
        state: what the children have done, a key of `MISSING_EVENTS`.
    """
    small = Agent(name="small", budget=SHARE)
    options: dict[str, Any] = {"agents": [small], "worker": "local"}
    options["children"] = Children(parallel=10**6)
    recorded = MemoryJournal()
    async with stage.open(delegate(children), journal=recorded, **options) as session:
        await session.run("PARENT")
    journal = MemoryJournal()
    for event in recorded.events:
        is_end = event.run == "1" and (isinstance(event, RunFinished) or event.turn > 1)
        if not is_end and not isinstance(event, (*MISSING_EVENTS[state], SessionClosed)):
            await journal.append(event)
    options |= {"journal": journal, "resume": session.id}
    with CallCounter(frozenset({"mudroom"})) as counter:
        async with stage.open(delegate(children), **options) as session:
            report = await session.resume_unfinished()
    assert report and report.ok and report.calls == {"task": children}
    assert len(stage.model.requests) == 1, "no answer is bought twice"
    return counter.count


@pytest.mark.parametrize("state", MISSING_EVENTS)
async def test_resuming_takes_linear_time_and_few_calls(state: str, stage: Stage) -> None:
    many = await count_calls_to_resume(stage, 400, state)
    few = await count_calls_to_resume(stage, 100, state)
    assert many < 4.4 * few
    assert (many - few) / 300 <= MAX_CALLS_PER_RESUMED_CHILD[state]


def measure_restore(count: int) -> float:
    calls = [ToolCallBlock(f"c{number}", "task", {}) for number in range(count)]
    turn = RunTurn(1, calls)
    gc.disable()  # a collection looks at all objects of the test process
    try:
        started_at = time.process_time()
        for one in calls:
            turn.restore_start(one)
        return time.process_time() - started_at
    finally:
        gc.enable()


def test_restoring_calls_takes_linear_time() -> None:
    few = min(measure_restore(20_000) for _ in range(5))
    many = min(measure_restore(80_000) for _ in range(5))
    # The larger number may not fit the processor's caches; quadratic time would take seconds.
    assert many < max(10 * few, 0.1), "4 times the calls; quadratic time is 16 times as long"


def test_a_child_may_spend_what_is_reserved_for_it_on_its_own_children() -> None:
    root = Meter(Budget(total_tokens=100))
    lead = root.allocate(Budget(total_tokens=80))
    helper = lead.allocate(Budget(total_tokens=50))
    helper.charge(Usage(20, 20))
    assert (
        lead.compute_amount_left(Limit.TOTAL_TOKENS),
        helper.compute_amount_left(Limit.TOTAL_TOKENS),
    ) == (
        30,
        10,
    )
    with pytest.raises(BudgetExceeded, match="total_tokens: 21 requested, 20 left"):
        root.allocate(Budget(total_tokens=21))
    helper.release()
    lead.release()
    assert root.compute_amount_left(Limit.TOTAL_TOKENS) == 60


def list_kept_children() -> list[str]:
    """Return the ids of the children whose objects are in memory."""
    runs = [each for each in gc.get_objects() if isinstance(each, RunContext)]
    return [run.run_id for run in runs if run.brief.parent]


READS = [[call("read", file_path="notes.txt")], "done"]
WRITES = [[call("read", file_path="notes.txt"), call("write", path="new.txt", content="a")], "done"]
CHILDREN: dict[str, tuple[Lines, dict[str, Any]]] = {
    "it reads and writes": (WRITES, {}),
    "a call fails": ([[call("read", file_path="none.txt")], "done"], {}),
    "its turns are used up": (READS[:1], {"max_turns": 1}),
    "background": (READS, {"background": True}),
    "named": (READS, {"name": "ann"}),
}


@pytest.mark.parametrize("child", CHILDREN)
async def test_a_child_that_has_ended_keeps_no_memory(stage: Stage, child: str) -> None:
    lines, arguments = CHILDREN[child]

    async def wait(request: Request) -> str:
        await stage.wait_until(lambda: "1.1.2" in stage.reports)
        # The thread of a write may hold its call a moment longer.
        await stage.wait_until(lambda: not list_kept_children())
        return "done"

    tasks = [call("task", prompt="CHILD", **arguments), call("task", prompt="CHILD")]
    gc.collect()
    gc.disable()
    try:
        report = await stage.run({"PARENT": [tasks, wait], "CHILD": lines})
    finally:
        gc.enable()
    assert report.ok
    assert len(stage.runs) == 3


async def count_calls_of_children(stage: Stage, children: int) -> int:
    """Return the function calls of a run with children that answer at once."""
    tasks = [call("task", prompt=f"CHILD {number}") for number in range(children)]
    async with stage.open({"PARENT": [tasks, "done"], "CHILD": ["done"]}) as session:
        with CallCounter() as counter:
            report = await session.run("PARENT")
    assert report.ok
    return counter.count


async def test_starting_and_ending_a_child_takes_few_calls(stage: Stage) -> None:
    await count_calls_of_children(stage, 2)  # fills caches, and imports modules
    few = await count_calls_of_children(stage, 10)
    many = await count_calls_of_children(stage, 60)
    assert (many - few) / 50 <= 1_400


async def test_other_tasks_run_while_the_calls_of_one_answer_start(stage: Stage) -> None:
    started = 0
    steps: list[int] = []

    @tool(effect=Effect.PURE)
    async def count(number: int) -> str:
        nonlocal started
        started += 1
        return str(number)

    async def watch_starts() -> None:
        while True:
            before = started
            await asyncio.sleep(0)
            steps.append(started - before)

    watching = asyncio.create_task(watch_starts())
    await stage.run([[call("count", number=n) for n in range(320)], "end"], tools=[count])
    watching.cancel()
    assert sum(steps) == 320
    assert max(steps) <= 32
