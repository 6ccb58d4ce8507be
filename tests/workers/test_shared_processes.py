"""Worker processes that several sessions share."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mudroom import Session, UsageError, Workers
from mudroom._adapters.workers.process import ProcessTransport
from mudroom._adapters.workers.remote.worker import MAX_STARTS
from mudroom.testing import Answer, MemoryJournal, Request, ScriptedModel, call
from mudroom.testing.invariants import find_violations
from mudroom_fleet import shared_processes
from mudroom_fleet.messages import PartBytes
from mudroom_fleet.shared_processes import SharedProcesses
from mudroom_fleet.shared_program import _CLOSED_PER_COLLECTION

from ..waiting import wait_until
from ..worker_kinds import open_session

STEPS = 4


def answer(request: Request) -> Answer:
    """Answer as the parent of two children, which append lines to the log of their folder."""
    if request.prompt == "PARENT":
        if not request.turn:
            return [call("task", prompt=f"CHILD {number}") for number in range(2)]
        return " | ".join(result.text.splitlines()[0] for result in request.results)
    number = request.prompt.split()[-1]
    if request.turn < STEPS:
        return call("bash", command=f"echo {number}-{request.turn} >> log; sleep 0.05")
    return f"child {number} is done"


def open_shared(folder: Path, workers: Workers, **options: Any) -> Session:
    folder.mkdir(exist_ok=True)
    return open_session(folder, ScriptedModel(answer), worker=workers, **options)


def read_log(folder: Path) -> list[str]:
    log = folder / "log"
    return log.read_text().split() if log.exists() else []


def get_processes(workers: Workers) -> Any:
    assert workers._processes is not None
    return workers._processes


async def test_sessions_share_the_processes_which_end_with_their_owner(tmp_path: Path) -> None:
    async with Workers("process:2") as workers:
        async with (
            open_shared(tmp_path / "a", workers) as first,
            open_shared(tmp_path / "b", workers) as second,
        ):
            reports = await asyncio.gather(first.run("PARENT"), second.run("PARENT"))
            pids = workers.pids
        assert [report.text for report in reports] == ["child 0 is done | child 1 is done"] * 2
        assert len(pids) == 2
        async with open_shared(tmp_path / "c", workers) as third:
            await third.run("PARENT")
        assert workers.pids == pids, "the processes go on after a session"
        assert [process.load for process in get_processes(workers)._processes] == [(0, 0)] * 2
    assert workers.pids == ()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    for name in "abc":
        assert max(Counter(read_log(tmp_path / name)).values()) == 1


async def test_children_go_to_the_process_with_the_fewest_runs_of_all_sessions(
    tmp_path: Path,
) -> None:
    go_on = asyncio.Event()

    async def wait(request: Request) -> str:
        await go_on.wait()
        return "done"

    async with Workers("process:2") as workers:
        processes = get_processes(workers)
        async with (
            open_session(tmp_path, ScriptedModel(wait), workers) as first,
            open_session(tmp_path, ScriptedModel(wait), workers) as second,
        ):
            tasks = [asyncio.create_task(first.task("x"))]
            await wait_until(lambda: sum(each.runs for each in processes._processes) == 1)
            tasks.append(asyncio.create_task(second.task("x")))
            await wait_until(lambda: sum(each.runs for each in processes._processes) == 2)
            assert [each.runs for each in processes._processes] == [1, 1]
            go_on.set()
            await asyncio.gather(*tasks)


async def test_a_session_that_is_cancelled_or_closed_leaves_the_others_alone(
    tmp_path: Path,
) -> None:
    async with Workers("process:1") as workers:
        async with open_shared(tmp_path / "a", workers) as first:
            running = asyncio.create_task(first.run("PARENT"))
            async with open_shared(tmp_path / "b", workers) as second:
                cancelled = asyncio.create_task(second.run("PARENT"))
                await wait_until(lambda: len(read_log(tmp_path / "b")) > 1)
                second.runs.cancel()
                assert (await cancelled).reason == "CANCELLED"
            async with open_shared(tmp_path / "c", workers) as third:
                closed = asyncio.create_task(third.run("PARENT"))
                await wait_until(lambda: len(read_log(tmp_path / "c")) > 1)
                pids = workers.pids
            assert (await closed).reason == "CANCELLED"
            assert (await running).text == "child 0 is done | child 1 is done"
            assert workers.pids == pids


@pytest.fixture
def vanishing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a module with the tool `gone`, which can be imported until the file is deleted."""
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / f"vanishing_{tmp_path.name.replace('-', '_')}.py"
    module.write_text(
        "from mudroom import tool\n@tool\ndef gone() -> str:\n    'Go.'\n    return ''\n"
    )
    return module


async def test_a_session_whose_services_cannot_be_built_leaves_the_others_alone(
    tmp_path: Path, vanishing: Path
) -> None:
    async with Workers("process:1") as workers:
        async with open_shared(tmp_path / "a", workers) as first:
            running = asyncio.create_task(first.run("PARENT"))
            await wait_until(lambda: len(read_log(tmp_path / "a")) > 1)
            pids = workers.pids
            tools = [f"{vanishing.stem}:gone"]
            async with open_shared(tmp_path / "b", workers, tools=tools) as second:
                vanishing.unlink()
                reports = await asyncio.gather(*(second.task("x") for _ in range(4)))
            for report in reports:
                assert report.reason == "LOST"
                assert vanishing.stem in report.error
            assert (await running).text == "child 0 is done | child 1 is done"
            assert workers.pids == pids
        (process,) = get_processes(workers)._processes
        assert process.load == (0, 0)


@pytest.mark.parametrize("how", ["killed", "sends what is no message"])
async def test_children_of_all_sessions_continue_after_the_loss_of_a_process(
    tmp_path: Path, how: str
) -> None:
    journals = [MemoryJournal(), MemoryJournal()]
    async with Workers("process:1") as workers:
        async with (
            open_shared(tmp_path / "a", workers, journal=journals[0]) as first,
            open_shared(tmp_path / "b", workers, journal=journals[1]) as second,
        ):
            running = [asyncio.create_task(each.run("PARENT")) for each in (first, second)]
            await wait_until(lambda: all(len(read_log(tmp_path / name)) > 1 for name in "ab"))
            pids = workers.pids
            if how == "killed":
                os.kill(pids[0], signal.SIGKILL)
            else:
                (process,) = get_processes(workers)._processes
                number, part = next(iter(process._parts.items()))
                part.handle(PartBytes(number, b"\x00\x00\x00\x01\xc1"))
            reports = await asyncio.gather(*running)
            assert workers.pids and workers.pids != pids
    assert {report.text for report in reports} == {"child 0 is done | child 1 is done"}
    for name, journal in zip("ab", journals, strict=True):
        assert max(Counter(read_log(tmp_path / name)).values()) == 1
        assert not find_violations(journal.events)


async def test_many_sessions_leave_nothing_in_a_shared_process(tmp_path: Path) -> None:
    async def use_sessions(workers: Workers, count: int) -> tuple[int, int]:
        """Return the numbers of descriptors and threads after this many sessions."""
        for _ in range(count):
            model = ScriptedModel(lambda _: "done")
            async with open_session(tmp_path, model, workers) as session:
                await session.task("x")
        (pid,) = workers.pids
        return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))

    async with Workers("process:1") as workers:
        descriptors, threads = await use_sessions(workers, _CLOSED_PER_COLLECTION)
        later = await use_sessions(workers, _CLOSED_PER_COLLECTION)
        assert later[0] == descriptors
        # The event loop may start one more thread when two calls meet, but none for each session.
        assert later[1] < threads + _CLOSED_PER_COLLECTION // 2
        (process,) = get_processes(workers)._processes
        assert process.load == (0, 0)


async def test_a_drained_process_takes_no_children_of_any_session_and_ends(tmp_path: Path) -> None:
    async with Workers("process:2") as workers:
        async with (
            open_shared(tmp_path / "a", workers) as first,
            open_shared(tmp_path / "b", workers) as second,
        ):
            await asyncio.gather(first.run("PARENT"), second.run("PARENT"))
            drained, other = get_processes(workers)._processes
            pid = drained.connection.pid
            drained.drain()
            await asyncio.gather(first.run("PARENT"), second.run("PARENT"))
            assert drained.runs == 0
            assert other.runs == 0
        await wait_until(lambda: not Path(f"/proc/{pid}").exists())
        async with open_shared(tmp_path / "c", workers) as third:
            assert (await third.task("CHILD 0")).reason == "GOAL"
        assert workers.pids == (other.connection.pid,)


@pytest.mark.parametrize(
    ("worker", "problem"),
    [("local", 'the worker "local" has no processes'), ("process:0", "unknown worker")],
)
def test_processes_that_cannot_be_shared_are_refused(worker: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        Workers(worker)


async def test_a_wrong_use_of_shared_processes_is_refused(tmp_path: Path) -> None:
    closed = Workers("process:1")
    with pytest.raises(UsageError, match="not open"):
        async with open_shared(tmp_path, closed):
            pass
    async with Workers("process:1") as workers:
        with pytest.raises(UsageError, match="open already"):
            await workers.__aenter__()
    with pytest.raises(UsageError, match="worker of SessionOptions must be"):
        async with Session(cwd=str(tmp_path), worker=1):  # pyright: ignore
            pass


async def test_losses_that_other_sessions_cause_do_not_end_a_run_that_gets_further(
    tmp_path: Path,
) -> None:
    def kill(request: Request) -> Answer:
        if request.turn < 2 * MAX_STARTS:
            return call("bash", command="kill -9 $PPID")
        return "still here"

    async with Workers("process:1") as workers:
        async with (
            open_session(tmp_path, ScriptedModel(kill), workers) as killer,
            open_shared(tmp_path / "b", workers) as other,
        ):
            killing = asyncio.create_task(killer.task("x"))
            reports = [await other.task(f"CHILD {number}") for number in range(3)]
            await killing
    assert [report.reason for report in reports] == ["GOAL"] * 3
    assert max(Counter(read_log(tmp_path / "b")).values()) == 1


async def test_a_run_that_gets_no_further_in_shared_processes_is_lost(tmp_path: Path) -> None:
    async with Workers("process:1") as workers:
        seen: set[int] = set()

        async def end_process(_: Request) -> str:
            (pid,) = workers.pids
            seen.add(pid)
            os.kill(pid, signal.SIGKILL)
            await asyncio.Event().wait()
            return ""

        async with open_session(tmp_path, ScriptedModel(end_process), workers) as session:
            report = await session.task("x")
    assert report.reason == "LOST"
    assert "a process that several sessions use has ended" in report.error
    assert len(seen) == MAX_STARTS


async def test_a_session_that_closes_while_its_process_starts_leaves_nothing_open(
    tmp_path: Path,
) -> None:
    async with Workers("process:1") as workers:
        for delay in (0, 0.001, 0.01, 0.05, 0.2, 0.4):
            async with open_shared(tmp_path / "a", workers) as session:
                task = asyncio.create_task(session.task("CHILD 0"))
                await asyncio.sleep(delay)
                started = asyncio.get_running_loop().time()
            assert asyncio.get_running_loop().time() - started < 2, delay
            await asyncio.gather(task, return_exceptions=True)
        async with open_shared(tmp_path / "b", workers) as session:
            assert (await session.task("CHILD 1")).reason == "GOAL"
        (process,) = get_processes(workers)._processes
        assert process.load == (0, 0)


async def test_a_process_that_was_lost_without_work_does_not_stop_the_next_session(
    tmp_path: Path,
) -> None:
    async with Workers("process:1") as workers:
        async with open_shared(tmp_path / "a", workers) as session:
            await session.task("CHILD 0")
        os.kill(workers.pids[0], signal.SIGKILL)
        async with open_shared(tmp_path / "b", workers) as session:
            assert (await session.task("CHILD 0")).reason == "GOAL"


async def test_a_process_that_is_drained_while_it_starts_ends(tmp_path: Path) -> None:
    async with Workers("process:1") as workers:
        async with open_shared(tmp_path / "a", workers) as session:
            task = asyncio.create_task(session.task("CHILD 0"))
            processes = get_processes(workers)
            await wait_until(lambda: processes._processes)
            (process,) = processes._processes
            process.drain()
        await asyncio.gather(task, return_exceptions=True)
        await process.end()
        pid = process.connection.pid
        assert pid is None or not Path(f"/proc/{pid}").exists()


def test_a_machine_is_asked_for_once_however_many_children_need_it() -> None:
    transport = ProcessTransport(("false",))
    processes = SharedProcesses(transport, 2, "")
    chosen = {processes.choose("node7", ()) for _ in range(10)}
    assert len(chosen) == 1
    assert len(processes._processes) == 3


async def test_a_process_that_is_slow_to_close_a_session_goes_on_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_processes, "_CLOSE_SECONDS", 0.3)
    async with Workers("process:1") as workers:
        async with open_shared(tmp_path / "a", workers) as first:
            await first.task("CHILD 0")
            async with open_shared(tmp_path / "b", workers) as second:
                await second.task("CHILD 0")
                (pid,) = workers.pids
                os.kill(pid, signal.SIGSTOP)
            os.kill(pid, signal.SIGCONT)
            assert (await first.task("CHILD 1")).reason == "GOAL"
            assert workers.pids == (pid,)
