"""A worker process that hangs is killed, and its runs continue elsewhere or end.

Each test lets only one limit end the process: the others are too long to be reached.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.workers.far_place import get_worker

from mudroom import Budget, Reason, Session, Workers
from mudroom._adapters.workers.process import ProcessConnection, ProcessTransport
from mudroom._adapters.workers.remote import worker as remote_worker
from mudroom._core.ports import AnswerLimits
from mudroom._session.worker_setup.transports import RUN_PROGRAM, SHARE_PROGRAM, make_command
from mudroom.testing import Answer, MemoryJournal, Request, ScriptedModel, call
from mudroom.testing.invariants import find_violations

from ..waiting import SECONDS, is_alive, wait_until

HANGS = ("stopped", "busy", "full")
STOPS = ("cancel", "limit", "close")
IS_LONG = bool(os.environ.get("MUDROOM_LONG"))
KINDS = ("own", "shared") if IS_LONG else ("own",)
ALL = [(kind, hang) for kind in KINDS for hang in HANGS]
# In the short form each way to hang and each stop, but not each combination.
CONTINUED = ALL if IS_LONG else [("own", "full"), ("shared", "stopped")]
STOPPED = (
    [(*each, stop) for each in ALL for stop in STOPS]
    if IS_LONG
    else [("own", "stopped", "cancel"), ("own", "full", "close"), ("shared", "busy", "limit")]
)
SILENCE = AnswerLimits(start=600, silence=1.5, stop=600)
STOP = AnswerLimits(start=600, silence=600, stop=1.0)
TOOLS = ["tests.workers.silent_tools:hold_once", "tests.workers.silent_tools:hold"]


class Stage:
    """Sessions whose children work in one worker process."""

    def __init__(self, folder: Path, kind: str, limits: AnswerLimits) -> None:
        self.folder = folder
        self.journals: list[MemoryJournal] = []
        program = SHARE_PROGRAM if kind == "shared" else RUN_PROGRAM
        self._transport = ProcessTransport(make_command(program), limits)
        self._workers = Workers("process:1") if kind == "shared" else None

    @asynccontextmanager
    async def open(
        self, answer: Callable[[Request], Any], **options: Any
    ) -> AsyncGenerator[Session]:
        journal = MemoryJournal()
        self.journals.append(journal)
        session = Session(
            model=ScriptedModel(answer),
            cwd=str(self.folder),
            home=str(self.folder / "home"),
            journal=journal,
            sandbox="off",
            tools=TOOLS,
            worker=self._workers or "process:1",
            **options,
        )
        async with session:
            if self._workers is None:
                worker = get_worker(session)
                worker._transport = self._transport
                worker._pool.processes = [worker._make_process(1)]
            yield session

    async def __aenter__(self) -> Stage:
        if self._workers:
            await self._workers.__aenter__()
            assert self._workers._processes
            self._workers._processes.transport = self._transport
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._workers:
            await self._workers.__aexit__()
        for journal in self.journals:
            assert find_violations(journal.events) == []


class Hanging:
    """Has the worker process of a session hang, once, in one of three ways."""

    def __init__(self, hang: str) -> None:
        self.hang = hang
        self.session: Session
        self.pid = 0
        self.has_begun = asyncio.Event()

    def answer(self, request: Request) -> Answer:
        if self.pid and request.prompt == "HANG":
            return request.results[-1].text if request.results else "continued"
        return self._hang(request)

    def _hang(self, request: Request) -> Answer:
        (self.pid,) = get_worker(self.session).pids
        if self.hang == "busy":
            self.has_begun.set()
            return call("hold_once")
        os.kill(self.pid, signal.SIGSTOP)
        self.has_begun.set()
        if self.hang == "full":  # more than a socket takes
            return "x" * 5_000_000
        return "not read"


@pytest.mark.parametrize(("kind", "hang"), CONTINUED)
async def test_the_runs_of_a_silent_process_continue_in_another(
    tmp_path: Path, kind: str, hang: str
) -> None:
    hanging = Hanging(hang)
    async with Stage(tmp_path, kind, SILENCE) as stage, stage.open(hanging.answer) as session:
        hanging.session = session
        report = await asyncio.wait_for(session.task("HANG"), SECONDS)
        assert report.reason is Reason.GOAL
        assert report.text == ("matched" if hang == "busy" else "continued")
        assert not is_alive(hanging.pid)


@pytest.mark.parametrize(("kind", "hang", "stop"), STOPPED)
async def test_a_silent_process_is_killed_when_its_run_must_end(
    tmp_path: Path, kind: str, hang: str, stop: str
) -> None:
    hanging = Hanging(hang)
    budget = Budget(seconds=2) if stop == "limit" else Budget()
    async with Stage(tmp_path, kind, STOP) as stage:
        async with stage.open(hanging.answer) as session:
            hanging.session = session
            running = asyncio.create_task(session.task("HANG", budget=budget))
            await hanging.has_begun.wait()
            if hang == "busy":
                await wait_until((tmp_path / "held").exists)
            if stop == "cancel":
                assert session.runs.cancel()
            if stop != "close":
                report = await asyncio.wait_for(running, SECONDS)
                assert report.reason is (Reason.TIMEOUT if stop == "limit" else Reason.CANCELLED)
                assert not is_alive(hanging.pid)
        await asyncio.wait([running], timeout=SECONDS)
        assert running.done()
        assert not is_alive(hanging.pid)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_that_always_hangs_does_not_take_the_others_with_it(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run with the open call is the suspect; the other one only waits for its model."""
    monkeypatch.setattr(remote_worker, "MAX_STARTS", 2)  # each takes as long as the limit
    ended = asyncio.Event()

    async def answer(request: Request) -> Answer:
        if request.prompt == "HANG":
            return call("hold")
        await ended.wait()
        return "fine"

    async with Stage(tmp_path, kind, SILENCE) as stage, stage.open(answer) as session:
        fine = asyncio.create_task(session.task("FINE"))
        report = await asyncio.wait_for(session.task("HANG"), SECONDS)
        ended.set()
        assert report.reason is Reason.LOST
        assert "did not answer" in report.error
        assert (await asyncio.wait_for(fine, SECONDS)).text == "fine"


async def test_a_stuck_child_of_one_session_does_not_hold_those_of_others(tmp_path: Path) -> None:
    hanging = Hanging("stopped")
    others: asyncio.Queue[str] = asyncio.Queue()

    async def answer(request: Request) -> Answer:
        if request.turn:
            return "done"
        others.put_nowait(request.prompt)
        return call("bash", command="sleep 0.1")

    async with (
        Stage(tmp_path, "shared", SILENCE) as stage,
        stage.open(hanging.answer) as first,
        stage.open(answer) as second,
    ):
        hanging.session = first
        stuck = asyncio.create_task(first.task("HANG"))
        await hanging.has_begun.wait()
        tasks = [asyncio.create_task(second.task(f"OTHER {n}")) for n in range(3)]
        reports = await asyncio.wait_for(asyncio.gather(*tasks), SECONDS)
        assert [report.reason for report in reports] == [Reason.GOAL] * 3
        assert (await asyncio.wait_for(stuck, SECONDS)).reason is Reason.GOAL


async def test_a_process_that_hangs_ends_with_a_session_that_is_killed(tmp_path: Path) -> None:
    program = f"""if True:
        import asyncio
        from mudroom import Session
        from mudroom._adapters.models.scripted import ScriptedModel, call

        async def main():
            model = ScriptedModel(lambda _: call("hold"))
            options = dict(cwd={str(tmp_path)!r}, home={str(tmp_path / "home")!r})
            tools = {TOOLS!r}
            async with Session(
                model=model, worker="process:1", sandbox="off", tools=tools, **options
            ) as session:
                running = asyncio.create_task(session.task("HANG"))
                worker = session._require_open().resources.worker
                while not worker.pids:
                    await asyncio.sleep(0.01)
                print(worker.pids[0], flush=True)
                await running
        asyncio.run(main())"""
    session = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    assert session.stdout
    pid = int(await session.stdout.readline())
    await wait_until((tmp_path / "held").exists)
    session.kill()
    await session.wait()
    await wait_until(lambda: not is_alive(pid))


async def test_an_idle_process_that_was_stopped_does_not_hold_the_end(tmp_path: Path) -> None:
    async with Stage(tmp_path, "own", STOP) as stage:
        async with stage.open(lambda _: "done") as session:
            await session.task("first")
            (pid,) = get_worker(session).pids
            os.kill(pid, signal.SIGSTOP)
        assert not is_alive(pid)


async def test_a_process_that_works_long_is_not_killed(tmp_path: Path) -> None:
    """Its run sends nothing for longer than the limit; the process itself does."""
    limits = AnswerLimits(start=600, silence=1.5, stop=600)
    async with Stage(tmp_path, "own", limits) as stage:
        waits = asyncio.Event()

        async def answer(_: Request) -> Answer:
            await waits.wait()
            return "done"

        async with stage.open(answer) as session:
            running = asyncio.create_task(session.task("LONG"))
            worker = get_worker(session)
            connection = worker._pool.processes[0]._connection
            assert isinstance(connection, ProcessConnection)
            await wait_until(lambda: connection.arrivals > 0)
            begin = connection.arrivals
            await wait_until(lambda: connection.arrivals > begin + 4)  # two seconds of beats
            waits.set()
            assert (await running).text == "done"
            assert connection.loss == ""
