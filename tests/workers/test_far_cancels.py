"""C8: a cancel is a barrier for children in worker processes, too.

No effect happens after the report of a cancelled run, and no process of it remains. The short form
cancels 12 runs, MUDROOM_LONG=1 five hundred. A worker process that cannot be reached is stopped by
its lease; see `test_fences`.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest
from tests.reliability.test_cancel import find_processes

from mudroom import Reason
from mudroom.testing import Answer, MemoryJournal, Request, ScriptedModel, call
from mudroom.testing.invariants import find_violations

from ..worker_kinds import RAY, open_session

RUNS = 500 if os.environ.get("MUDROOM_LONG") else 12
POLLS = 100
"""A look at all processes every 0.02 s: 2 seconds, more when the machine is busy."""


def make_script(mark: str) -> ScriptedModel:
    """Return a model for parents of two children, each with commands, processes and writes."""

    def answer(request: Request) -> Answer:
        if "Again." in str(request.messages[-1]):
            return "I continue."
        if request.prompt.startswith("PARENT"):
            number = len(request.messages)
            return [call("task", prompt=f"CHILD {number}-{name}") for name in "ab"]
        name = f"{request.prompt.split()[-1]}-{request.turn}"
        command = f": {mark}; (sleep 60 & setsid sleep 60 &); echo {name} >> log; sleep 0.02"
        return [
            call("write", path=f"{name}.txt", content=name),
            call("bash", command=f"{command}; echo {name} >> log"),
        ]

    return ScriptedModel(answer)


def read_effects(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.glob("*") if path.is_file()}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("worker", ["process:1", RAY])
async def test_c8_a_cancel_is_a_barrier_for_children_in_worker_processes(
    worker: str, tmp_path: Path
) -> None:
    chance = random.Random(8)
    mark = f"mark-{os.getpid()}-far"
    journal = MemoryJournal()
    async with open_session(tmp_path, make_script(mark), worker, journal=journal) as session:
        for number in range(RUNS):
            running = asyncio.create_task(session.run(f"PARENT {number}"))
            await asyncio.sleep(chance.choice((0.0, 0.1, 0.3)) + chance.random() * 0.1)
            session.runs.cancel()
            report = await running
            effects = read_effects(tmp_path)
            assert report.reason is Reason.CANCELLED
            for _ in range(POLLS):
                if not find_processes(mark):
                    break
                await asyncio.sleep(0.02)
            assert find_processes(mark) == []
            assert read_effects(tmp_path) == effects, f"an effect after cancel {number}"
        assert (await session.run("Again.")).text == "I continue."
    assert find_violations(journal.events) == []
