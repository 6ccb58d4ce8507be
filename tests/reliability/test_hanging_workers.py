"""Ctrl-C, SIGTERM and a time limit end a session whose worker process hangs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from mudroom import ToolCallBlock
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._platform.processes import list_processes
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from ..waiting import is_alive, wait_until
from .conftest import CheckRecord
from .test_signals import make_environ

BUSY_SECONDS = 6.0
"""Longest end on a busy machine: less than the time until silence alone ends the worker."""


def find_workers(parent: int) -> list[int]:
    """Return the worker processes that a session has started."""
    return [
        process.pid
        for process in list_processes()
        if process.parent == parent
        and b"mudroom._session.worker_process" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    ]


@pytest.mark.parametrize("stop", ["SIGINT", "SIGTERM", "time limit"])
async def test_s8_a_session_ends_although_its_worker_processes_are_stopped(
    tmp_path: Path, stop: str, check_record: CheckRecord
) -> None:
    has_begun, is_stopped = asyncio.Event(), asyncio.Event()

    async def answer(request: ServerRequest) -> ServerAnswer:
        is_parent = "task" in request.tools
        if is_parent and not request.turn:
            return tuple(ToolCallBlock(f"t{n}", "task", {"prompt": f"CHILD {n}"}) for n in range(2))
        if is_parent:
            return "The end."
        has_begun.set()
        await is_stopped.wait()
        return "done"

    work = tmp_path / "work"
    work.mkdir()
    async with ModelServer(answer) as server:
        words = [sys.executable, "-m", "mudroom", "--model", "anthropic:claude-sonnet-4-5"]
        words += ["--worker", "process:2", "--sandbox", "off", "-p", "PARENT"]
        words += ["--max-minutes", "0.1"] if stop == "time limit" else []
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *words, cwd=work, env=make_environ(tmp_path, server.url), stdout=pipe, stderr=pipe
        )
        await has_begun.wait()
        workers = find_workers(process.pid)
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        is_stopped.set()
        begin = time.monotonic()
        if stop != "time limit":
            process.send_signal(signal.Signals[stop])
        out, err = await process.communicate()
        seconds = time.monotonic() - begin
    assert workers and b"Traceback" not in err
    for pid in workers:
        await wait_until(lambda pid=pid: not is_alive(pid))
    if stop == "time limit":
        assert (process.returncode, out) == (0, b"The end.\n")
        assert b"Time limit" in err
    else:
        assert seconds < BUSY_SECONDS
        assert process.returncode == 128 + signal.Signals[stop]
    if stop == "SIGTERM":
        assert b"the run is paused" in err  # so its runs have no end
        return
    await check_record(open_reader(next((tmp_path / "home").glob("sessions/*.db"))).read())
