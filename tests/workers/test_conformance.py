"""All workers pass the conformance suite."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mudroom._core.ports import Worker
from mudroom._engine.session_context import SessionServices
from mudroom.models._rate_limit import AdaptiveRateLimiter
from mudroom.testing.serializing_worker import SerializingWorker
from mudroom.testing.worker_conformance import CHECKS, Check
from mudroom.workers.local import LocalWorker
from mudroom.workers.process.connection import ProcessTransport
from mudroom.workers.remote.messages import WorkerConfig
from mudroom.workers.remote.worker import RemoteWorker


@asynccontextmanager
async def open_local(services: SessionServices) -> AsyncGenerator[Worker]:
    yield LocalWorker(services)


@asynccontextmanager
async def open_serializing(services: SessionServices) -> AsyncGenerator[Worker]:
    worker = SerializingWorker()
    worker.attach(LocalWorker(services, child_worker=worker))
    yield worker


@asynccontextmanager
async def open_processes(services: SessionServices) -> AsyncGenerator[Worker]:
    config = WorkerConfig(
        session=services.session,
        folder=services.environments.shared.workspace.root,
        home="",
        user_home="",
        environ=None,
        sandbox="off",
        allow_net=False,
        can_ask=False,
        permissions=b"",
        agents={},
        skills=b"",
        spill_folder=services.spill_folder,
        environment_text="",
        context_texts={},
        child_models={},
        child_budget=services.child_budget,
        reports_costs=False,
        bridged_models=(),
        max_children=64,
    )
    program = str(Path(__file__).with_name("conformance_process.py"))
    worker = RemoteWorker(
        services,
        config,
        ProcessTransport([sys.executable, program]),
        2,
        lambda _: AdaptiveRateLimiter(services.clock),
    )
    yield worker
    await worker.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_local_worker(check: Check, tmp_path: Path) -> None:
    await check(open_local, tmp_path)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_serializing_worker(check: Check, tmp_path: Path) -> None:
    await check(open_serializing, tmp_path)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_process_worker(check: Check, tmp_path: Path) -> None:
    await check(open_processes, tmp_path)
