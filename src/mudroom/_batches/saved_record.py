"""Saved record of a batch: what the first events of its journal say, so that a restart reads few.

The journal stays the only record. A saved record that does not fit the journal, the input or the
output is not used: the whole journal is read then.
"""

from __future__ import annotations

import asyncio
import os
from array import array
from collections.abc import Callable, Collection, Sequence
from hashlib import blake2b
from pathlib import Path
from zlib import crc32

import msgspec
from msgspec import Struct

from .._adapters.journals.sessions import stream_events
from .._core.event_encoding import encode_event
from .._core.events import RunFinished, RunStarted, StoredEvent
from .._core.json_values import get_decoder
from .._core.ports import SessionStore
from .._core.runs import Reason, Report
from .._platform.private_files import make_private_folder
from .._projections.open_events import OpenEvents, OpenEventsState
from .._session.pricing import calculate_cost
from ..errors import JournalError
from .number_set import NumberSet
from .recorded_results import BatchRecord, TaskKey, parse_key
from .results import ResultFile, ResultFormat, encode_result, read_written

_VERSION = 2
"""Version of the file. One of another version is not used."""

_CHECKSUM_BYTES = 4
_MIN_LINES = 1_000
"""Ended lines after which a record is saved; a start reads so many in 0.1 s."""
_PARTS = 10
"""A record is saved when a tenth of the ended lines is not in the saved one, so that all saves
together read each event once."""

_encoder = msgspec.json.Encoder(enc_hook=repr)


class _Header(Struct, frozen=True):
    """First part of the file; the keys and the runs of the results follow, 8 and 4 bytes for each.

    Arguments:
        events: what a session needs of the events. last: digest of the last one.
        results: number of the results.
        open_runs, attempts, reasons, usd, tokens: see `BatchRecord`.
    """

    version: int
    events: OpenEventsState
    last: str
    results: int
    open_runs: dict[str, TaskKey]
    attempts: dict[int, int]
    reasons: dict[str, int]
    usd: float
    tokens: int


class PastBatch:
    """State of a batch after some of its events, from the first one on.

    Attributes:
        events: what a session needs of them.
        record: the results and the open runs of all lines, also of those that are no longer in the
            input.
        runs: numbers of the runs with a result.
        last: digest of the last event.
    """

    def __init__(self) -> None:
        self.events = OpenEvents(calculate_cost, drops_tasks=True)
        self.record = BatchRecord()
        self.runs = array("I")
        self.last = ""

    def apply(self, event: StoredEvent) -> tuple[TaskKey, Report] | None:
        """Add the next event. Return the result of a line if the event has it."""
        self.events.apply(event)
        record = self.record
        if type(event) is RunStarted and not event.brief.parent:
            if key := parse_key(event.brief.key):
                record.open_runs[event.run] = key
        elif type(event) is RunFinished and event.run in record.open_runs:
            key = record.open_runs.pop(event.run)
            record.usd += event.report.usd or 0.0
            record.tokens += event.report.usage.total_tokens
            if event.report.reason is not Reason.CANCELLED:
                self._add_result(event, key)
                return key, event.report
            record.attempts[key.digest] = key.attempt + 1
        return None

    def _add_result(self, event: RunFinished, key: TaskKey) -> None:
        self.runs.append(int(event.run))
        self.record.finished.add(key.digest)
        self.record.attempts.pop(key.digest, None)
        self.record.reasons[event.report.reason.value] += 1

    async def read(
        self,
        store: SessionStore,
        session: str,
        on_result: Callable[[TaskKey, Report], None] | None = None,
    ) -> bool:
        """Read the events that follow. Return False if a line has several results.

        Only the whole journal says which one counts.

        Arguments:
            on_result: called with each result of a line.
        """
        event: StoredEvent | None = None
        async for event in stream_events(store, session, after=self.events.count):
            result = self.apply(event)
            if result and on_result:
                on_result(*result)
        if event is not None:
            self.last = _digest(event)
        return not self.record.finished.find_repeated()

    def encode(self) -> list[bytes]:
        """Return the parts of the file. Raises ValueError if it cannot hold a text."""
        record = self.record
        header = _Header(
            version=_VERSION,
            events=self.events.get_state(),
            last=self.last,
            results=len(self.runs),
            open_runs=record.open_runs,
            attempts=record.attempts,
            reasons=dict(record.reasons),
            usd=record.usd,
            tokens=record.tokens,
        )
        keys = record.finished.list_numbers()
        return [_encoder.encode(header), b"\n", keys.tobytes(), self.runs.tobytes()]


def _decode(data: bytes) -> PastBatch:
    """Return what was saved. Raises ValueError for a file that is damaged or of another version."""
    if crc32(memoryview(data)[_CHECKSUM_BYTES:]) != int.from_bytes(data[:_CHECKSUM_BYTES], "big"):
        raise ValueError("the file is damaged")
    end = data.index(b"\n", _CHECKSUM_BYTES)
    text = data[_CHECKSUM_BYTES:end]
    numbers = memoryview(data)[end + 1 :]
    if msgspec.json.decode(text, type=_Version).version != _VERSION:
        raise ValueError("the file has another version")
    header = get_decoder(_Header).decode(text)
    keys = array("Q")
    past = PastBatch()
    keys_size = header.results * keys.itemsize
    if len(numbers) != keys_size + header.results * past.runs.itemsize:
        raise ValueError("the file has another size")
    past.events.set_state(header.events)
    past.last = header.last
    keys.frombytes(numbers[:keys_size])
    past.runs.frombytes(numbers[keys_size:])
    record = past.record
    record.finished.add_all(keys)
    record.open_runs = dict(header.open_runs)
    record.attempts = dict(header.attempts)
    record.reasons.update(header.reasons)
    record.usd = header.usd
    record.tokens = header.tokens
    return past


class _Version(Struct):
    version: int


class Continued(Struct, frozen=True):
    """Results of earlier processes, and the lines that the output lacks.

    Arguments:
        saved: results that the saved record has.
        events: for the session. count: their number.
        size: bytes of the whole lines of the output. missing: lines that follow them.
    """

    record: BatchRecord
    saved: int
    events: OpenEvents
    count: int
    size: int
    missing: list[bytes]

    def open_results(self, output: Path) -> ResultFile | None:
        """Open the output and add the missing lines, after the session was opened.

        Return None if another process has continued the batch meanwhile.
        """
        if self.events.count != self.count:
            return None
        file = ResultFile(output, kept=self.size)
        for line in self.missing:
            file.add(line)
        return file


class SavedRecord:
    """The saved record of one batch.

    Arguments:
        folder: of the batch, see `BatchFolder`. session: id of its session in the store.
        saved: results that it has.
    """

    def __init__(self, folder: Path, store: SessionStore, session: str, saved: int = 0) -> None:
        self._path = folder / "record"
        self._store = store
        self._session = session
        self._saved = saved
        self._can_save = True

    async def read(
        self, wanted: NumberSet, again: Collection[Reason], output: Path, kind: ResultFormat
    ) -> Continued | None:
        """Return the results of earlier processes.

        Arguments:
            wanted: keys of the lines of the input.
            again: reasons whose lines run again.

        Return None if the results have to be read from the whole journal, or the output has to be
        written again. Raises JournalError.
        """
        past = await self._load()
        if past is None or not wanted.includes(past.record.finished):
            return None
        written = await asyncio.to_thread(read_written, output, kind)
        if written is None or not all(map(written.has, past.runs)):
            return None
        saved = len(past.runs)
        unknown: list[int] = []
        missing: list[bytes] = []

        def add_result(key: TaskKey, report: Report) -> None:
            if key.digest not in wanted:
                unknown.append(key.digest)
            elif not written.has(int(report.run_id)):
                missing.append(encode_result(key.id, report, kind))

        has_single_results = await past.read(self._store, self._session, add_result)
        record = past.record
        has_retries = any(reason.value in record.reasons for reason in again)
        if unknown or has_retries or not has_single_results:
            return None
        if written.count + len(missing) != len(past.runs):
            return None
        record.open_runs = {
            run: key for run, key in record.open_runs.items() if key.digest in wanted
        }
        return Continued(record, saved, past.events, past.events.count, written.size, missing)

    async def save_if_due(self, done: int) -> None:
        """Save what the journal says, if many lines have ended since the last time.

        Arguments:
            done: number of lines with a result.
        """
        if not self._can_save or done - self._saved < max(_MIN_LINES, done // _PARTS):
            return
        try:
            self._can_save = await self._save()
        except (JournalError, OSError):
            self._can_save = False  # the next start reads more events
        self._saved = done

    async def _save(self) -> bool:
        past = await self._load() or PastBatch()
        if not await past.read(self._store, self._session):
            return False
        try:
            parts = past.encode()
        except ValueError:  # a text with a surrogate
            return False
        await asyncio.to_thread(self._write, parts)
        return True

    async def _load(self) -> PastBatch | None:
        """Return what was saved, None if there is nothing that fits the journal."""
        try:
            past = await asyncio.to_thread(lambda: _decode(self._path.read_bytes()))
        except (OSError, ValueError):
            return None
        try:
            async for event in stream_events(
                self._store, self._session, after=past.events.count - 1
            ):
                return past if _digest(event) == past.last else None
        except JournalError:
            return None
        return None

    def _write(self, parts: Sequence[bytes]) -> None:
        make_private_folder(self._path.parent)
        new = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        checksum = 0
        for part in parts:
            checksum = crc32(part, checksum)
        with new.open("wb") as file:
            file.write(checksum.to_bytes(_CHECKSUM_BYTES, "big"))
            file.writelines(parts)
        os.replace(new, self._path)


def _digest(event: StoredEvent) -> str:
    return blake2b(encode_event(event), digest_size=16).hexdigest()
