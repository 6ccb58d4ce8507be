"""Chaos: a session on Ray and PostgreSQL keeps its promises while its parts are killed and stopped.

The short form has 200 children and each kind of fault once. MUDROOM_LONG=1 has 1,000 children and
each kind three times. MUDROOM_SEED=N repeats the schedule of a seed.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

from mudroom import AnyEvent, Budget, Children, Reason, Session
from mudroom._adapters.journals.sessions import read_events
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._adapters.workers.remote.worker import MAX_STARTS, RemoteWorker
from mudroom._core.events import RunFinished, RunResumed, StoredEvent, TurnFinished
from mudroom._core.messages import NO_USAGE
from mudroom.testing.invariants import Violation, find_violations
from mudroom_postgres import journal as postgres_journal
from mudroom_postgres.store import PostgresStore

from ..journals.postgres.proxy import CuttingProxy
from ..postgres_server import PostgresServer, find_program
from ..waiting import SECONDS
from ..worker_kinds import NEEDS_RAY
from .cluster import RayCluster
from .faults import Faults, find_late_effects, make_schedule

LONG = bool(os.environ.get("MUDROOM_LONG"))
CHILDREN, ROUNDS = (1_000, 3) if LONG else (200, 1)
AT_ONCE = 60
STEPS = 3
NODES = 3
ANSWER_SECONDS = (0.2, 1.0)
GOALS = {"kill worker": 1.0, "kill raylet": 5.0, "stop worker": 10.0, "stop raylet": 10.0}
"""Seconds in which a session must know a fault, when its event loop is not late."""

pytestmark = NEEDS_RAY


@pytest.fixture
def cluster() -> Generator[RayCluster]:
    """Start a cluster of three nodes."""
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp", ignore_cleanup_errors=True) as at:
        cluster = RayCluster(Path(at))
        try:
            for _ in range(NODES):
                cluster.add_node()
            yield cluster
        finally:
            cluster.remove()


@pytest.fixture
def server() -> Generator[PostgresServer]:
    """Start a server that writes to disk before it acknowledges."""
    if not find_program("initdb"):
        pytest.skip("PostgreSQL is not installed")
    server = PostgresServer(settings=())
    try:
        server.start()
        yield server
    finally:
        server.remove()


class Family:
    """A parent of many children, each of which appends lines to a file.

    Attributes:
        answered: number of answers by prompt and turn.
        ended: number of children whose end is recorded.
        lag: longest delay of the event loop, in seconds.
    """

    def __init__(self, seed: int) -> None:
        self.answered: Counter[tuple[str, int]] = Counter()
        self.ended = 0
        self.lag = 0.0
        self._chance = random.Random(seed)

    async def answer(self, request: Request) -> Answer:
        """Answer a request."""
        self.answered[request.prompt, request.turn] += 1
        if request.prompt == "PARENT":
            if not request.turn:
                return [call("task", prompt=f"CHILD {number}") for number in range(CHILDREN)]
            return f"{len(request.results)} reports"
        await asyncio.sleep(self._chance.uniform(*ANSWER_SECONDS))
        if request.turn < STEPS:
            return call("bash", command=make_command(f"{request.prompt[6:]}-{request.turn}"))
        return f"{request.prompt} is done"

    def watch(self, event: AnyEvent) -> None:
        """Count the children that end."""
        self.ended += isinstance(event, RunFinished)

    async def measure_lag(self) -> None:
        """Measure the delay of the event loop until cancelled."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.05)
            self.lag = max(self.lag, time.monotonic() - began - 0.05)


def make_command(name: str) -> str:
    """Return a command that appends its name, its worker process and the time to a file."""
    return f"echo {name} $PPID $EPOCHREALTIME >> log"


@pytest.mark.timeout(1_800)
async def test_a_session_keeps_its_promises_while_its_parts_fail(
    cluster: RayCluster,
    server: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(postgres_journal, "_ATTEMPT_SECONDS", 5.0)
    seed = int(os.environ.get("MUDROOM_SEED", "18"))
    family = Family(seed)
    proxy = CuttingProxy(server.port)
    port = await proxy.start()
    database = server.create_database()
    name = database.rpartition("/")[2]
    began = time.monotonic()
    async with Session(
        model=ScriptedModel(family.answer),
        cwd=str(tmp_path),
        home=str(tmp_path / "home"),
        sandbox="off",
        store=server.make_url(name, port),
        worker=f"ray:{NODES}",
        environ={**os.environ, "RAY_ADDRESS": cluster.address},
        children=Children(parallel=AT_ONCE),
        budget=Budget(total_tokens=1_000_000_000),
    ) as session:
        session.watch(family.watch)
        worker = session._require_open().resources.worker
        assert isinstance(worker, RemoteWorker)
        faults = Faults(worker, cluster, server, proxy)
        measuring = asyncio.create_task(family.measure_lag())
        applying = asyncio.create_task(
            faults.apply(make_schedule(seed, CHILDREN, ROUNDS), lambda: family.ended)
        )
        try:
            report = await session.run("PARENT")
            seconds = time.monotonic() - began
            assert report.reason is Reason.GOAL, report.error
            async with asyncio.timeout(2 * SECONDS):
                await applying
        finally:
            await end_tasks(measuring, applying)
        meter = session._require_open().meter
        spent = meter.usage + meter.descendant_usage
        assert not any(account.granted for account in meter.accounts.values())
    await proxy.close()
    events = await read_events(PostgresStore(database), session.id)
    with capsys.disabled():
        print(f"\nseed {seed}: {CHILDREN} children in {seconds:.0f} s, lag {family.lag:.1f} s")
        print(describe(family, faults, events))
    assert report.text == f"{CHILDREN} reports"
    assert spent == sum_usage(events)
    check_children(events)
    check_effects(events, tmp_path / "log")
    assert find_late_effects(tmp_path / "log", faults.woken) == []
    counted = "SELECT count(*), min(n), max(n) FROM mudroom.events"
    assert server.run_sql(counted, name) == f"{len(events)}|1|{len(events)}"
    for kind, goal in GOALS.items():
        assert max(faults.noticed[kind]) <= goal + family.lag, kind


async def end_tasks(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks and wait for their end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def sum_usage(events: list[StoredEvent]) -> object:
    """Return what all recorded answers used."""
    answers = [event for event in events if isinstance(event, TurnFinished)]
    return sum((event.message.usage for event in answers), NO_USAGE)


def check_children(events: list[StoredEvent]) -> None:
    """Check that each child has one report, and that only runs with three losses are LOST."""
    ends = [event for event in events if isinstance(event, RunFinished)]
    assert len(ends) == len({event.run for event in ends}) == CHILDREN + 1
    for event in ends:
        if event.report.reason is not Reason.GOAL:
            assert event.report.reason is Reason.LOST
            assert event.report.error.startswith(f"could not be executed in {MAX_STARTS} worker")


def check_effects(events: list[StoredEvent], log: Path) -> None:
    """Check the record, and compare it with the commands that were executed."""
    lines = log.read_text().splitlines()
    effects = Counter(make_command(line.split()[0]) for line in lines)
    # On a busy machine a process can be late between two looks at the clock.
    violations = find_violations(events, effects=effects, timed=False)
    assert not violations, list_broken(events, violations)


def list_broken(events: list[StoredEvent], violations: list[Violation]) -> str:
    """Return violations, and the events of their runs."""
    runs = {violation.run for violation in violations} - {"", "1"}
    lines = [f"{n} {event}"[:300] for n, event in enumerate(events, 1) if event.run in runs]
    return "\n".join([*map(str, violations), *lines])


def describe(family: Family, faults: Faults, events: list[StoredEvent]) -> str:
    """Return the figures of a session."""
    reasons = Counter(str(e.report.reason) for e in events if isinstance(e, RunFinished))
    resumed = sum(isinstance(event, RunResumed) for event in events)
    again = sum(family.answered.values()) - len(family.answered)
    times = {
        kind: [round(each, 2) for each in sorted(noticed)]
        for kind, noticed in sorted(faults.noticed.items())
    }
    return (
        f"noticed after {times} s; {dict(reasons)}; {len(events)} events; "
        f"{resumed} runs resumed, {again} answers requested again"
    )
