"""HostedBatch: one batch at work, in the session that is hosted for it."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...._core.events import StoredEvent
from ...._core.runs import Reason
from ....batches.batch import Batch, BatchPlan
from ....batches.input_file import InputFile
from ....batches.recorded_results import RECORD_TYPES, read_record
from ....batches.results import ResultFile, ResultFormat, encode_failure
from ....errors import MudroomError, UnknownName, UsageError
from ....journals.sessions import stream_events
from ....session import Session
from ..charges import SessionCharges
from ..errors import may_work_later
from ..hosted_session import ServerParts
from ..records.batches import BatchProgress, BatchRecord
from ..records.sessions import SessionRecord
from ..records.state_file import StateError
from .requests import ENDPOINTS, make_line_parser
from .views import make_batch_id

_AGENT = "general"
"""Agent of lines whose model is the default agent."""
_NOTE_SECONDS = 1.0
"""Seconds between two notes of the progress."""
_RETRY_SECONDS = 1.0
"""Seconds until the state file is used again that could not be used."""


class _Result(Struct):
    """What is needed of a line of the results."""

    custom_id: str
    error: dict[str, Any] | None = None


class HostedBatch:
    """One batch.

    Arguments:
        record: of its session. charges: of its session.
    """

    def __init__(self, record: SessionRecord, parts: ServerParts, charges: SessionCharges) -> None:
        self._record = record
        self._parts = parts
        self._charges = charges
        self._batch: Batch | None = None
        self._progress = BatchProgress()
        self._stop_code = ""
        self._told = ""
        self._is_cancelled = False

    def cancel(self) -> None:
        """Start no more lines, and stop those that work."""
        self._is_cancelled = True
        if self._batch:
            self._batch.cancel()

    async def run(self, session: Session) -> None:
        """Run the lines that have no result yet, and make the files with the results.

        Raises UsageError for a batch that cannot run; JournalError and StateError if it may run
        later.
        """
        batch = await self._parts.batches.read(session.id)
        if batch is None:
            return  # it was deleted
        self._progress = replace(batch.progress, started=batch.progress.started or time.time())
        self._is_cancelled = self._is_cancelled or bool(batch.cancelled)
        path = self._parts.files.get_results_path(session.id)
        try:
            await self._run_to_end(session, batch, path)
        except OSError as error:
            text = f"the results of the batch cannot be written: {error.strerror or error}"
            raise StateError(text, where=str(path)) from error

    async def _run_to_end(self, session: Session, batch: BatchRecord, path: Path) -> None:
        """Run the lines, and make the files with the results, also after an error that stays."""
        try:
            await self._run(session, batch, path)
        except Exception as error:
            if isinstance(error, OSError) or may_work_later(error):
                raise
            await self._end(path)
            raise
        await self._end(path)

    async def _run(self, session: Session, batch: BatchRecord, path: Path) -> None:
        request = batch.request
        parse = make_line_parser(request.endpoint, self._record.choices.budget, _AGENT)
        input_path = self._parts.files.get_path(request.input_file)
        source = InputFile(input_path, parse, name="the input")
        try:
            facts = await asyncio.to_thread(source.check, with_keys=True)
        except FileNotFoundError:
            remedy = "Upload it again, and create another batch."
            raise UsageError("the input does not exist any more", remedy=remedy) from None
        kind: ResultFormat = "openai" if request.endpoint == ENDPOINTS[0] else "openai-responses"
        make_results = partial(ResultFile, path)
        record, results = await read_record(self._read_events, facts.keys, (), make_results, kind)
        plan = BatchPlan(
            total=facts.total,
            lines=source.read,
            output=str(path),
            agent=_AGENT,
            parallel=self._parts.options.per_owner,
            kind=kind,
        )
        with results:
            results.publish()
            self._batch = Batch(session, plan, record, results, open_place=self._open_place)
            if self._is_cancelled:
                self._batch.cancel()
            await self._run_noted(self._batch)
            if self._batch.done < facts.total and not self._is_cancelled:
                cause = self._batch.stop_cause
                await asyncio.to_thread(self._add_missing_results, source, results, cause)

    async def _read_events(self) -> AsyncIterator[StoredEvent]:
        try:
            async for event in stream_events(self._parts.store, self._record.id, RECORD_TYPES):
                yield event
        except UnknownName:
            return  # nothing is recorded yet

    @asynccontextmanager
    async def _open_place(self) -> AsyncGenerator[None]:
        """Give a line a place of the owner, while the owner may spend more today."""
        async with self._parts.slots.hold(self._record.owner):
            why = await self._find_used_up() if self._charges.has_limits else ""
            if why and self._batch:
                self._stop_code = "budget_used_up"
                self._batch.stop(why)
                await asyncio.sleep(0)  # this line is cancelled here, before it starts
            yield

    async def _find_used_up(self) -> str:
        """Return which limit of the owner is used up today, "" for none.

        Waits while the state file cannot be used: the line does not start, and the others go on.
        """
        while True:
            try:
                await self._charges.update()
                return await self._charges.explain_used_up()
            except StateError as error:
                self._tell(error)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _run_noted(self, batch: Batch) -> None:
        """Run the lines, and note the progress."""
        noting = asyncio.create_task(self._note_changes(batch))
        try:
            await batch.run()
        finally:
            noting.cancel()
            await asyncio.gather(noting, return_exceptions=True)

    async def _note_changes(self, batch: Batch) -> None:
        """Note the progress when it has changed, for ever."""
        is_noted = False
        while True:
            progress = self._count(batch)
            if progress != self._progress or not is_noted:
                try:
                    await self._note(progress)
                    is_noted = True
                except StateError as error:
                    self._tell(error)
            await asyncio.sleep(_NOTE_SECONDS)

    def _tell(self, error: MudroomError) -> None:
        """Show an error on stderr, unless it was the last one."""
        text = f"session {self._record.id}: {error}"
        if text != self._told:
            self._told = text
            self._parts.notify(text)

    def _count(self, batch: Batch) -> BatchProgress:
        status = batch.make_status()
        completed = status.reasons.get(Reason.GOAL.value, 0)
        return replace(self._progress, completed=completed, failed=status.done - completed)

    async def _note(self, progress: BatchProgress) -> None:
        await self._parts.batches.note_progress(self._record.id, progress)
        self._progress = progress

    def _add_missing_results(self, source: InputFile, results: ResultFile, cause: str) -> None:
        """Add a failure for each line without a result.

        Arguments:
            cause: why no more lines started; "" if the lines were cancelled one by one.
        """
        decode = msgspec.json.Decoder(_Result).decode
        with results.path.open("rb") as file:
            known = {decode(line).custom_id for line in file}
        code = self._stop_code or ("provider_unavailable" if cause else "cancelled")
        for line in source.read():
            if line.id not in known:
                results.add(encode_failure(line.id, code, cause or "the line was cancelled"))

    async def _end(self, path: Path) -> None:
        """Make the files with the results, and note the end."""
        parts = self._parts
        if not path.exists():  # no line has started, or an earlier process has made the files
            await self._note(replace(self._progress, ended=time.time()))
            return
        ids = {kind: self._make_file_id(kind) for kind in ("output", "error")}
        paths = {kind: parts.files.get_path(name) for kind, name in ids.items()}
        counts = await asyncio.to_thread(_split_results, path, paths["output"], paths["error"])
        for kind, name in ids.items():
            if counts[kind]:
                file_name = f"{make_batch_id(self._record.id)}_{kind}.jsonl"
                size = paths[kind].stat().st_size
                await parts.file_records.add(
                    name, self._record.owner, file_name, "batch_output", size
                )
        await self._note(
            replace(
                self._progress,
                completed=counts["output"],
                failed=counts["error"],
                ended=time.time(),
                output_file=ids["output"] if counts["output"] else "",
                error_file=ids["error"] if counts["error"] else "",
            )
        )
        parts.files.remove_results(self._record.id)

    def _make_file_id(self, kind: str) -> str:
        """Return the id of a file with results: the same again after a crash."""
        return f"file-{uuid.uuid5(uuid.UUID(self._record.id), kind).hex}"


def _split_results(source: Path, output: Path, errors: Path) -> dict[str, Any]:
    """Write lines with an answer to `output`, and all others to `errors`; return their numbers."""
    decode = msgspec.json.Decoder(_Result).decode
    counts = {"output": 0, "error": 0}
    new = {
        "output": output.with_name(f".{output.name}"),
        "error": errors.with_name(f".{errors.name}"),
    }
    with (
        source.open("rb") as lines,
        new["output"].open("wb") as whole,
        new["error"].open("wb") as failed,
    ):
        for line in lines:
            is_failed = decode(line).error is not None
            counts["error" if is_failed else "output"] += 1
            (failed if is_failed else whole).write(line)
        for file in (whole, failed):
            file.flush()
            os.fsync(file.fileno())
    for kind, path in (("output", output), ("error", errors)):
        if counts[kind]:
            os.replace(new[kind], path)
        else:
            new[kind].unlink()
    return counts
