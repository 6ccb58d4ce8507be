"""Values of the option `worker` with which a promise is tested."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mudroom import Session, Workers
from mudroom._adapters.models.scripted import ScriptedModel

NEEDS_RAY = [
    pytest.mark.fleet,
    pytest.mark.skipif(
        not os.environ.get("RAY_ADDRESS"), reason="needs a Ray cluster: run `make fleet`"
    ),
]
RAY = pytest.param("ray:1", marks=NEEDS_RAY)
SHARED_RAY = pytest.param("shared ray:1", marks=NEEDS_RAY)
WORKERS = ["local", "process:1", RAY]


@asynccontextmanager
async def open_workers(worker: str) -> AsyncGenerator[dict[str, Any]]:
    """Return the options of a session with a worker; "shared WORKER" shares its processes."""
    own = worker.removeprefix("shared ")
    if own == worker:
        yield {"worker": worker}
        return
    async with Workers(own) as workers:
        yield {"worker": workers}


def open_session(
    folder: Path, model: ScriptedModel, worker: str | Workers = "process:1", **options: Any
) -> Session:
    """Return a session in a folder, with its state beside the files."""
    defaults: dict[str, Any] = {
        "cwd": str(folder),
        "home": str(folder / "home"),
        "journal": "memory",
        "sandbox": "off",
    }
    return Session(model=model, worker=worker, **(defaults | options))
