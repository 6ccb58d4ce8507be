"""C3 and C8: a worker process that was cut off does nothing after its lease, whatever it was doing.

It is stopped in the moment at which the session has stored an event of it, another one takes its
runs over, and it is woken. The short form stops three, MUDROOM_LONG=1 a hundred and twenty.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.chaos.faults import find_late_effects
from tests.workers.far_place import get_worker
from tests.workers.test_ray import open_session

from mudroom import AnyEvent, Reason
from mudroom._adapters.workers.remote.worker_handle import WorkerHandle
from mudroom._core.events import RunFinished, RunStarted
from mudroom.testing import Answer, MemoryJournal, Request, ScriptedModel, call
from mudroom.testing.invariants import find_violations
from mudroom_fleet.actor import LEASE_SECONDS, MARGIN_SECONDS

from ..waiting import is_alive, wait_until
from ..worker_kinds import NEEDS_RAY

pytestmark = [*NEEDS_RAY, pytest.mark.timeout(300)]
ROUNDS = 40 if os.environ.get("MUDROOM_LONG") else 1
STOPS = 3
CHILDREN = 6
STEPS = 4
EVENTS = CHILDREN * STEPS * 4
"""About the number of events of all children."""


def answer(request: Request) -> Answer:
    """Answer as the parent, or as a child whose commands write their worker and the time."""
    if request.prompt == "PARENT":
        if not request.turn:
            return [call("task", prompt=f"CHILD {number}") for number in range(CHILDREN)]
        return " | ".join(result.text.splitlines()[0] for result in request.results)
    if request.turn == STEPS:
        return f"{request.prompt} is done"
    name = f"{request.prompt.split()[-1]}-{request.turn}"
    return call("bash", command=f"echo {name} $PPID $(date +%s.%N) >> log; sleep 0.1")


class Stopper:
    """Stops worker processes at moments of a session.

    Arguments:
        moments: numbers of events of children at which the worker process of that event is stopped.

    Attributes:
        woken: times at which the stopped processes went on, by process.
    """

    def __init__(self, processes: list[WorkerHandle], moments: set[int]) -> None:
        self.woken: dict[int, float] = {}
        self.stopped: dict[int, WorkerHandle] = {}
        self._processes = processes
        self._moments = moments
        self._count = 0

    def watch(self, event: AnyEvent) -> None:
        owner = next((each for each in self._processes if each.find(event.run)), None)
        if owner is None or owner.pid is None:
            return
        self._count += 1
        is_due = any(moment <= self._count for moment in self._moments)
        if is_due and owner.pid not in self.stopped and not owner.is_lost:
            self._moments.remove(min(self._moments))
            self.stopped[owner.pid] = owner
            os.kill(owner.pid, signal.SIGSTOP)

    async def wake_all(self) -> None:
        """Wake each stopped process when the session has given it up; wait for its end."""
        for pid, owner in self.stopped.items():
            await wait_until(lambda owner=owner: owner.is_lost)
            self.woken[pid] = time.time()
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            await wait_until(lambda pid=pid: not is_alive(pid))
            assert time.time() - self.woken[pid] <= 2.0


@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_c3_a_stopped_worker_process_appends_and_changes_nothing_when_it_wakes(
    seed: int, tmp_path: Path
) -> None:
    moments = set(random.Random(seed).sample(range(1, EVENTS // 2), STOPS))
    journal = MemoryJournal()
    async with open_session(
        tmp_path, ScriptedModel(answer), journal=journal, worker="ray:4"
    ) as session:
        stopper = Stopper(list(get_worker(session)._pool.processes), moments)
        session.watch(stopper.watch)
        running = asyncio.create_task(session.run("PARENT"))
        try:
            await wait_until(lambda: len(stopper.stopped) == STOPS)
            await stopper.wake_all()
            report = await running
        finally:
            for pid in stopper.stopped:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
    assert report.text == " | ".join(f"CHILD {number} is done" for number in range(CHILDREN))
    lines = (tmp_path / "log").read_text().splitlines()
    assert len({line.split()[0] for line in lines}) == len(lines)
    assert find_late_effects(tmp_path / "log", stopper.woken) == []
    assert find_violations(journal.events) == []


async def test_c8_a_cancel_of_children_out_of_reach_says_so_and_nothing_of_them_is_left(
    tmp_path: Path,
) -> None:
    journal = MemoryJournal()
    async with open_session(tmp_path, ScriptedModel(answer), journal=journal) as session:
        worker = get_worker(session)
        running = asyncio.create_task(session.run("PARENT"))
        await wait_until(lambda: (tmp_path / "log").exists())
        pids = worker.pids
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            limit = time.time() + LEASE_SECONDS + MARGIN_SECONDS + 2.0
            session.runs.cancel()
            report = await running
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        await wait_until(lambda: not any(map(is_alive, pids)))
        assert time.time() <= limit
    assert report.reason is Reason.CANCELLED
    begun = {event.run for event in journal.events if isinstance(event, RunStarted)} - {"1"}
    ends = [event for event in journal.events if isinstance(event, RunFinished)]
    told = {event.run for event in ends if event.report.unknown_changes}
    assert begun and begun <= told
    assert find_late_effects(tmp_path / "log", dict.fromkeys(pids, limit)) == []
    # The time for which nobody could reach a child is not in its report.
    assert find_violations(journal.events, timed=False) == []
