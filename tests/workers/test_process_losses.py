"""Runs that wait for a worker process, and worker processes that do not start or end."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from mudroom import Reason, Session
from mudroom.models.scripted import Answer, Request, ScriptedModel, call
from mudroom.workers.process.connection import ProcessConnection, ProcessTransport
from mudroom.workers.ray.driver_messages import CloseActor
from mudroom.workers.remote.connection import WorkerConnection
from mudroom.workers.remote.messages import WorkerConfig
from mudroom.workers.remote.worker import RemoteWorker

from ..waiting import wait_until

SENT: Any = CloseActor(1)
"""The program that gets it does not read it."""


class BlockedConnection(ProcessConnection):
    """Connection to a process that does not start."""

    def __init__(self) -> None:
        super().__init__(())
        self.is_opening = False
        self.is_closed = False

    async def open(self, config: WorkerConfig) -> None:
        self.is_opening = True
        await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        self.is_closed = True


class BlockedTransport(ProcessTransport):
    """Transport whose processes do not start."""

    def __init__(self) -> None:
        super().__init__(())
        self.connections: list[BlockedConnection] = []

    def connect(self) -> BlockedConnection:
        self.connections.append(BlockedConnection())
        return self.connections[-1]


def open_session(folder: Path, model: ScriptedModel) -> Session:
    return Session(
        model=model,
        cwd=str(folder),
        home=str(folder / "home"),
        journal="memory",
        sandbox="off",
        worker="process:1",
    )


def block_starts(session: Session) -> tuple[RemoteWorker, BlockedTransport]:
    """Have the session's worker processes not start."""
    worker = session._require_open().resources.worker
    assert isinstance(worker, RemoteWorker)
    worker._transport = transport = BlockedTransport()
    worker._processes = [worker._make_process()]
    return worker, transport


async def test_a_child_that_waits_for_a_worker_process_is_cancelled_at_once(tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        return request.results[0].text if request.turn else call("task", prompt="CHILD")

    async with open_session(tmp_path, ScriptedModel(answer)) as session:
        _, transport = block_starts(session)
        running = asyncio.create_task(session.run("PARENT"))
        await wait_until(lambda: transport.connections[0].is_opening)
        assert session.cancel("1.1.1")
        report = await asyncio.wait_for(running, 60)
        assert not transport.connections[0].is_closed
    assert "CANCELLED" in report.text and report.reason is Reason.GOAL


async def test_a_cancelled_start_of_all_worker_processes_ends_them(tmp_path: Path) -> None:
    async with open_session(tmp_path, ScriptedModel([])) as session:
        worker, transport = block_starts(session)
        opening = asyncio.create_task(worker.open())
        await wait_until(lambda: transport.connections[0].is_opening)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert transport.connections[0].is_closed


async def test_runs_do_not_wait_for_a_lost_process_that_does_not_end() -> None:
    program = "import os, sys, time; os.close(int(sys.argv[1])); time.sleep(600)"
    connection: WorkerConnection = ProcessConnection((sys.executable, "-c", program))
    await connection.open(SENT)
    assert await connection.receive() is None
    await asyncio.wait_for(connection.wait_until_stopped(), 60)
