"""All workers pass the conformance suite."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from mudroom._adapters.models._rate_limit import AdaptiveRateLimiter
from mudroom._adapters.workers.local import LocalWorker
from mudroom._adapters.workers.process import ProcessTransport
from mudroom._adapters.workers.remote.messages import WorkerConfig
from mudroom._adapters.workers.remote.worker import RemoteWorker
from mudroom._core.ports import Worker, WorkerTransport
from mudroom._engine.session_context import SessionServices
from mudroom._session.worker_setup.transports import SHARE_PROGRAM
from mudroom.testing.serializing_worker import SerializingWorker
from mudroom.testing.worker_conformance import CHECKS, Check, OpenWorker
from mudroom_fleet.ray_transport import RayTransport
from mudroom_fleet.shared_processes import SharedProcesses, SharedTransport

from ..worker_kinds import NEEDS_RAY

PROGRAM = "tests.workers.conformance_process:serve"


@asynccontextmanager
async def open_local(services: SessionServices) -> AsyncGenerator[Worker]:
    yield LocalWorker(services)


@asynccontextmanager
async def open_serializing(services: SessionServices) -> AsyncGenerator[Worker]:
    worker = SerializingWorker()
    worker.attach(LocalWorker(services, child_worker=worker))
    yield worker


def make_config(services: SessionServices) -> WorkerConfig:
    folder = services.environments.shared.workspace.root
    return WorkerConfig(session=services.session, folder=folder, home="", max_children=64)


@asynccontextmanager
async def open_remote(
    services: SessionServices, transport: WorkerTransport
) -> AsyncGenerator[Worker]:
    worker = RemoteWorker(
        services, make_config(services), transport, 2, lambda _: AdaptiveRateLimiter(services.clock)
    )
    try:
        yield worker
    finally:
        await worker.close()


def make_transport(program: str) -> ProcessTransport:
    return ProcessTransport((sys.executable, "-m", "mudroom._session.worker_process", program))


def open_processes(services: SessionServices) -> AbstractAsyncContextManager[Worker]:
    return open_remote(services, make_transport(PROGRAM))


@asynccontextmanager
async def open_shared(
    services: SessionServices, transport: WorkerTransport
) -> AsyncGenerator[Worker]:
    processes = SharedProcesses(transport, 2, PROGRAM)
    try:
        async with open_remote(services, SharedTransport(processes)) as worker:
            yield worker
    finally:
        await processes.close()


def open_shared_processes(services: SessionServices) -> AbstractAsyncContextManager[Worker]:
    return open_shared(services, make_transport(SHARE_PROGRAM))


def open_shared_actors(services: SessionServices) -> AbstractAsyncContextManager[Worker]:
    return open_shared(services, RayTransport(SHARE_PROGRAM, {}))


def open_actors(services: SessionServices) -> AbstractAsyncContextManager[Worker]:
    return open_remote(services, RayTransport(PROGRAM, {}))


OPENERS = [
    open_local,
    open_serializing,
    open_processes,
    open_shared_processes,
    *(pytest.param(each, marks=NEEDS_RAY) for each in (open_actors, open_shared_actors)),
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "workers", OPENERS, ids=["local", "serializing", "own", "shared", "ray", "shared ray"]
)
async def test_a_worker_conforms(check: Check, workers: OpenWorker, tmp_path: Path) -> None:
    await check(workers, tmp_path)
