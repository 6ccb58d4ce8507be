"""Runs in this process: a run is one coroutine, and so many at once per level of depth that none waits for its own child."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from msgspec.structs import replace

from .._core.agents import Brief, Report
from .._core.events import RunStarted
from .._core.messages import Usage
from .._engine import loop
from .._engine.meters import Meter
from .._engine.resume import finished_report
from .._engine.run_context import RunContext, SessionServices


class LocalWorker:
    """The port Worker, here.

    Arguments:
        parts: what all runs of the session share.
        most: children running at once at each depth; more wait. Root runs never wait.
    """

    def __init__(self, services: SessionServices, max_children: int = 64) -> None:
        self._services = services
        self._places: dict[int, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(max_children)
        )
        self._running: dict[str, tuple[RunContext, asyncio.Task[object]]] = {}

    async def run(self, brief: Brief, meter: Meter) -> Report:
        """Run a brief to its end, after waiting for a place; one that a dead process began goes on, one it finished is not run again."""
        if brief.depth == 0:
            return await self._run(brief, meter)
        async with self._places[brief.depth]:
            return await self._run(brief, meter)

    async def _run(self, brief: Brief, meter: Meter) -> Report:
        past = self._services.past_events.get(brief.run_id)
        if past and isinstance(past[0], RunStarted):
            if report := finished_report(past):
                meter.charge(report.usage, report.usd)
                meter.add_past_usage(
                    sum(run.startswith(f"{brief.run_id}.") for run in self._services.past_events),
                    Usage(),
                    0.0,
                )
                return report
            brief = replace(past[0].brief, history=brief.history)
            meter.set_limits(
                brief.budget
            )  # its age counts from its first beginning, and so does its time
        ctx, task = RunContext(brief, meter, self._services, self), asyncio.current_task()
        assert task is not None
        cancels = task.cancelling()
        self._running[brief.run_id] = ctx, task
        try:
            report = await loop.run(ctx)
        finally:
            del self._running[brief.run_id]
        if ctx.is_stopping and task.uncancel() > cancels:
            raise asyncio.CancelledError
        return report

    def with_services(self, parts: SessionServices) -> LocalWorker:
        """A worker for runs with parts of their own that shares places with this one."""
        worker = LocalWorker(parts)
        worker._places, worker._running = self._places, self._running
        return worker

    def cancel(self, run_id: str) -> bool:
        """Stop one run and all below it; its parent gets a CANCELLED report. False if it is not running."""
        found = self._running.get(run_id)
        if found is None or found[0].is_stopping:
            return False
        found[0].is_stopping = True
        found[1].cancel()
        return True

    def wrap_up(self, run_id: str) -> bool:
        """Stop what one run does, but let it say in a last turn what it has; its reason is CANCELLED, recovered."""
        found = self._running.get(run_id)
        if found is None:
            return False
        found[0].is_wrapping_up = True
        return self.cancel(run_id)

    def steer(self, run_id: str, word: str) -> bool:
        """Give one run a word with its next results. False if it is not running."""
        found = self._running.get(run_id)
        if found is None or found[0].is_stopping:
            return False
        found[0].inject_note(word, origin="person")
        return True
