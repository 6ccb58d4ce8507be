"""Workers of this process pass the conformance suite, also when all that crosses the port is serialised."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mudroom._core.ports import Worker
from mudroom._engine.session_context import SessionServices
from mudroom.testing.serializing_worker import SerializingWorker
from mudroom.testing.worker_conformance import CHECKS, Check
from mudroom.workers.local import LocalWorker


@asynccontextmanager
async def open_local(services: SessionServices) -> AsyncGenerator[Worker]:
    yield LocalWorker(services)


@asynccontextmanager
async def open_serializing(services: SessionServices) -> AsyncGenerator[Worker]:
    worker = SerializingWorker()
    worker.attach(LocalWorker(services, child_worker=worker))
    yield worker


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_local_worker(check: Check, tmp_path: Path) -> None:
    await check(open_local, tmp_path)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_serializing_worker(check: Check, tmp_path: Path) -> None:
    await check(open_serializing, tmp_path)
