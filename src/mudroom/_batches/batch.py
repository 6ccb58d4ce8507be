"""Batch: starts the lines of an input as tasks of a session, `parallel` at a time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any

from msgspec import Struct

from .._core.runs import Reason, Report
from .._session.session import Session
from ..errors import JournalError, SessionPaused, UsageError
from .control import BatchChange
from .line_formats import BatchLine
from .recorded_results import BatchRecord, TaskKey
from .results import ResultFile, ResultFormat, encode_result
from .status import BatchStatus, Rates, RequestCounter

OpenPlace = Callable[[], AbstractAsyncContextManager[None]]
"""Function that returns the context in which one line runs; the line waits until it is entered."""

_MAX_UNAVAILABLE = 20
"""Lines in a row that end because the provider is unreachable, before no further line starts."""
_SKIPPED_AT_ONCE = 2_000
"""Finished lines that are skipped before other tasks get the event loop."""


class BatchPlan(Struct, frozen=True):
    """The input of a batch and its options.

    Arguments:
        total: number of lines. lines: yields them.
        agent: agent of lines that name none. model: "" for that of the agent.
        usd_limit: US dollars for all lines; None for no limit.
    """

    total: int
    lines: Callable[[], Iterator[BatchLine]]
    output: str
    agent: str
    model: str = ""
    parallel: int = 64
    kind: ResultFormat = "native"
    usd_limit: float | None = None


class Batch:
    """A batch that runs in an open session.

    Arguments:
        record: what earlier processes did.
        results: the output, with the results of the record.
        open_place: gives each line its place.

    Attributes:
        parallel: lines that may run at the same time; change it with `apply`.
        stop_cause: why no further lines start, "" while they do.
        is_unavailable: true if that is because the provider is unreachable.
    """

    def __init__(
        self,
        session: Session,
        plan: BatchPlan,
        record: BatchRecord,
        results: ResultFile,
        *,
        open_place: OpenPlace = nullcontext,
    ) -> None:
        self.parallel = plan.parallel
        self.stop_cause = ""
        self.is_unavailable = False
        self._session = session
        self._plan = plan
        self._record = record
        self._results = results
        self._reasons: Counter[str] = Counter(record.reasons)
        self._requests = RequestCounter()
        self._started_at = time.monotonic()
        self._rates = Rates(self._started_at)
        self._earlier = self.done
        self._changed = asyncio.Event()
        self._tasks = LineTasks(open_place, self._changed.set)
        self._change = BatchChange(0, is_paused=False)
        self._unavailable = 0

    @property
    def done(self) -> int:
        """Number of lines that have a result."""
        return sum(self._reasons.values())

    @property
    def has_reached_all_goals(self) -> bool:
        """True if all lines have the reason GOAL."""
        return self._reasons[Reason.GOAL.value] == self._plan.total

    async def run(self) -> None:
        """Continue interrupted lines, run the others, and wait for all that have started.

        Raises JournalError, OSError if the output cannot be written, and UsageError if no run can
        start, or the input has changed meanwhile.
        """
        stop_watching = self._session.watch(self._requests.observe)
        try:
            async with asyncio.TaskGroup() as group:
                await self._start_all(group)
        except* SessionPaused:
            pass
        except* Exception as errors:  # noqa: BLE001  (raised again below)
            raise errors.exceptions[0] from None
        finally:
            stop_watching()

    def stop(self, cause: str) -> None:
        """Start no further lines."""
        self.stop_cause = self.stop_cause or cause
        self._tasks.cancel_waiting()
        self._changed.set()

    def cancel(self) -> None:
        """Start no further lines, and stop those that run. The next process runs them again."""
        self.stop("cancelled")
        self._session.cancel()

    def pause(self) -> None:
        """Start no further lines, and pause those that run. The next process continues them."""
        self.stop("paused")
        self._session.pause()

    def apply(self, change: BatchChange) -> None:
        """Carry out a change that another process asks for."""
        is_paused = self._change.is_paused if change.is_paused is None else change.is_paused
        self._change = BatchChange(change.number, is_paused=is_paused)
        self.parallel = change.parallel or self.parallel
        self._changed.set()

    def make_status(self, *, has_ended: bool = False) -> BatchStatus:
        """Return the numbers of this moment."""
        plan = self._plan
        now = time.monotonic()
        done = self.done
        lines, requests = self._rates.add(now, done - self._earlier, self._requests.answered)
        return BatchStatus(
            session=self._session.id,
            output=plan.output,
            total=plan.total,
            done=done,
            running=len(self._tasks),
            reasons=dict(self._reasons),
            parallel=self.parallel,
            state="ended" if has_ended else self._state,
            waits_for=self._find_obstacle(),
            requests=self._requests.answered,
            tokens=self._record.tokens,
            usd=round(self._record.usd, 6),
            usd_limit=plan.usd_limit,
            lines_per_second=round(lines, 3),
            requests_per_second=round(requests, 3),
            seconds_left=round((plan.total - done) / lines, 1) if lines else None,
            seconds=round(now - self._started_at, 1),
            change=self._change.number,
        )

    @property
    def _state(self) -> str:
        if self.stop_cause:
            return "stopping"
        return "paused" if self._change.is_paused else "running"

    def _find_obstacle(self) -> str:
        """Return what keeps further lines from starting, "" for nothing."""
        repeated = len(self._requests.repeated)
        if repeated and repeated >= len(self._tasks) / 2:
            return "provider"
        if self._change.is_paused:
            return "resume"
        return "parallel" if len(self._tasks) >= self.parallel else ""

    async def _start_all(self, group: asyncio.TaskGroup) -> None:
        for run_id, key in list(self._record.open_runs.items()):
            if not await self._wait_for_place():
                return
            self._tasks.start(group, partial(self._resume, run_id, key))
        if self._earlier == self._plan.total:
            return  # each line has a result
        open_digests = {key.digest for key in self._record.open_runs.values()}
        skipped = 0
        for line in self._plan.lines():
            digest = line.compute_key()
            if digest in self._record.finished or digest in open_digests:
                skipped += 1
                if skipped % _SKIPPED_AT_ONCE == 0:
                    await asyncio.sleep(0)
                continue
            if not await self._wait_for_place():
                return
            attempt = self._record.attempts.get(digest, 0)
            self._tasks.start(group, partial(self._run, line, TaskKey(digest, attempt, line.id)))

    async def _wait_for_place(self) -> bool:
        """Wait until one more line may run. Return False if none may start any more."""
        while not self.stop_cause:
            limit = self._plan.usd_limit
            if limit is not None and self._record.usd >= limit:
                self.stop("the budget is used up")
            elif self._change.is_paused or len(self._tasks) >= self.parallel:
                self._changed.clear()
                await self._changed.wait()
            else:
                return True
        return False

    async def _run(self, line: BatchLine, key: TaskKey) -> None:
        try:
            report = await self._session.task(
                line.prompt,
                agent=line.agent or self._plan.agent,
                model=line.model or self._plan.model or None,
                budget=line.make_budget(),
                outputs=line.outputs,
                description=line.id[:60],
                key=key.encode(),
            )
        except (JournalError, UsageError):
            raise
        except Exception as error:  # noqa: BLE001  one line must not stop the others
            report = _make_error_report(error)
        self._finish(key, report)

    async def _resume(self, run_id: str, key: TaskKey) -> None:
        self._finish(key, await self._session.resume_task(run_id))

    def _finish(self, key: TaskKey, report: Report[Any]) -> None:
        self._record.usd += report.usd or 0.0
        self._record.tokens += report.usage.total_tokens
        if report.reason is Reason.CANCELLED:
            return  # no result: the next process runs the line again
        self._reasons[report.reason.value] += 1
        self._results.add(encode_result(key.id, report, self._plan.kind))
        self._count_unavailable(report)

    def _count_unavailable(self, report: Report[Any]) -> None:
        """Stop after many lines in a row that ended because the provider was unreachable."""
        is_transient = report.run_id in self._requests.unavailable
        self._requests.unavailable.discard(report.run_id)
        is_unavailable = report.reason in (Reason.ERROR, Reason.TIMEOUT) and is_transient
        self._unavailable = self._unavailable + 1 if is_unavailable else 0
        if self._unavailable >= _MAX_UNAVAILABLE:
            self.is_unavailable = True
            self.stop(f"the provider refused {_MAX_UNAVAILABLE} lines in a row: {report.error}")


def _make_error_report(error: Exception) -> Report[Any]:
    text = f"{type(error).__name__}: {error}"
    return Report(text="", reason=Reason.ERROR, run_id="", error=text, outputs=dict[str, Any]())


class LineTasks:
    """The lines that have started and not ended.

    Arguments:
        open_place: gives each line its place. on_end: called when a line has ended.
    """

    def __init__(self, open_place: OpenPlace, on_end: Callable[[], object]) -> None:
        self._open_place = open_place
        self._on_end = on_end
        self._started: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._started)

    def start(
        self, group: asyncio.TaskGroup, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Run a line when it has a place."""
        task = group.create_task(self._run(work))
        self._started.add(task)
        self._waiting.add(task)
        task.add_done_callback(self._discard)

    def cancel_waiting(self) -> None:
        """Cancel the lines that have no place yet."""
        for task in self._waiting:
            task.cancel()

    async def _run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with self._open_place():
            if task := asyncio.current_task():
                self._waiting.discard(task)
            await work()

    def _discard(self, task: asyncio.Task[None]) -> None:
        self._started.discard(task)
        self._waiting.discard(task)
        self._on_end()
