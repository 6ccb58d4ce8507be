"""C8: a cancel is a barrier for children in worker processes, and ends what waits for them.

No effect happens after the report of a cancelled run, and no process of it remains. The short form
cancels 12 runs, MUDROOM_LONG=1 five hundred. A worker process that cannot be reached is stopped by
its lease; see `test_fences`. A run asks the session for a decision, a hook or an answer of a model:
nobody needs these any more when the run is cancelled or its process is lost.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.reliability.test_cancel import find_processes

from mudroom import Integrations, MudroomError, Reason, Session, ToolCallBlock
from mudroom._core.ports import ApprovalDecision, ApprovalRequest, Hooks, ToolHookDecision
from mudroom._core.runs import Brief
from mudroom.permissions import Permissions
from mudroom.testing import Answer, MemoryJournal, Request, ScriptedModel, call
from mudroom.testing.invariants import find_violations

from ..waiting import wait_until
from ..worker_kinds import RAY, WORKERS, open_session
from .far_place import get_worker

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


Wait = Callable[[], Awaitable[Any]]


class WaitingApprover:
    def __init__(self, wait: Wait) -> None:
        self._wait = wait

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        return await self._wait()


class WaitingHooks(Hooks):
    def __init__(self, wait: Wait) -> None:
        self._wait = wait

    async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
        return await self._wait()


def open_waiting(kind: str, wait: Wait, worker: str, folder: Path) -> Session:
    """Return a session of which a service of this kind waits."""

    async def answer(_: Request) -> Answer:
        if kind == "model":
            await wait()
        return call("bash", command="echo 1")

    model = ScriptedModel(answer)
    if kind == "approver":
        permissions = Permissions.of(ask=["Bash"])
        approver = WaitingApprover(wait)
        return open_session(folder, model, worker, approver=approver, permissions=permissions)
    if kind == "hook":
        return open_session(
            folder, model, worker, integrations=Integrations(hooks=WaitingHooks(wait))
        )
    return open_session(folder, model, worker)


class Waits:
    """What waited: how many times it began, and how many times it ended."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0

    async def __call__(self) -> Any:
        self.begun += 1
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            self.ended += 1


KINDS = pytest.mark.parametrize("kind", ["approver", "hook", "model"])


@KINDS
@pytest.mark.parametrize("worker", WORKERS)
@pytest.mark.timeout(60)
async def test_a_cancel_of_the_run_ends_it(kind: str, worker: str, tmp_path: Path) -> None:
    waits = Waits()
    async with open_waiting(kind, waits, worker, tmp_path) as session:
        running = asyncio.create_task(session.task("CHILD"))
        await wait_until(lambda: waits.begun == 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await wait_until(lambda: waits.ended == 1)
    assert waits.begun == 1


@KINDS
@pytest.mark.parametrize("worker", ["process:1", RAY])
@pytest.mark.timeout(60)
async def test_the_loss_of_its_process_ends_it_before_the_run_goes_on_elsewhere(
    kind: str, worker: str, tmp_path: Path
) -> None:
    waits = Waits()
    async with open_waiting(kind, waits, worker, tmp_path) as session:
        running = asyncio.create_task(session.task("CHILD"))
        await wait_until(lambda: waits.begun == 1)
        os.kill(get_worker(session).pids[0], signal.SIGKILL)
        await wait_until(lambda: waits.begun == 2)
        assert waits.ended == 1
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert waits.ended == 2


@KINDS
@pytest.mark.parametrize("worker", ["process:1", RAY])
@pytest.mark.timeout(60)
async def test_a_run_does_not_wait_for_what_was_cancelled_inside_the_session(
    kind: str, worker: str, tmp_path: Path
) -> None:
    async def fail() -> None:
        raise asyncio.CancelledError

    async with open_waiting(kind, fail, worker, tmp_path) as session:
        with pytest.raises(MudroomError, match="was cancelled"):
            await session.task("CHILD")
