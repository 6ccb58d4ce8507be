"""Faults of a chaos test: a schedule that a seed repeats, and the parts that they hit."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from mudroom._adapters.workers.remote.worker import RemoteWorker
from mudroom._adapters.workers.remote.worker_handle import WorkerHandle
from mudroom._platform.processes import read_process
from mudroom_fleet.ray_transport import RayTransport

from ..journals.postgres.proxy import CuttingProxy
from ..postgres_server import PostgresServer, list_children
from ..waiting import is_alive, wait_until
from .cluster import RayCluster

KINDS = (
    "kill worker",
    "stop worker",
    "kill raylet",
    "stop raylet",
    "kill driver",
    "kill database",
    "stop database",
    "cut connections",
    "cut a commit",
)
_STOPPED_SECONDS = 2.0
"""Seconds for which the database is stopped, and a worker process beyond its replacement."""


class Fault(Struct, frozen=True):
    """One fault.

    Arguments:
        after: number of ended children at which it happens.
        draw: number from 0 to 1 that chooses the part it hits.
    """

    after: int
    kind: str
    draw: float


def make_schedule(seed: int, children: int, rounds: int) -> list[Fault]:
    """Return each kind of fault once per round, in another order in each round."""
    chance = random.Random(seed)
    kinds = [kind for _ in range(rounds) for kind in chance.sample(KINDS, len(KINDS))]
    last = 0.85 * children
    return [
        Fault(int(last * (number + chance.random()) / len(kinds)), kind, chance.random())
        for number, kind in enumerate(kinds)
    ]


class Faults:
    """The parts of a session that faults hit.

    Attributes:
        noticed: seconds from a fault to the moment at which the session knew it, by kind.
        woken: times at which stopped worker processes went on, by process.
    """

    def __init__(
        self,
        worker: RemoteWorker,
        cluster: RayCluster,
        server: PostgresServer,
        proxy: CuttingProxy,
    ) -> None:
        self.noticed: dict[str, list[float]] = defaultdict(list)
        self.woken: dict[int, float] = {}
        self._worker = worker
        self._cluster = cluster
        self._server = server
        self._proxy = proxy
        self._hit: set[int] = set()
        self._node_changes = asyncio.Lock()
        self._database_changes = asyncio.Lock()

    async def apply(self, schedule: list[Fault], count_ended: Callable[[], int]) -> None:
        """Apply all faults; return when what they hit has been replaced or has ended."""
        async with asyncio.TaskGroup() as group:
            for fault in schedule:
                await wait_until_ended(fault.after, count_ended)
                group.create_task(self._apply(fault))

    async def _apply(self, fault: Fault) -> None:
        match fault.kind:
            case "kill worker" | "stop worker":
                await self._hit_worker(fault)
            case "kill raylet" | "stop raylet":
                async with self._node_changes:
                    await self._hit_raylet(fault)
            case "kill driver":
                await self._kill_driver(fault)
            case "kill database" | "stop database":
                async with self._database_changes:
                    await self._hit_database(fault)
            case "cut connections":
                self._proxy.cut_all()
            case _:
                self._proxy.faults.append(("before", "half", "after")[int(fault.draw * 3)])

    def _list_workers(self) -> list[WorkerHandle]:
        """Return the worker processes that work and that no fault has hit."""
        return [
            process
            for process in self._worker._pool.processes
            if process.pid and process.load and not process.is_lost and process.pid not in self._hit
        ]

    async def _hit_worker(self, fault: Fault) -> None:
        await wait_until(self._list_workers)
        workers = self._list_workers()
        worker = workers[int(fault.draw * len(workers))]
        pid = worker.pid
        assert pid is not None
        self._hit.add(pid)
        if fault.kind == "kill worker":
            os.kill(pid, signal.SIGKILL)
            await self._time(fault, worker)
            return
        os.kill(pid, signal.SIGSTOP)
        try:
            await self._time(fault, worker)
            await asyncio.sleep(_STOPPED_SECONDS)
        finally:
            self.woken[pid] = time.time()
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        await wait_until(lambda: not is_alive(pid))

    async def _hit_raylet(self, fault: Fault) -> None:
        """Kill or stop the daemon of a node that has a worker process; then add a node."""
        await wait_until(self._list_raylets)
        raylets = self._list_raylets()
        raylet, worker = raylets[int(fault.draw * len(raylets))]
        self._hit.add(worker.pid or 0)
        self._cluster.nodes = {
            address: pid for address, pid in self._cluster.nodes.items() if pid != raylet
        }
        if fault.kind == "kill raylet":
            os.kill(raylet, signal.SIGKILL)
            await self._time(fault, worker)
        else:
            os.kill(raylet, signal.SIGSTOP)
            try:
                await self._time(fault, worker)
            finally:
                os.kill(raylet, signal.SIGCONT)
            await wait_until(lambda: not is_alive(raylet))
        await asyncio.to_thread(self._cluster.add_node)

    def _list_raylets(self) -> list[tuple[int, WorkerHandle]]:
        """Return the daemons of nodes with worker processes, but not that of the head."""
        others = set(self._cluster.nodes.values()) - {self._cluster.head}
        parents = [(read_process(each.pid or 0), each) for each in self._list_workers()]
        return [
            (process.parent, worker)
            for process, worker in parents
            if process is not None and process.parent in others
        ]

    async def _kill_driver(self, fault: Fault) -> None:
        await wait_until(self._list_workers)
        worker = self._list_workers()[0]
        transport = self._worker._transport
        assert isinstance(transport, RayTransport)
        process = transport._ray_process
        assert process is not None
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        await self._time(fault, worker)

    async def _hit_database(self, fault: Fault) -> None:
        if fault.kind == "kill database":
            await asyncio.to_thread(self._server.kill)
            await asyncio.to_thread(self._server.start)
            return
        assert self._server.pid is not None
        pids = [self._server.pid, *list_children(self._server.pid)]
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            await asyncio.sleep(_STOPPED_SECONDS if number == signal.SIGSTOP else 0)

    async def _time(self, fault: Fault, worker: WorkerHandle) -> None:
        began = time.monotonic()
        await wait_until(lambda: worker.is_lost)
        self.noticed[fault.kind].append(time.monotonic() - began)


async def wait_until_ended(count: int, count_ended: Callable[[], int]) -> None:
    """Wait until this number of children have ended, for as long as that takes."""
    while count_ended() < count:  # noqa: ASYNC110  the test has a limit of time
        await asyncio.sleep(0.02)


def find_late_effects(log: Path, woken: dict[int, float]) -> list[str]:
    """Return the effects of stopped worker processes that began after they went on."""
    late: list[str] = []
    for line in log.read_text().splitlines():
        _, pid, at = line.split()
        if float(at) > woken.get(int(pid), float("inf")):
            late.append(line)
    return late
