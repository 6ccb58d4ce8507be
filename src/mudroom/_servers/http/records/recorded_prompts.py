"""Facts about the prompts of a session, from its journal."""

from __future__ import annotations

from typing import Any

from ...._adapters.journals.sessions import stream_events
from ...._core.events import RunFinished, RunStarted
from ...._core.ports import SessionStore
from ...._core.runs import Report, is_child_id
from ....errors import JournalError, UnknownName


async def is_recorded(store: SessionStore, session: str) -> bool:
    """Return whether a store has a session."""
    try:
        await store.read_info(session)
    except UnknownName:
        return False
    return True


async def count_prompts(store: SessionStore, session: str) -> int:
    """Return the number of prompts that the record of a session has."""
    count = 0
    try:
        async for event in stream_events(store, session, (RunStarted,)):
            if isinstance(event, RunStarted):
                count += event.brief.depth == 0 and not event.brief.is_compaction
    except UnknownName:
        return 0
    return count


async def read_last_report(store: SessionStore, session: str) -> Report[Any]:
    """Return the report of the last prompt of a session. Raises JournalError."""
    last: Report[Any] | None = None
    async for event in stream_events(store, session, (RunFinished,)):
        if isinstance(event, RunFinished) and not is_child_id(event.run):
            last = event.report
    if last is None:
        raise JournalError("the prompt has no report", where=session)
    return last
