"""How long a worker process may be silent depends on whether it could have answered."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mudroom._adapters.workers.remote.assigned_run import ProcessRuns
from mudroom._core.ports import AnswerLimits
from mudroom._platform.processes import Activity, read_activity

from ..waiting import wait_until

LOOK = 0.25


class SilentConnection:
    """The part of the port WorkerConnection that the watch uses, of a process that is silent.

    Arguments:
        is_runnable: see Activity; None if nothing is known about the process.
        share: of a processor that the process gets.
    """

    arrivals = 1
    answer_limits = AnswerLimits(start=600, silence=6 * LOOK, stop=LOOK)

    def __init__(self, is_runnable: bool | None, share: float) -> None:
        self._is_runnable = is_runnable
        self._share = share
        self._looks = 0
        self.killed = asyncio.Event()
        self.reason = ""

    def read_activity(self) -> Activity | None:
        self._looks += 1
        if self._is_runnable is None:
            return None
        return Activity(self._is_runnable, self._looks * self._share * LOOK)

    def kill(self, reason: str) -> None:
        self.reason = self.reason or reason
        self.killed.set()


@pytest.mark.parametrize(
    ("is_runnable", "share", "looks"),
    [
        pytest.param(False, 0, 1, id="sleeps or is stopped"),
        pytest.param(True, 1, 1, id="holds the interpreter"),
        pytest.param(True, 0.5, 2, id="holds the interpreter, on a loaded machine"),
        pytest.param(True, 0.02, 6, id="gets hardly any time of a processor"),
        pytest.param(True, 0, 6, id="gets no time of a processor"),
        pytest.param(None, 0, 1, id="unknown"),
    ],
)
async def test_a_process_that_waits_for_a_processor_may_answer_later(
    is_runnable: bool | None, share: float, looks: int
) -> None:
    """A cancelled run gives it one look; without a processor it has the full time for silence."""
    connection, runs = SilentConnection(is_runnable, share), ProcessRuns()
    run: Any = SimpleNamespace(run_id="1", live={"1"}, is_overdue=False)
    runs.add(run, cast("Any", connection))
    runs.expect_end("1")
    await connection.killed.wait()
    runs.close()
    assert connection.reason == f"it did not answer for {looks * LOOK:g} s"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_the_activity_of_a_process_is_read() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "while True: pass")

    def read() -> Activity:
        activity = read_activity(process.pid)
        assert activity
        return activity

    try:
        await wait_until(lambda: read().cpu_seconds > 0 and read().is_runnable)
        os.kill(process.pid, signal.SIGSTOP)
        await wait_until(lambda: not read().is_runnable)
    finally:
        process.kill()
        await process.wait()
    assert read_activity(process.pid) is None
