"""Ends of runs in worker processes: each one frees its slot, also if something fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mudroom import Budget, Reason
from mudroom._adapters.models._rate_limit import AdaptiveRateLimiter
from mudroom._adapters.workers.remote.messages import RunReply, StartRun
from mudroom._adapters.workers.remote.worker import RemoteWorker
from mudroom._core.ports import RunHandle
from mudroom._core.runs import Report
from mudroom._engine.recorded_conversations import PastEvents
from mudroom._engine.session_context import SessionServices
from mudroom.testing.event_builders import run_started
from mudroom.testing.worker_stage import WorkerStage

from ..waiting import wait_until
from .test_conformance import make_config
from .test_worker_handle import ScriptedConnection


class ScriptedTransport:
    """The port WorkerTransport for worker processes that a test plays."""

    kind = "process"
    is_far = False
    is_shared = False

    def __init__(self) -> None:
        self.connections: list[ScriptedConnection] = []

    def connect(self) -> ScriptedConnection:
        self.connections.append(ScriptedConnection())
        return self.connections[-1]

    async def close(self) -> None:
        pass

    def list_started(self) -> list[str]:
        sent = [each for connection in self.connections for each in connection.sent]
        return [each.brief.run_id for each in sent if isinstance(each, StartRun)]


class OneSlot:
    """A worker that executes one child at once, in one worker process that a test plays."""

    def __init__(self, services: SessionServices) -> None:
        self.transport = ScriptedTransport()
        self._services = services
        config = replace(make_config(services), max_children=1)
        limiter = AdaptiveRateLimiter(services.clock)
        self.worker = RemoteWorker(services, config, self.transport, 1, lambda _: limiter)

    def start(self, run_id: str) -> RunHandle:
        brief = replace(run_started(run_id).brief, depth=1)
        return self.worker.start(brief, self._services.meters.open(run_id, Budget()))

    def report(self, run_id: str) -> None:
        report = Report[dict[str, Any]](text="done", reason=Reason.GOAL, run_id=run_id, outputs={})
        self.transport.connections[-1].arrive(RunReply(run_id, report))


@asynccontextmanager
async def open_slot(services: SessionServices) -> AsyncGenerator[OneSlot]:
    slot = OneSlot(services)
    yield slot
    await slot.worker.close()


class BrokenPast(PastEvents):
    """Past events that cannot be read."""

    def walk_below(self, run_id: str) -> Iterator[str]:
        raise ValueError("the record is damaged")


async def test_a_run_whose_past_cannot_be_read_frees_its_slot(tmp_path: Path) -> None:
    past = BrokenPast({"1.1": [run_started("1.1")]})
    services = replace(WorkerStage(tmp_path).services, past_events=past)
    async with open_slot(services) as slot:
        with pytest.raises(ValueError, match="the record is damaged"):
            await slot.start("1.1").report()
        handle = slot.start("1.2")
        await wait_until(slot.transport.list_started)
        slot.report("1.2")
        assert (await handle.report()).text == "done"


async def test_a_run_whose_state_cannot_be_closed_ends_and_frees_its_slot(tmp_path: Path) -> None:
    async with open_slot(WorkerStage(tmp_path).services) as slot:
        first, second = slot.start("1.1"), slot.start("1.2")
        await wait_until(slot.transport.list_started)
        assigned = slot.worker._handles["1.1"].assigned
        assert assigned is not None
        ended = asyncio.get_running_loop().create_future()
        ended.set_result(True)
        assigned._waiting["1.1", "message"] = ended
        slot.report("1.1")
        assert (await first.report()).text == "done"
        await wait_until(lambda: slot.transport.list_started() == ["1.1", "1.2"])
        slot.report("1.2")
        assert (await second.report()).text == "done"
