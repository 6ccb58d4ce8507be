"""Ends of runs that have lost their worker process, recorded by the session's process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..._core.events import RunFinished, StoredEvent, ToolCallFinished, TurnFinished
from ..._core.messages import ToolCallBlock
from ..._core.runs import Reason
from ..._core.tool_names import normalize_tool_name
from ..._core.tools import ToolResult
from ..._engine.call_batch import INTERRUPTED
from ..._engine.recorded_conversations import find_report
from ..._engine.resume import UNKNOWN_AFTER_CRASH
from ..._engine.session_context import SessionServices
from ...projections.past_events import PastEvents
from ..past_report import make_past_report


def list_closing_events(
    services: SessionServices, past: PastEvents, run_id: str, reason: Reason
) -> list[StoredEvent]:
    """Return the events that a lost run needs before its end.

    Each call without a result gets one, and each run below that has not ended gets an end: no
    process will give them any.

    Arguments:
        past: recorded events of the run and of those below it.
        reason: why the runs end.
    """
    now = services.clock.now()
    closing: list[StoredEvent] = []
    for child in reversed(list(past.walk_below(run_id))):
        if find_report(past[child]) is None:
            closing.extend(_close_calls(past[child], child, now))
            report = make_past_report(services, past, child, reason)
            closing.append(RunFinished(at=now, run=child, report=report))
    closing.extend(_close_calls(past.get(run_id, ()), run_id, now))
    return closing


def _close_calls(
    events: Sequence[StoredEvent], run_id: str, now: float
) -> Iterator[ToolCallFinished]:
    """Yield results for the calls of the last answer that have none."""
    open_calls: dict[str, ToolCallBlock] = {}
    for event in events:
        if isinstance(event, TurnFinished):
            open_calls = {call.id: call for call in event.message.tool_calls}
        elif isinstance(event, ToolCallFinished):
            open_calls.pop(event.call_id, None)
    for call_id, call in open_calls.items():
        yield ToolCallFinished(
            at=now,
            run=run_id,
            call_id=call_id,
            name=normalize_tool_name(call.name),
            result=ToolResult(INTERRUPTED, error=True, unknown_changes=UNKNOWN_AFTER_CRASH),
        )
