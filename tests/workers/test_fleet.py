"""`mudroom fleet`: which worker processes work, and how they are taken out of use."""

from __future__ import annotations

import asyncio
import fcntl
import os
import platform
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from mudroom import Session, UsageError
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._adapters.workers.remote.fleet_control import (
    FleetFolder,
    FleetRequest,
    FleetStatus,
    WorkerStatus,
    list_fleets,
)
from mudroom._cli.actions import fleet as control
from mudroom._cli.actions.fleet import drain_workers, print_status
from mudroom_fleet.actor import LEASE_SECONDS

from ..waiting import SECONDS, is_alive, wait_until
from ..worker_kinds import NEEDS_RAY


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MUDROOM_HOME", str(tmp_path / "home"))
    return str(tmp_path / "home")


def open_session(folder: Path, home: str, worker: str) -> Session:
    """Open a session whose tasks work until a file of their name exists."""

    def answer(request: Request) -> Answer:
        if request.turn:
            return "done"
        wait = f"while [ ! -e {request.prompt} ]; do sleep .02; done"
        return call("bash", command=f"touch {request.prompt}.begun; {wait}")

    return Session(
        model=ScriptedModel(answer),
        cwd=str(folder),
        home=home,
        journal="memory",
        sandbox="off",
        worker=worker,
    )


async def read_status(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    await asyncio.to_thread(print_status, "", as_json=True)
    return [
        worker
        for status in msgspec.json.decode(capsys.readouterr().out)
        for worker in status["workers"]
    ]


@pytest.mark.parametrize("worker", ["process:2", pytest.param("ray:2", marks=NEEDS_RAY)])
async def test_a_drained_worker_gets_no_child_finishes_its_own_and_ends(
    worker: str, tmp_path: Path, home: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with open_session(tmp_path, home, worker) as session:
        tasks = {name: asyncio.create_task(session.task(name)) for name in ("a", "b")}
        await wait_until(lambda: all((tmp_path / f"{name}.begun").exists() for name in tasks))
        first, second = await read_status(capsys)
        async with asyncio.timeout(SECONDS):
            # On a busy machine a worker process may not say its memory in time.
            while not (first["memory_bytes"] and second["memory_bytes"]):
                first, second = await read_status(capsys)
        assert [len(each["running"]) for each in (first, second)] == [1, 1]
        assert first["state"] == "working"
        check_place(worker, first)

        await asyncio.to_thread(drain_workers, "1", "", wait=False)
        assert "worker 1: no further children; 1 run to finish" in capsys.readouterr().out
        tasks["c"] = asyncio.create_task(session.task("c"))
        await wait_until((tmp_path / "c.begun").exists)
        first, second = await read_status(capsys)
        assert (first["state"], len(first["running"])) == ("draining", 1)
        assert (second["state"], len(second["running"])) == ("working", 2)

        for name in tasks:
            (tmp_path / name).touch()
        assert [(await task).text for task in tasks.values()] == ["done"] * 3
        await wait_until(lambda: not is_alive(first["pid"]))
        await asyncio.to_thread(drain_workers, "", "", wait=True)
        assert worker.startswith("ray") or not is_alive(second["pid"])
        await wait_until(lambda: not is_alive(second["pid"]))  # Ray ends it a moment later
        assert await read_status(capsys) == []
        with pytest.raises(UsageError, match="no running session has worker processes"):
            await asyncio.to_thread(drain_workers, "1", "", wait=True)

        (tmp_path / "d").touch()
        assert (await session.task("d")).text == "done"
        (third,) = await read_status(capsys)
        assert (third["number"], third["state"], third["running"]) == (3, "idle", [])
    assert not list_fleets(home)
    assert os.listdir(Path(home, "fleet")) == []


def check_place(worker: str, status: dict[str, Any]) -> None:
    """Check what a status says about the machine of a worker and its lease."""
    if worker.startswith("ray"):
        assert 0 < status["lease_seconds"] <= LEASE_SECONDS
        assert (status["host"], bool(status["node"])) == (platform.node(), True)
    else:
        assert (status["lease_seconds"], status["node"]) == (None, "")


@pytest.mark.parametrize("worker", [pytest.param("ray:2", marks=NEEDS_RAY)])
async def test_a_drain_of_a_machine_ends_all_workers_on_it(
    worker: str, tmp_path: Path, home: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).touch()
    async with open_session(tmp_path, home, worker) as session:
        await session.task("a")
        workers = await read_status(capsys)
        await asyncio.to_thread(drain_workers, platform.node(), "", wait=True)
        assert "ended: 1, 2" in capsys.readouterr().out
        await wait_until(lambda: not any(is_alive(each["pid"]) for each in workers))
        assert (await session.task("b")).text == "done"
        assert [each["number"] for each in await read_status(capsys)] == [3]


async def test_the_status_of_two_sessions_names_both_and_a_drain_asks_for_one(
    tmp_path: Path, home: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).touch()
    one = open_session(tmp_path, home, "process:1")
    two = open_session(tmp_path, home, "process:1")
    async with one, two:
        await asyncio.gather(one.task("a"), two.task("b"))
        await asyncio.to_thread(print_status, "", as_json=False)
        shown = capsys.readouterr().out
        assert one.id[:8] in shown and two.id[:8] in shown
        with pytest.raises(UsageError, match="2 running sessions"):
            await asyncio.to_thread(drain_workers, "1", "", wait=False)
        with pytest.raises(UsageError, match="no such worker"):
            await asyncio.to_thread(drain_workers, "9", one.id, wait=False)
        await asyncio.to_thread(drain_workers, "1", one.id, wait=True)


def test_a_killed_session_has_no_workers_and_its_files_are_removed(home: str) -> None:
    folder = FleetFolder(home, "killed")
    folder.open()
    folder.write_request(FleetRequest())
    assert list_fleets(home) == ["killed"]
    assert folder._lock is not None
    os.close(folder._lock)  # as the kernel does at the end of the process
    assert list_fleets(home) == []
    assert os.listdir(Path(home, "fleet")) == []


def test_a_looker_leaves_the_folder_of_a_session_that_opens_meanwhile(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = FleetFolder(home, "a")
    assert killed.open()
    assert killed._lock is not None
    os.close(killed._lock)
    live = FleetFolder(home, "a")
    flock = fcntl.flock

    def lock_late(descriptor: int, operation: int) -> None:
        """Let another process remove the old folder, and the session open, before the lock."""
        monkeypatch.undo()
        assert not FleetFolder(home, "a").has_session()
        assert live.open()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    assert FleetFolder(home, "a").has_session()
    assert list_fleets(home) == ["a"]
    live.close()


def test_a_session_does_not_wait_for_a_process_that_looks_at_its_folder(home: str) -> None:
    killed = FleetFolder(home, "a")
    assert killed.open()
    assert killed._lock is not None
    fcntl.flock(killed._lock, fcntl.LOCK_SH)  # as a stopped process that looks
    folder = FleetFolder(home, "a")
    assert not folder.open()
    os.close(killed._lock)
    assert folder.open()
    folder.close()


def make_status(session: str, *numbers: int) -> FleetStatus:
    workers = [
        WorkerStatus(
            number=number,
            pid=2,
            host="h",
            node="",
            state="working",
            running=("1",),
            waiting=0,
            lease_seconds=None,
            memory_bytes=1,
        )
        for number in numbers
    ]
    return FleetStatus(
        session=session, kind="process", pid=1, host="h", waiting=0, workers=tuple(workers)
    )


async def answer_requests(folder: FleetFolder, session: str, count: int) -> None:
    """Answer this number of requests to a session with one worker; leave the next one open."""
    while count:
        await wait_until(
            lambda: any(name.startswith("request") for name in os.listdir(folder.path))
        )
        for name in folder.take_requests():
            folder.write_answer(name, make_status(session, 1))
            count -= 1
    await wait_until(lambda: any(name.startswith("request") for name in os.listdir(folder.path)))


async def test_a_drain_waits_until_its_session_has_ended(
    home: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = FleetFolder(home, "a")
    assert folder.open()
    drain = asyncio.create_task(asyncio.to_thread(drain_workers, "1", "", wait=True))
    await answer_requests(folder, "a", 3)
    folder.close()
    await drain
    assert "ended: 1" in capsys.readouterr().out
    assert os.listdir(Path(home, "fleet")) == []


async def test_a_status_leaves_out_ended_sessions_and_names_silent_ones(
    home: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {name: FleetFolder(home, name) for name in ("ended", "lively", "silent")}
    assert all(folder.open() for folder in folders.values())
    passed = [0.0]
    clock = SimpleNamespace(monotonic=lambda: passed[0], sleep=time.sleep)
    monkeypatch.setattr(control, "time", clock)
    status = asyncio.create_task(asyncio.to_thread(print_status, "", as_json=False))
    for name in folders:
        await wait_until(lambda name=name: len(os.listdir(folders[name].path)) > 1)
    folders["ended"].close()
    (request,) = folders["lively"].take_requests()
    folders["lively"].write_answer(request, make_status("lively", 1))
    await wait_until(lambda: os.listdir(folders["lively"].path) == ["lock"])
    await wait_until(lambda: not folders["ended"].path.exists())
    passed[0] += 10
    await status
    shown = capsys.readouterr()
    assert "session lively" in shown.out and "ended" not in shown.out + shown.err
    assert "session silent has not answered within 10 s" in shown.err
    assert len(os.listdir(folders["silent"].path)) == 1
    for folder in folders.values():
        folder.close()


def test_without_workers_the_commands_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_status()
    assert "No running session has worker processes" in capsys.readouterr().out
    with pytest.raises(UsageError, match="no running session has worker"):
        drain_workers(None, None, wait=False)
    with pytest.raises(UsageError, match="no running session with worker processes has this id"):
        print_status("47cdfdf9", as_json=False)
