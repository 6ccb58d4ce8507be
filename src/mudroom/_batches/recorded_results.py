"""Record of a batch: results and open runs of earlier processes, from its journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

from msgspec import Struct

from .._core.events import RunFinished, RunStarted, StoredEvent
from .._core.runs import Reason, Report
from .number_set import NumberSet
from .results import ResultFile, ResultFormat, encode_result

RECORD_TYPES = (RunStarted, RunFinished)
"""Event types that a record is read from."""

ReadEvents = Callable[[], AsyncIterator[StoredEvent]]


class TaskKey(Struct, frozen=True, gc=False):
    """Key of the run of a line, as its brief has it: `<digest>.<attempt> <id>`.

    Arguments:
        digest: see `BatchLine.compute_key`.
        attempt: 0 for the first run of the line.
    """

    digest: int
    attempt: int
    id: str

    def encode(self) -> str:
        """Return the key for the brief."""
        return f"{self.digest:016x}.{self.attempt} {self.id}"


def parse_key(text: str) -> TaskKey | None:
    """Return the key of a brief, None if it is not one of a batch."""
    numbers, _, line_id = text.partition(" ")
    digest, _, attempt = numbers.partition(".")
    try:
        return TaskKey(int(digest, 16), int(attempt), line_id)
    except ValueError:
        return None


class BatchRecord:
    """What earlier processes did.

    Attributes:
        finished: keys of the lines that have a result.
        open_runs: runs without an end, by id.
        attempts: number of the next run of each line that has no result and had a run.
        reasons: number of results by reason. usd: known costs of all runs. tokens: of all runs.
    """

    def __init__(self) -> None:
        self.finished = NumberSet()
        self.open_runs: dict[str, TaskKey] = {}
        self.attempts: dict[int, int] = {}
        self.reasons: Counter[str] = Counter()
        self.usd = 0.0
        self.tokens = 0


class _Reader:
    """Reader of a record.

    Arguments:
        wanted: keys of the lines of the input; other runs are left out.
        again: reasons whose lines run again.
        repeated: keys of the lines that had several runs: the last result counts.
    """

    def __init__(
        self,
        wanted: NumberSet,
        again: Collection[Reason],
        results: ResultFile,
        kind: ResultFormat,
        repeated: Collection[int],
    ) -> None:
        self.record = BatchRecord()
        self.repeated: set[int] = set()
        self._wanted = wanted
        self._again = again
        self._results = results
        self._kind: ResultFormat = kind
        self._known_repeated = repeated
        self._held: dict[int, tuple[str, Report[Any]]] = {}

    def apply(self, event: StoredEvent) -> None:
        """Add the next event."""
        record = self.record
        if isinstance(event, RunStarted):
            key = None if event.brief.parent else parse_key(event.brief.key)
            if key and key.digest in self._wanted:
                record.open_runs[event.run] = key
                if key.attempt:
                    self.repeated.add(key.digest)
        elif isinstance(event, RunFinished) and event.run in record.open_runs:
            self._finish(record.open_runs.pop(event.run), event.report)

    def _finish(self, key: TaskKey, report: Report[Any]) -> None:
        record = self.record
        record.usd += report.usd or 0.0
        record.tokens += report.usage.total_tokens
        stands = report.reason is not Reason.CANCELLED and report.reason not in self._again
        if key.digest in self._known_repeated:
            record.attempts[key.digest] = key.attempt + 1
            if stands:
                self._held[key.digest] = (key.id, report)
            elif report.reason in self._again:
                self._held.pop(key.digest, None)
        elif stands:
            self._add(key.digest, key.id, report)
        else:
            record.attempts[key.digest] = key.attempt + 1

    def _add(self, digest: int, line_id: str, report: Report[Any]) -> None:
        self.record.finished.add(digest)
        self.record.attempts.pop(digest, None)
        self.record.reasons[report.reason.value] += 1
        self._results.add(encode_result(line_id, report, self._kind))

    def complete(self) -> BatchRecord:
        """Add the results of lines that had several runs, and return the record.

        A line whose last run is open has no result yet: that of this run will count.
        """
        open_digests = {key.digest for key in self.record.open_runs.values()}
        for digest, (line_id, report) in self._held.items():
            if digest not in open_digests:
                self._add(digest, line_id, report)
        return self.record


async def read_record(
    read_events: ReadEvents,
    wanted: NumberSet,
    again: Collection[Reason],
    make_results: Callable[[], ResultFile],
    kind: ResultFormat,
) -> tuple[BatchRecord, ResultFile]:
    """Read what earlier processes did, and write their results into a new output.

    Arguments:
        read_events: reads the events of RECORD_TYPES; called a second time if lines had several
            runs.
        again: reasons whose lines run again.
    """
    repeated: set[int] = set()
    while True:
        results = make_results()
        try:
            reader = _Reader(wanted, again, results, kind, repeated)
            async for event in read_events():
                reader.apply(event)
            if reader.repeated <= repeated:
                return reader.complete(), results
        except BaseException:
            results.close()
            raise
        repeated = reader.repeated
        results.close()
