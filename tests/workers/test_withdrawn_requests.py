"""What the session does for a run ends with the run, wherever the run is executed.

A run in a worker process asks the session for a decision, a hook or an answer of a model. Nobody
needs these any more when the run is cancelled or its process is lost.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mudroom import Integrations, MudroomError, Session, ToolCallBlock
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.ports import ApprovalDecision, ApprovalRequest, Hooks, ToolHookDecision
from mudroom._core.runs import Brief
from mudroom.permissions import Permissions

from ..waiting import wait_until
from ..worker_kinds import RAY, WORKERS, open_session
from .far_place import get_worker

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
