"""Runs an input's lines, `parallel` at a time, resuming where earlier processes stopped."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from contextlib import aclosing
from typing import Any

from msgspec import Struct

from ..._core.events import RunFinished, RunStarted, StoredEvent
from ..._core.runs import Reason, Report
from ..._session.session import Session
from ...errors import JournalError, SessionPaused, UsageError
from .input_file import BatchLine
from .results import ResultFile, ResultFormat, encode_result
from .status import BatchStatus, Rates, RequestCounter

# Event types from which the record is built.
RECORD_TYPES = (RunStarted, RunFinished)


class TaskKey(Struct, frozen=True, gc=False):
    """Key of a line's run, as in its brief: `<digest>.<attempt> <id>`.

    The first attempt is 0.
    """

    digest: int
    attempt: int
    id: str

    def encode(self) -> str:
        return f"{self.digest:016x}.{self.attempt} {self.id}"


def parse_key(text: str) -> TaskKey | None:
    numbers, _, line_id = text.partition(" ")
    digest, _, attempt = numbers.partition(".")
    try:
        return TaskKey(int(digest, 16), int(attempt), line_id)
    except ValueError:
        return None


class BatchRecord:
    """The progress of a batch. `Batch` keeps the sums up to date.

    A line may have run several times: its last result counts, and it has none while its last run is
    open. `finished` and `attempts` (the number of the next run) are keyed by the digest of the
    line's key, `open_runs` by run id. `superseded` counts a line's results before the one that
    counts. Costs and tokens include all runs.
    """

    def __init__(self) -> None:
        self.finished: dict[int, Reason] = {}
        self.open_runs: dict[str, TaskKey] = {}
        self.attempts: dict[int, int] = {}
        self.reasons: Counter[str] = Counter()
        self.usd = 0.0
        self.tokens = 0
        self.superseded: Counter[str] = Counter()

    def count(self, report: Report[Any]) -> None:
        self.usd += report.usd or 0.0
        self.tokens += report.usage.total_tokens

    def finish(self, key: TaskKey, reason: Reason) -> None:
        self.finished[key.digest] = reason
        self.reasons[reason.value] += 1


class RecordReader:
    """Reads a batch's record, and writes the results it finds.

    Runs of lines not in `wanted` are left out; lines with reasons in `again` run again. The output
    is not yet published.
    """

    def __init__(
        self,
        wanted: Collection[int],
        again: Collection[Reason],
        results: ResultFile,
        kind: ResultFormat,
    ) -> None:
        self.record = BatchRecord()
        self._wanted = wanted
        self._again = again
        self._results = results
        self._kind: ResultFormat = kind
        self._replaced: dict[str, Reason] = {}

    def apply(self, event: StoredEvent) -> None:
        record = self.record
        if isinstance(event, RunStarted):
            # A line's children also have briefs.
            key = None if event.brief.parent else parse_key(event.brief.key)
            if key and key.digest in self._wanted:
                self._start(event.run, key)
        elif isinstance(event, RunFinished) and event.run in record.open_runs:
            self._finish(event.run, record.open_runs.pop(event.run), event.report)

    def _start(self, run: str, key: TaskKey) -> None:
        record = self.record
        record.open_runs[run] = key
        if reason := record.finished.pop(key.digest, None):
            self._replaced[run] = reason
            record.reasons[reason.value] -= 1
            record.superseded[key.id] += 1

    def _finish(self, run: str, key: TaskKey, report: Report[Any]) -> None:
        record = self.record
        record.count(report)
        replaced = self._replaced.pop(run, None)
        if report.reason is Reason.CANCELLED and replaced:
            record.finish(key, replaced)  # a stopped run keeps the earlier result
            record.superseded[key.id] -= 1
        elif report.reason is Reason.CANCELLED or report.reason in self._again:
            record.attempts[key.digest] = key.attempt + 1
        else:
            record.finish(key, report.reason)
            self._results.add(encode_result(key.id, report, self._kind))


# Consecutive lines with an unreachable provider, after which no further line starts.
_MAX_UNAVAILABLE = 20
# Finished lines to skip before other tasks get the event loop.
_SKIPPED_AT_ONCE = 2_000


class BatchFlags(Struct, frozen=True, kw_only=True):
    """Flags of `mudroom batch` that are not settings. The dollars are for all lines."""

    file: str
    out: str | None = None
    agent: str = "general"
    parallel: int = 64
    kind: ResultFormat = "native"
    is_ordered: bool = False
    retry: str | None = None
    max_budget_usd: float | None = None
    quiet: bool = False


class BatchPlan(Struct, frozen=True):
    flags: BatchFlags
    total: int
    lines: Callable[[], Iterator[BatchLine]]
    output: str


class Batch:
    """A batch running in an open session.

    `Session.map` has one agent and one limit for all prompts, and returns reports in order. Here
    each line has its own, results are written as they come, and interrupted runs continue.
    `stop_cause` is "" as long as further lines start.
    """

    def __init__(
        self, session: Session, plan: BatchPlan, record: BatchRecord, results: ResultFile
    ) -> None:
        self.stop_cause = ""
        self.is_unavailable = False
        self._session = session
        self._plan = plan
        self._record = record
        self._results = results
        self._requests = RequestCounter()
        self._started_at = time.monotonic()
        self._rates = Rates(self._started_at)
        self._earlier = self.done
        self._places = asyncio.Semaphore(plan.flags.parallel)
        self._running = 0
        self._unavailable = 0

    @property
    def done(self) -> int:
        return self._record.reasons.total()

    @property
    def has_reached_all_goals(self) -> bool:
        return self._record.reasons[Reason.GOAL.value] == self._plan.total

    async def run(self) -> None:
        """Continue interrupted lines, run the others, and wait for all that started.

        Raises JournalError, OSError if the output cannot be written, and UsageError if no run can
        start or the input has changed meanwhile.
        """
        stop_watching = self._session.watch(self._requests.observe)
        try:
            async with asyncio.TaskGroup() as group, aclosing(self._list_tasks()) as tasks:
                async for key, line in tasks:
                    if not await self._take_place():
                        break
                    group.create_task(self._run(key, line))
        except* SessionPaused:
            pass
        except* Exception as errors:  # noqa: BLE001  (raised again below)
            # The first error cancelled the other lines, so report that one.
            raise errors.exceptions[0] from None
        finally:
            stop_watching()

    def stop(self, cause: str) -> None:
        self.stop_cause = self.stop_cause or cause

    def cancel(self) -> None:
        """Start no further lines and stop the running ones. The next process runs them again."""
        self.stop("cancelled")
        self._session.runs.cancel()

    def pause(self) -> None:
        """Start no further lines and pause the running ones. The next process continues them."""
        self.stop("paused")
        self._session.pause()

    def make_status(self, *, has_ended: bool = False) -> BatchStatus:
        plan, record = self._plan, self._record
        now = time.monotonic()
        done = self.done
        lines, requests = self._rates.add(now, done - self._earlier, self._requests.answered)
        return BatchStatus(
            session=self._session.id,
            output=plan.output,
            total=plan.total,
            done=done,
            running=self._running,
            # `+` drops reasons whose count is 0 because their runs were repeated.
            reasons=dict(+record.reasons),
            parallel=plan.flags.parallel,
            state="ended" if has_ended else "stopping" if self.stop_cause else "running",
            waits_for=self._find_obstacle(),
            requests=self._requests.answered,
            tokens=record.tokens,
            usd=round(record.usd, 6),
            usd_limit=plan.flags.max_budget_usd,
            lines_per_second=round(lines, 3),
            requests_per_second=round(requests, 3),
            seconds_left=round((plan.total - done) / lines, 1) if lines else None,
            seconds=round(now - self._started_at, 1),
        )

    def _find_obstacle(self) -> str:
        repeated = len(self._requests.repeated)
        # Half of the running lines wait for the provider: further lines would wait as well.
        if repeated and repeated >= self._running / 2:
            return "provider"
        return "parallel" if self._running >= self._plan.flags.parallel else ""

    async def _list_tasks(self) -> AsyncGenerator[tuple[TaskKey, str | BatchLine]]:
        """Yield each task's key with its line, or with the id of the run to continue."""
        record = self._record
        for run, key in record.open_runs.items():
            yield key, run
        if self._earlier == self._plan.total:
            return  # each line has a result
        open_digests = {key.digest for key in record.open_runs.values()}
        for number, line in enumerate(self._plan.lines()):
            if number % _SKIPPED_AT_ONCE == 0:
                await asyncio.sleep(0)
            digest = line.compute_key()
            if digest not in record.finished and digest not in open_digests:
                yield TaskKey(digest, record.attempts.get(digest, 0), line.id), line

    async def _take_place(self) -> bool:
        """Wait until another line may run; return False once none may start."""
        await self._places.acquire()
        limit = self._plan.flags.max_budget_usd
        if limit is not None and self._record.usd >= limit:
            # Checked before each line, so running lines may spend a little more.
            self.stop("the budget is used up")
        if not self.stop_cause:
            self._running += 1
        return not self.stop_cause

    async def _run(self, key: TaskKey, line: str | BatchLine) -> None:
        try:
            if isinstance(line, str):
                report = await self._session.resume_task(line)
            else:
                report = await self._run_line(key, line)
            self._finish(key, report)
        finally:
            self._running -= 1
            self._places.release()

    async def _run_line(self, key: TaskKey, line: BatchLine) -> Report[Any]:
        try:
            return await self._session.task(
                line.prompt,
                agent=line.agent or self._plan.flags.agent,
                model=line.model or None,
                budget=line.make_budget(),
                outputs=line.outputs,
                description=line.id[:60],
                key=key.encode(),
            )
        except (JournalError, UsageError):
            raise
        except Exception as error:  # noqa: BLE001  one line must not stop the others
            text = f"{type(error).__name__}: {error}"
            outputs = dict[str, Any]()
            return Report(text="", reason=Reason.ERROR, run_id="", error=text, outputs=outputs)

    def _finish(self, key: TaskKey, report: Report[Any]) -> None:
        self._record.count(report)
        if report.reason is Reason.CANCELLED:
            return  # no result: the next process runs the line again
        self._record.reasons[report.reason.value] += 1
        self._results.add(encode_result(key.id, report, self._plan.flags.kind))
        self._count_unavailable(report)

    def _count_unavailable(self, report: Report[Any]) -> None:
        """Stop after many consecutive lines ended because the provider was unreachable."""
        is_transient = report.run_id in self._requests.unavailable
        self._requests.unavailable.discard(report.run_id)
        is_unavailable = report.reason in (Reason.ERROR, Reason.TIMEOUT) and is_transient
        self._unavailable = self._unavailable + 1 if is_unavailable else 0
        if self._unavailable >= _MAX_UNAVAILABLE:
            self.is_unavailable = True
            self.stop(f"the provider refused {_MAX_UNAVAILABLE} lines in a row: {report.error}")
