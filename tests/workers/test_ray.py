"""Worker processes on a Ray cluster: equal records, faults, keys, and errors of the set-up."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.workers.crash_program import CHILDREN, STEPS
from tests.workers.far_place import get_worker
from tests.workers.test_process_faults import DONE, check_log, check_record, start, wait_for_log

from mudroom import AnyEvent, Reason, Report, Session, UsageError
from mudroom._adapters.workers.remote.worker import RemoteWorker
from mudroom._core.events import RunResumed, StoredEvent
from mudroom.testing import Answer, MemoryJournal, Request, ScriptedModel, call
from mudroom.testing.invariants import find_violations
from mudroom_fleet.ray_transport import RayTransport

from ..waiting import block_until, is_alive, wait_until
from ..worker_kinds import NEEDS_RAY

pytestmark = NEEDS_RAY
ACTOR = b"ray::WorkerActor"
STEP_COUNT = 5


def open_session(folder: Path, model: ScriptedModel, **options: Any) -> Session:
    defaults: dict[str, Any] = {
        "cwd": str(folder),
        "home": str(folder / "home"),
        "sandbox": "off",
        "worker": "ray:2",
        "journal": "memory",
    }
    return Session(model=model, **(defaults | options))


def get_transport(worker: RemoteWorker) -> RayTransport:
    assert isinstance(worker._transport, RayTransport)
    return worker._transport


def answer(request: Request) -> Answer:
    if request.prompt == "PARENT":
        if not request.turn:
            return [call("task", prompt=f"CHILD {number}") for number in range(2)]
        return " | ".join(result.text.splitlines()[0] for result in request.results)
    if request.turn < STEP_COUNT:
        number = request.prompt.split()[-1]
        return call("bash", command=f"echo {number}-{request.turn} >> log; sleep 0.1")
    return f"{request.prompt} is done"


def count_effects(folder: Path) -> Counter[str]:
    return Counter((folder / "log").read_text().split())


def list_actors() -> set[int]:
    found: set[int] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes().startswith(ACTOR) and is_alive(int(folder.name)):
                found.add(int(folder.name))
        except OSError:
            continue
    return found


async def disturb(
    folder: Path, disturbance: Callable[[RemoteWorker], None]
) -> tuple[Report, list[StoredEvent], float, float]:
    """Run the parent and disturb it when each child has a step.

    Return the report, the events, and the seconds until a loss was noticed and a run resumed.
    """
    journal = MemoryJournal()
    resumed: list[float] = []

    def watch(event: AnyEvent) -> None:
        if isinstance(event, RunResumed):
            resumed.append(time.monotonic())

    async with open_session(folder, ScriptedModel(answer), journal=journal) as session:
        session.watch(watch)
        worker = get_worker(session)
        first = list(worker._pool.processes)
        running = asyncio.create_task(session.run("PARENT"))
        log = folder / "log"
        await wait_until(lambda: log.exists() and len(count_effects(folder)) >= 3)
        disturbance(worker)
        began = time.monotonic()
        await wait_until(lambda: any(process.is_lost for process in first))
        noticed = time.monotonic() - began
        report = await running
    events = [event async for event in journal.read()]
    return report, events, noticed, resumed[0] - began


def check_effects(report: Report, events: list[StoredEvent], folder: Path) -> None:
    """Check that both children ended well, no effect happened twice, and the record is whole."""
    assert report.reason is Reason.GOAL
    assert report.text == "CHILD 0 is done | CHILD 1 is done"
    counts = count_effects(folder)
    assert max(counts.values()) == 1
    # A command that was under way is not repeated: whether it had its effect is not known.
    assert len(counts) >= 2 * STEP_COUNT - 2
    assert find_violations(events) == []


async def test_a_killed_actor_is_noticed_within_a_second_and_its_run_goes_on(
    tmp_path: Path,
) -> None:
    report, events, noticed, _ = await disturb(
        tmp_path, lambda worker: os.kill(worker.pids[0], signal.SIGKILL)
    )
    assert noticed <= 1.0
    check_effects(report, events, tmp_path)


async def test_an_actor_that_hangs_is_replaced_and_ends_when_it_wakes(tmp_path: Path) -> None:
    stopped: list[int] = []

    def stop(worker: RemoteWorker) -> None:
        stopped.append(worker.pids[0])
        os.kill(stopped[0], signal.SIGSTOP)

    try:
        report, events, noticed, resumed = await disturb(tmp_path, stop)
        assert noticed <= 10.0
        assert resumed >= noticed
    finally:
        if is_alive(stopped[0]):
            os.kill(stopped[0], signal.SIGCONT)
    await wait_until(lambda: not is_alive(stopped[0]))
    check_effects(report, events, tmp_path)


async def test_the_runs_go_on_when_the_ray_process_is_killed(tmp_path: Path) -> None:
    pids: list[int] = []

    def kill(worker: RemoteWorker) -> None:
        pids.extend(worker.pids)
        process = get_transport(worker)._ray_process
        assert process
        os.kill(process.pid, signal.SIGKILL)

    report, events, noticed, resumed = await disturb(tmp_path, kill)
    assert noticed <= 1.0
    assert resumed >= 8.0  # the actors may have been out of reach
    assert not any(is_alive(pid) for pid in pids)
    check_effects(report, events, tmp_path)


def test_a_killed_session_ends_its_actors_and_resumes(tmp_path: Path) -> None:
    session_id = str(uuid.UUID(int=18))
    before = list_actors()
    program = start(tmp_path, session_id, "ray:2")
    wait_for_log(tmp_path, CHILDREN * STEPS // 2)
    actors = list_actors() - before
    assert len(actors) == 2
    program.kill()
    killed = time.monotonic()
    program.communicate()
    block_until(lambda: not any(map(is_alive, actors)))
    assert time.monotonic() - killed <= 2.0
    output, _ = start(tmp_path, session_id, "ray:2").communicate(timeout=90)
    assert output.strip() == f"GOAL {DONE}"
    check_log(tmp_path)
    check_record(tmp_path, session_id)


async def test_no_key_is_in_the_files_of_ray_or_in_a_command_line(tmp_path: Path) -> None:
    canary = f"sk-ant-canary-{uuid.uuid4().hex}"
    environ = {**os.environ, "ANTHROPIC_API_KEY": canary, "HOME": str(tmp_path)}
    async with open_session(tmp_path, ScriptedModel(answer), environ=environ) as session:
        report = await session.run("PARENT")
        assert report.reason is Reason.GOAL
        for line in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                assert canary.encode() not in line.read_bytes()
            except OSError:
                continue
    for folder in (os.environ["FLEET_FOLDER"], str(tmp_path)):
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        assert [path for path in files if canary.encode() in path.read_bytes()] == []


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"RAY_ADDRESS": "ray://127.0.0.1:10001"}, "is not an address of a Ray cluster"),
        ({"RAY_ADDRESS": "127.0.0.1:1"}, "cannot reach the Ray cluster 127.0.0.1:1"),
        ({"RAY_AUTH_TOKEN": "0" * 64}, "RAY_AUTH_TOKEN_PATH has the token"),
        (
            {"RAY_AUTH_TOKEN": "", "HOME": "/nonexistent"},
            r"no authentication token was found \(worker\)\. Set RAY_AUTH_TOKEN",
        ),
    ],
    ids=["client address", "no cluster", "wrong token", "no token"],
)
async def test_a_cluster_that_cannot_be_used_is_a_usage_error(
    variables: dict[str, str], text: str, tmp_path: Path
) -> None:
    environ = {**os.environ, **variables}
    with pytest.raises(UsageError, match=text):
        async with open_session(tmp_path, ScriptedModel(answer), environ=environ):
            pass


async def test_no_actor_is_left_when_the_session_closes(tmp_path: Path) -> None:
    async with open_session(tmp_path, ScriptedModel(lambda _: "ok")) as session:
        pids = get_worker(session).pids
        assert len(pids) == 2
        await session.task("CHILD 0")
    await wait_until(lambda: not any(map(is_alive, pids)))
    assert list(tmp_path.rglob(".mudroom-check-*")) == []


def test_the_program_runs_children_on_the_cluster(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("mudroom")), "-p", "hello"]
    options = ["-o", "json", "--worker", "ray:1", "--model", "offline"]
    ended = subprocess.run(
        [*command, *options],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "MUDROOM_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["result"]


def test_children_work_on_nodes_that_do_not_see_the_folder(tmp_path: Path) -> None:
    hidden = ["bwrap", "--dev-bind", "/", "/", "--tmpfs", str(tmp_path), "--die-with-parent"]
    ended = subprocess.run(
        [*hidden, sys.executable, "-m", "tests.workers.far_program", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["reason"] == "GOAL"
    assert "\tchanged" in found["text"]
    assert "no worker process sees the folder of the session" in found["text"]
    assert found["new"] == {"1.new": "text 1\n", "2.new": "text 2\n"}
    nodes = Path(os.environ["FLEET_FOLDER"], "state", "nodes")
    assert len(list(nodes.glob("*/*/store.git"))) == 1
