"""Runs that wait for a worker process, and worker processes that do not start or end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mudroom import Budget, Reason, Session
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._adapters.workers.process import ProcessConnection, ProcessTransport
from mudroom._adapters.workers.remote.worker import MAX_STARTS, RemoteWorker
from mudroom._core.events import RunFinished, StoredEvent, TurnFinished
from mudroom._core.messages import NO_USAGE
from mudroom._core.ports import WorkerConnection
from mudroom.testing.invariants import find_violations

from ..waiting import is_alive, wait_until


class BlockedConnection(ProcessConnection):
    """Connection to a process that does not start."""

    def __init__(self) -> None:
        super().__init__(())
        self.is_opening = False
        self.is_closed = False

    async def open(self) -> None:
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


def open_session(folder: Path, model: ScriptedModel, **options: Any) -> Session:
    defaults: dict[str, Any] = {"journal": "memory", "sandbox": "off", "worker": "process:1"}
    home = str(folder / "home")
    return Session(model=model, cwd=str(folder), home=home, **(defaults | options))


def get_worker(session: Session) -> RemoteWorker:
    worker = session._require_open().resources.worker
    assert isinstance(worker, RemoteWorker)
    return worker


def block_starts(session: Session) -> tuple[RemoteWorker, BlockedTransport]:
    """Have the session's worker processes not start."""
    worker = get_worker(session)
    worker._transport = transport = BlockedTransport()
    worker._pool.processes = [worker._make_process(1)]
    return worker, transport


async def test_a_child_that_waits_for_a_worker_process_is_cancelled_at_once(tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        return request.results[0].text if request.turn else call("task", prompt="CHILD")

    async with open_session(tmp_path, ScriptedModel(answer)) as session:
        _, transport = block_starts(session)
        running = asyncio.create_task(session.run("PARENT"))
        await wait_until(lambda: transport.connections[0].is_opening)
        assert session.runs.cancel("1.1.1")
        report = await asyncio.wait_for(running, 60)
        assert not transport.connections[0].is_closed
    assert "CANCELLED" in report.text and report.reason is Reason.GOAL


async def test_a_lost_run_is_charged_with_its_children(tmp_path: Path) -> None:
    """The limit counts the child and the one below it, so no third one may start."""

    async def answer(request: Request) -> Answer:
        if request.prompt == "PARENT":
            results.extend(result.text for result in request.results)
            return "done" if request.turn == 2 else call("task", prompt="CHILD")
        if request.prompt == "BELOW":
            return "done"
        if request.prompt == "CHILD" and request.turn:
            os.kill(get_worker(session).pids[-1], signal.SIGKILL)
            await asyncio.sleep(60)
        return call("task", prompt="BELOW")

    results: list[str] = []
    budget = Budget(depth=2, children=2)
    session = open_session(tmp_path, ScriptedModel(answer), prompt_budget=budget)
    async with session:
        await session.run("PARENT")
    assert "LOST" in results[0]
    assert "the budget of 2 children is used up" in results[1]


async def test_a_cancel_reaches_a_run_that_has_lost_its_process(tmp_path: Path) -> None:
    async def answer(request: Request) -> Answer:
        if request.prompt == "PARENT":
            return request.results[0].text if request.turn else call("task", prompt="CHILD")
        starts.append(request.turn)
        os.kill(get_worker(session).pids[-1], signal.SIGKILL)
        session.runs.cancel("1.1.1")
        await asyncio.sleep(60)
        return "never"

    starts: list[int] = []
    journal = MemoryJournal()
    session = open_session(tmp_path, ScriptedModel(answer), journal=journal)
    async with session:
        report = await session.run("PARENT")
    assert "CANCELLED" in report.text
    assert len(starts) == 1
    assert find_violations(journal.events) == []


class EndingJournal(MemoryJournal):
    """Journal that ends a worker process when it has the end of a child."""

    session: Session

    async def append(self, *events: StoredEvent) -> int:
        position = await super().append(*events)
        if any(isinstance(event, RunFinished) and event.run == "1.1.1" for event in events):
            with suppress(ProcessLookupError):
                os.kill(get_worker(self.session).pids[-1], signal.SIGKILL)
        return position


async def test_a_run_that_had_ended_when_its_last_process_was_lost_has_one_end(
    tmp_path: Path,
) -> None:
    async def answer(request: Request) -> Answer:
        if request.prompt == "PARENT":
            return request.results[0].text if request.turn else call("task", prompt="CHILD")
        starts.append(request.turn)
        if len(starts) < MAX_STARTS:
            os.kill(get_worker(session).pids[-1], signal.SIGKILL)
            await asyncio.sleep(60)
        return "The child is done."

    starts: list[int] = []
    journal = EndingJournal()
    session = open_session(tmp_path, ScriptedModel(answer), journal=journal)
    journal.session = session
    async with session:
        report = await session.run("PARENT")
        meter = session._require_open().meter
        spent = meter.usage + meter.descendant_usage
    answers = [event.message for event in journal.events if isinstance(event, TurnFinished)]
    assert report.text.startswith("The child is done.")
    assert len(starts) == MAX_STARTS
    assert spent == sum((answer.usage for answer in answers), NO_USAGE)
    assert find_violations(journal.events) == []


async def test_a_lost_run_ends_its_calls_and_the_runs_below_it(tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        if request.prompt == "PARENT":
            return request.results[0].text if request.turn else call("task", prompt="CHILD")
        if request.prompt == "CHILD":
            return call("task", prompt="BELOW")
        return call("bash", command=f"echo {request.turn} >> log; kill -9 $PPID")

    journal = MemoryJournal()
    model = ScriptedModel(answer)
    async with open_session(
        tmp_path, model, journal=journal, prompt_budget=Budget(depth=2)
    ) as session:
        report = await session.run("PARENT")
    ends = [event for event in journal.events if isinstance(event, RunFinished)]
    assert "its worker was lost" in report.text
    assert [(end.run, str(end.report.reason)) for end in ends] == [
        ("1.1.1.1.1", "LOST"),
        ("1.1.1", "LOST"),
        ("1", "GOAL"),
    ]
    assert find_violations(journal.events) == []
    # The result of the call and the end of the run, of both runs: recorded at one time.
    below = [event for event in journal.events if event.run.startswith("1.1.1")]
    assert len({event.at for event in below[-4:]}) == 1


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
    await connection.open()
    assert await connection.receive() == b""
    await asyncio.wait_for(connection.wait_until_stopped(), 60)


async def test_a_process_that_was_lost_and_replaced_ends_before_its_session(
    tmp_path: Path,
) -> None:
    async with open_session(tmp_path, ScriptedModel(lambda _: "done")) as session:
        await session.task("first")
        worker = get_worker(session)
        (lost,) = worker._pool.processes
        assert lost.pid
        os.kill(lost.pid, signal.SIGSTOP)  # it ends when it is killed
        connection = lost._connection
        assert isinstance(connection, ProcessConnection) and connection._link
        connection._link.data_received(b"\x00\x00\x00\x01\xc1")  # no message
        await wait_until(lambda: lost.is_lost)
        await session.task("second")
        assert worker.pids != (lost.pid,)
    assert not is_alive(lost.pid)
