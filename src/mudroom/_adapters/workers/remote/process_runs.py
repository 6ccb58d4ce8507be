"""ProcessRuns: the runs that a worker process has, and how long it may be silent with them."""

from __future__ import annotations

import asyncio

from ...._core.ports import WorkerConnection
from ...._core.runs import find_parent_id, make_sort_key
from ...._platform.processes import Activity
from .assigned_run import AssignedRun

_LOOK_SECONDS = 0.25
"""Longest time between two looks at what a process has sent."""


class WorkerLost(Exception):
    """The worker process ended while it executed a run, or could not execute it. It says why.

    Arguments:
        is_suspect: false if other runs of the process were more likely the cause.
        has_hung: true if it was killed because it did not answer.
    """

    def __init__(self, reason: str, *, is_suspect: bool = True, has_hung: bool = False) -> None:
        super().__init__(reason)
        self.is_suspect = is_suspect
        self.has_hung = has_hung


class ProcessRuns:
    """The runs that the session gave to one worker process and that have not ended."""

    def __init__(self) -> None:
        self._has_hung = False
        self._runs: dict[str, AssignedRun] = {}
        self._stopping: set[str] = set()
        self._becomes_idle: asyncio.Future[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, assigned: AssignedRun, connection: WorkerConnection) -> None:
        """Add a run. While there is one, a process that does not answer is killed."""
        self._runs[assigned.run_id] = assigned
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(connection))

    def remove(self, assigned: AssignedRun) -> None:
        """Remove a run that has ended here."""
        del self._runs[assigned.run_id]
        if not self._runs:
            self._stopping.clear()
            if self._becomes_idle and not self._becomes_idle.done():
                self._becomes_idle.set_result(None)

    def __getitem__(self, run_id: str) -> AssignedRun:
        return self._runs[run_id]

    def get(self, run_id: str) -> AssignedRun | None:
        """Return the run with the id."""
        return self._runs.get(run_id)

    def find(self, run_id: str) -> AssignedRun | None:
        """Return the run that has the id, or that is above it."""
        while run_id and run_id not in self._runs:
            run_id = find_parent_id(run_id)
        return self._runs.get(run_id)

    def list_ids(self) -> tuple[tuple[str, ...], int]:
        """Return the ids of the runs that work, with those below them, and how many wait."""
        live = [run_id for assigned in self._runs.values() for run_id in assigned.live]
        waiting = sum(run_id not in assigned.live for run_id, assigned in self._runs.items())
        return tuple(sorted(live, key=make_sort_key)), waiting

    async def wait_until_idle(self) -> None:
        """Wait until there are no runs."""
        if self._runs:
            self._becomes_idle = asyncio.get_running_loop().create_future()
            await self._becomes_idle

    def expect_end(self, run_id: str) -> None:
        """Note that a run was told to stop: the process must answer sooner until it has ended."""
        self._stopping.add(run_id)

    def lose(self, reason: str) -> None:
        """Tell the runs that their process was lost.

        A run with an open call is a suspect; the others are not, unless nothing else is known.
        """
        runs = list(self._runs.values())
        suspects = [run for run in runs if any(map(run.find_current_call, run.live))] or runs
        for run in runs:
            lost = WorkerLost(reason, is_suspect=run in suspects, has_hung=self._has_hung)
            run.on_outcome(lost)

    def close(self) -> None:
        """Stop the watch of a process that is lost or closed."""
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self, connection: WorkerConnection) -> None:
        """Kill the process if it is silent for too long.

        Looks are counted, not seconds: a process is not to blame while this one was stopped, or
        the machine asleep.
        """
        arrivals, silence, able = connection.arrivals, 0.0, 0.0
        activity = connection.read_activity()
        while self._runs:
            limits = connection.answer_limits
            look = _LOOK_SECONDS if limits is None else min(_LOOK_SECONDS, limits.silence / 4)
            await asyncio.sleep(look)
            before, activity = activity, connection.read_activity()
            if limits is None or connection.arrivals != arrivals:
                arrivals, silence, able = connection.arrivals, 0.0, 0.0
                continue
            silence += look
            able += _compute_able_seconds(look, before, activity)
            longest = limits.silence if arrivals > 0 else limits.start
            if silence >= longest or (able >= limits.stop and self._must_end_soon()):
                self._has_hung = True
                connection.kill(f"it did not answer for {silence:g} s")

    def _must_end_soon(self) -> bool:
        """Return whether a run was told to stop, or has used up its time."""
        is_stopping = any(map(self._is_stopping, self._stopping))
        return is_stopping or any(run.is_overdue for run in self._runs.values())

    def _is_stopping(self, run_id: str) -> bool:
        assigned = self.find(run_id)
        return assigned is not None and (run_id in self._runs or run_id in assigned.live)


def _compute_able_seconds(look: float, before: Activity | None, after: Activity | None) -> float:
    """Return for how much of a look the process could have answered.

    One that wants a processor could do so only while it had one. One that sleeps, is stopped, or
    waits for a disk had all the time.
    """
    if before is None or after is None or not after.is_runnable:
        return look
    return min(look, max(0.0, after.cpu_seconds - before.cpu_seconds))
