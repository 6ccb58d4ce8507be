"""`mudroom batch --worker process:2`: lines run in worker processes, with the same results."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

from tests.waiting import is_alive, wait_until

from .test_interruptions import BatchProcess, hold_answers

LINES = 12
FLAGS = ("in.jsonl", "--parallel", "6", "-m", "anthropic:claude-x", "--worker", "process:2")


async def list_workers(batch: BatchProcess) -> list[dict[str, Any]]:
    """Return the worker processes that `mudroom fleet status` shows."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mudroom", "fleet", "status", "--json"),
        env=batch.environ,
        stdout=PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return [worker for status in json.loads(out) for worker in status["workers"]]


def describe_results(batch: BatchProcess) -> dict[str, dict[str, Any]]:
    """Return the results by id, without what differs from run to run."""
    changing = ("custom_id", "run", "seconds")
    return {
        line["custom_id"]: {key: line[key] for key in line if key not in changing}
        for line in batch.read()
    }


async def test_lines_run_in_both_worker_processes_and_end_as_without_them(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with hold_answers(tmp_path / "a", LINES) as (server, batch, go_on):
        process = await batch.start(*FLAGS)
        await wait_until(lambda: server.in_flight == 6)
        workers = await list_workers(batch)
        assert [len(worker["running"]) for worker in workers] == [3, 3]
        pids = {worker["pid"] for worker in workers}
        assert len(pids) == 2
        assert process.pid not in pids
        go_on.set()
        _, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        await wait_until(lambda: not any(map(is_alive, pids)))
        local = BatchProcess(tmp_path / "b", server, LINES)
        process = await local.start(*FLAGS[:-2])
        await process.communicate()
        assert process.returncode == 0
        batch.check_complete()
        assert describe_results(batch) == describe_results(local)
