"""Cancels: of all work, of resumed children that wait, and by closing the session."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.workers.far_place import StuckConnection, get_worker

from mudroom import Children, Reason, Report, Session
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._adapters.workers.process import ProcessConnection, ProcessTransport
from mudroom._core.runs import is_child_id
from mudroom.events import (
    AnyEvent,
    RunFinished,
    RunResumed,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
)
from mudroom.scope import PromptConfig
from mudroom.testing.invariants import find_violations

from ..records import read_record, write_record
from ..waiting import wait_until
from ..worker_kinds import WORKERS
from .conftest import IsolatedOptions, pause_during

SECONDS = 60
SESSION = str(uuid.UUID(int=1))


class EndlessModel:
    """A model that answers only prompts that begin with "quick".

    Attributes:
        requests: number of all requests.
        changed: set with each request.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.changed = asyncio.Event()
        self.model = ScriptedModel(self._answer)

    async def _answer(self, request: Request) -> str:
        self.requests += 1
        self.changed.set()
        if not request.prompt.startswith("quick"):
            await asyncio.Event().wait()
        return "done"

    async def wait_for(self, requests: int) -> None:
        async with asyncio.timeout(SECONDS):
            while self.requests < requests:
                self.changed.clear()
                await self.changed.wait()


async def run_prompt(session: Session) -> list[Reason]:
    return [(await session.run("PROMPT")).reason]


async def run_stream(session: Session) -> list[Reason]:
    async with session.stream("PROMPT") as stream:
        async for _ in stream:
            pass
    return [stream.report.reason]


async def run_task(session: Session) -> list[Reason]:
    return [(await session.task("TASK")).reason]


async def run_map(session: Session) -> list[Reason]:
    return [report.reason for report in await session.map(["A"] * 5, parallel=2)]


async def run_scope(session: Session) -> list[Reason]:
    output = await session.scope("scope", PromptConfig(system_prompt="Wait."))
    return [output.terminate_reason]


Start = Callable[[Session], Awaitable[list[Reason]]]


@pytest.mark.parametrize("worker", WORKERS)
@pytest.mark.parametrize("first", [run_prompt, run_stream])
async def test_cancel_without_an_id_stops_all_calls_and_those_that_wait(
    first: Start, worker: str, isolated: IsolatedOptions
) -> None:
    endless = EndlessModel()
    starts: list[Start] = [first, run_prompt, run_task, run_map, run_scope]
    async with Session(model=endless.model, **isolated, worker=worker) as session:
        assert not session.runs.cancel()
        running = [asyncio.ensure_future(start(session)) for start in starts]
        await endless.wait_for(5)
        assert session.runs.cancel()
        async with asyncio.timeout(SECONDS):
            reasons = await asyncio.gather(*running)
        assert [reason for group in reasons for reason in group] == [Reason.CANCELLED] * 9
        assert not session.runs.cancel()
        assert (await session.task("quick")).reason is Reason.GOAL
    assert endless.requests == 6


async def test_cancel_reaches_a_scope_that_lists_the_files(isolated: IsolatedOptions) -> None:
    endless = EndlessModel()
    async with Session(model=endless.model, **isolated) as session:
        running = asyncio.ensure_future(run_scope(session))
        await asyncio.sleep(0)
        session.runs.cancel()
        async with asyncio.timeout(SECONDS):
            assert await running == [Reason.CANCELLED]
    assert endless.requests == 0


async def test_cancel_while_an_interrupted_run_continues_starts_no_prompt(
    isolated: IsolatedOptions,
) -> None:
    endless = EndlessModel()
    session_id = await leave_unfinished_run(endless, isolated)
    async with Session(model=endless.model, **isolated, resume=session_id) as session:
        running = asyncio.ensure_future(run_prompt(session))
        await endless.wait_for(2)
        assert session.runs.cancel()
        async with asyncio.timeout(SECONDS):
            assert await running == [Reason.CANCELLED]
        assert session.unfinished_runs == ()
    assert endless.requests == 2


async def leave_unfinished_run(endless: EndlessModel, options: IsolatedOptions) -> str:
    """Record the beginning of a run; return the id of the session."""
    endless.changed.clear()
    async with Session(model=endless.model, **options) as session:
        await pause_during(session, session.run("FIRST"), endless.changed)
    return session.id


@pytest.mark.parametrize("worker", WORKERS)
async def test_closing_a_session_cancels_runs_that_still_work(worker: str, tmp_path: Path) -> None:
    started = asyncio.Event()
    reports: dict[str, Reason] = {}

    def watch(event: AnyEvent) -> None:
        if isinstance(event, ToolCallStarted) and event.run == "1.1.1":
            started.set()
        if isinstance(event, RunFinished):
            reports[event.run] = event.report.reason

    def answer(request: Request) -> Answer:
        if request.prompt == "P":
            return call("task", prompt="CHILD")
        return call("bash", command="sleep 60")

    home = str(tmp_path / "home")
    session = Session(
        model=ScriptedModel(answer), cwd=str(tmp_path), home=home, sandbox="off", worker=worker
    )
    async with session:
        session.watch(watch)
        task = asyncio.create_task(session.run("P"))
        await asyncio.wait_for(started.wait(), 20)
    assert reports == {"1.1.1": Reason.CANCELLED, "1": Reason.CANCELLED}
    await asyncio.gather(task, return_exceptions=True)


async def test_processes_that_start_commands_end_with_the_session(
    isolated: IsolatedOptions,
) -> None:
    def list_child_pids() -> set[str]:
        return set(next(Path("/proc/self/task").glob("*/children")).read_text().split())

    before = list_child_pids()
    model = ScriptedModel([[call("bash", command="echo hello")], "done"])
    options: dict[str, Any] = {**isolated, "sandbox": "auto", "journal": "memory"}
    async with Session(model=model, **options) as session:
        report = await session.run("say hello")
    assert report.calls == {"bash": 1} and not report.failed
    assert list_child_pids() <= before


def delegate(request: Request) -> Answer:
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
    async with Session(model=ScriptedModel(delegate), home=str(home), sandbox="off") as session:
        await session.run("PARENT")
    events = cut_off(read_record(home, session.id), has_ended=has_ended)
    await write_record(home, SESSION, *events)


def resume(home: Path, **options: Any) -> Session:
    return Session(
        model=ScriptedModel(delegate), home=str(home), resume=SESSION, sandbox="off", **options
    )


def read_end(home: Path, run: str) -> Report:
    """Return the recorded report of a run, after a check of the record."""
    events = read_record(home, SESSION)
    assert find_violations(events) == []
    ends = [event.report for event in events if isinstance(event, RunFinished)]
    return next(report for report in ends if report.run_id == run)


@pytest.mark.parametrize("worker", WORKERS)
@pytest.mark.parametrize("has_ended", [False, True])
async def test_a_resumed_child_that_waits_for_a_slot_can_be_cancelled_unless_it_had_ended(
    home: Path, worker: str, has_ended: bool
) -> None:
    await interrupt(home, has_ended=has_ended)
    answers: list[bool] = []

    def watch(event: object) -> None:
        if has_ended or (isinstance(event, RunResumed) and event.run == "1.1.1"):
            answers.append(session.runs.cancel("1.1.2"))

    async with resume(home, worker=worker, children=Children(parallel=1)) as session:
        session.watch(watch)
        report = await session.resume_unfinished()
    assert report and report.reason is Reason.GOAL
    assert ("CANCELLED" in report.text) is not has_ended
    end = read_end(home, "1.1.2")
    if has_ended:
        assert end.reason is Reason.GOAL
        return
    assert answers == [True]
    assert end.reason is Reason.CANCELLED
    assert end.turns == 1 and end.unknown_changes
    assert report.usage.total_tokens > end.usage.total_tokens > 0


class StuckTransport(ProcessTransport):
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
    assert {read_end(home, run).reason for run in ends} == {Reason.CANCELLED}
