"""What earlier processes of a batch did, read from the journal of its session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from msgspec import Struct

from ..._core.events import RunFinished, RunStarted, StoredEvent
from ..._core.runs import Reason, Report
from .results import ResultFile, ResultFormat, encode_result

# The event types that a record is read from.
RECORD_TYPES = (RunStarted, RunFinished)


class TaskKey(Struct, frozen=True, gc=False):
    """Key of a line's run, as its brief has it: `<digest>.<attempt> <id>`.

    Arguments:
        digest: see `BatchLine.compute_key`.
        attempt: 0 for the first run of the line.
    """

    digest: int
    attempt: int
    id: str

    def encode(self) -> str:
        return f"{self.digest:016x}.{self.attempt} {self.id}"


def parse_key(text: str) -> TaskKey | None:
    """Parse the key of a brief, None if it is not one of a batch."""
    numbers, _, line_id = text.partition(" ")
    digest, _, attempt = numbers.partition(".")
    try:
        return TaskKey(int(digest, 16), int(attempt), line_id)
    except ValueError:
        return None


class BatchRecord:
    """What a batch has done. `Batch` keeps the sums up to date.

    A line may have run several times: its last result counts, and it has none while its last run is
    open.

    Attributes:
        finished: the reason of each line that had a result at the start, by the digest of its key.
        open_runs: runs that had no end at the start, by id.
        attempts: number of the next run of each line that had a run, and has to run again.
        reasons: number of results by reason. usd: known costs of all runs. tokens: of all runs.
        superseded: how many results of a line, by its id, were replaced by a later run. They come
            before the one that counts.
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
    """Reads the record of a batch, and writes the results it finds.

    Arguments:
        wanted: keys of the input's lines; other runs are left out.
        again: reasons whose lines run again.
        results: the output, which is not published yet.
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
            # Children of a line have briefs, too.
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
            record.finish(key, replaced)  # a run that was stopped leaves the earlier result
            record.superseded[key.id] -= 1
        elif report.reason is Reason.CANCELLED or report.reason in self._again:
            record.attempts[key.digest] = key.attempt + 1
        else:
            record.finish(key, report.reason)
            self._results.add(encode_result(key.id, report, self._kind))
