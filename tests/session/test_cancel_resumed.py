"""Cancels of resumed children that wait: their end is recorded, and the parent continues."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_until
from tests.worker_kinds import WORKERS
from tests.workers.far_place import StuckConnection, get_worker

from mudroom import Children, Reason, Report, Session
from mudroom._adapters.journals.sqlite.folder import get_session_path
from mudroom._adapters.journals.sqlite.journal import SqliteJournal
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._adapters.workers.process import ProcessConnection, ProcessTransport
from mudroom._core.events import RunFinished, RunResumed, StoredEvent, ToolCallFinished
from mudroom._core.runs import is_child_id
from mudroom.testing.invariants import find_violations

SESSION = str(uuid.UUID(int=1))


def answer(request: Request) -> Answer:
    if request.prompt == "PARENT":
        if request.turn:
            return "\n".join(result.text for result in request.results)
        return [call("task", prompt=f"CHILD {number}") for number in range(2)]
    return "done" if request.turn else call("bash", command="true")


def cut_off(events: list[StoredEvent], *, has_ended: bool) -> Iterator[StoredEvent]:
    """Yield the events of a session that ends before the results of its calls are stored.

    Arguments:
        has_ended: true if the second child ends before that.
    """
    cut: set[str] = set()
    for event in events:
        if isinstance(event, ToolCallFinished) and not (has_ended and event.run == "1.1.2"):
            cut.add(event.run)
        if event.run not in cut:
            yield event


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


async def interrupt(home: Path, *, has_ended: bool = False) -> None:
    """Create the record of a session that was killed while its two children worked."""
    async with Session(model=ScriptedModel(answer), home=str(home), sandbox="off") as session:
        await session.run("PARENT")
    events = list(open_reader(get_session_path(home, session.id)).read())
    path = get_session_path(home, SESSION)
    journal = SqliteJournal.open(path, session=SESSION, create=True)
    await journal.append(*cut_off(events, has_ended=has_ended))
    await journal.close()


def resume(home: Path, **options: Any) -> Session:
    return Session(
        model=ScriptedModel(answer), home=str(home), resume=SESSION, sandbox="off", **options
    )


async def cancel_second_child(home: Path, worker: str) -> Report:
    """Resume the session, cancel its second child while it waits for a slot; return its report."""
    cancels: list[bool] = []

    def watch(event: object) -> None:
        if isinstance(event, RunResumed) and event.run == "1.1.1":
            cancels.append(session.runs.cancel("1.1.2"))

    async with resume(home, worker=worker, children=Children(parallel=1)) as session:
        session.watch(watch)
        report = await session.resume_unfinished()
    assert cancels == [True]
    assert report and report.reason is Reason.GOAL
    return report


def read_end(home: Path, run: str) -> Report:
    """Return the recorded report of a run, after a check of the record."""
    events = list(open_reader(get_session_path(home, SESSION)).read())
    assert find_violations(events) == []
    ends = [event.report for event in events if isinstance(event, RunFinished)]
    return next(report for report in ends if report.run_id == run)


@pytest.mark.parametrize("worker", WORKERS)
async def test_a_resumed_child_that_waits_for_a_slot_can_be_cancelled(
    home: Path, worker: str
) -> None:
    await interrupt(home)
    report = await cancel_second_child(home, worker)
    end = read_end(home, "1.1.2")
    assert end.reason is Reason.CANCELLED and "CANCELLED" in report.text
    assert end.turns == 1 and end.unknown_changes
    assert report.usage.total_tokens > end.usage.total_tokens > 0


@pytest.mark.parametrize("worker", WORKERS)
async def test_a_child_that_had_ended_keeps_its_report_when_it_is_cancelled_as_it_resumes(
    home: Path, worker: str
) -> None:
    await interrupt(home, has_ended=True)

    def watch(_: object) -> None:
        session.runs.cancel("1.1.2")

    async with resume(home, worker=worker, children=Children(parallel=1)) as session:
        session.watch(watch)
        report = await session.resume_unfinished()
    assert report and "CANCELLED" not in report.text
    assert read_end(home, "1.1.2").reason is Reason.GOAL


class StuckTransport(ProcessTransport):
    """Starts worker processes that never get ready."""

    def connect(self) -> ProcessConnection:
        return StuckConnection(self._command)


async def test_a_resumed_child_that_waits_for_a_worker_process_can_be_cancelled(
    home: Path,
) -> None:
    await interrupt(home)
    ends: list[str] = []

    def watch(event: object) -> None:
        if isinstance(event, RunFinished) and is_child_id(event.run):
            ends.append(event.run)

    async with resume(home, worker="process:1") as session:
        session.watch(watch)
        worker = get_worker(session)
        worker._transport = StuckTransport(())
        worker._pool.processes = [worker._make_process(1)]
        running = asyncio.create_task(session.resume_unfinished())
        await wait_until(lambda: worker.find("1.1.2") is not None)
        assert session.runs.cancel("1.1.1") and session.runs.cancel("1.1.2")
        report = await running
    assert report and report.reason is Reason.GOAL
    assert sorted(ends) == ["1.1.1", "1.1.2"]
    assert read_end(home, "1.1.1").reason is Reason.CANCELLED
    assert read_end(home, "1.1.2").reason is Reason.CANCELLED
