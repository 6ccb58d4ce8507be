"""Results of earlier processes of a batch: from its saved record, or from its journal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from functools import partial
from pathlib import Path

from ...._core.events import StoredEvent
from ...._core.runs import Reason
from ....batches.control import BatchFolder
from ....batches.input_file import InputFacts
from ....batches.recorded_results import RECORD_TYPES, BatchRecord, read_record
from ....batches.results import ResultFile, ResultFormat
from ....batches.saved_record import Continued, SavedRecord
from ....journals.sessions import stream_events
from ..user_store import open_store


def make_saved_record(home: str, session: str, continued: Continued | None = None) -> SavedRecord:
    """Return the saved record of a batch.

    Arguments:
        home: mudroom's state folder. session: id of the session of the batch.
        continued: what was read of it.
    """
    saved = continued.saved if continued else 0
    return SavedRecord(BatchFolder(home, session).path, open_store(home), session, saved)


async def open_results(
    home: str,
    session: str,
    facts: InputFacts,
    again: Collection[Reason],
    output: Path,
    kind: ResultFormat,
    continued: Continued | None,
) -> tuple[BatchRecord, ResultFile]:
    """Return what earlier processes did, and the output with their results.

    Arguments:
        home: mudroom's state folder. session: id of the session that continues, "" for a new one.
        again: reasons whose lines run again.
        continued: from the saved record; None if there is none that fits.
    """
    if not session:
        return BatchRecord(), ResultFile(output)
    results = continued.open_results(output) if continued else None
    if continued and results:
        return continued.record, results

    def read_events() -> AsyncIterator[StoredEvent]:
        return stream_events(open_store(home), session, RECORD_TYPES)

    return await read_record(read_events, facts.keys, again, partial(ResultFile, output), kind)
