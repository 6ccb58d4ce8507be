"""Ends of runs that no process continues: cancelled while they waited, or lost with theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from ..._core.budgets import Grant
from ..._core.events import (
    RunFinished,
    RunResumed,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
)
from ..._core.messages import ToolCallBlock
from ..._core.runs import Reason, Report, find_parent_id
from ..._core.tool_names import normalize_tool_name
from ..._core.tools import ToolResult
from ..._engine.conversation import INTERRUPTED, UNKNOWN_AFTER_CRASH
from ..._engine.finish import NOT_BEGUN
from ..._engine.phase import LIMIT_REASONS
from ..._engine.recorded_conversations import PastEvents, find_report, has_effects
from ..._engine.session_context import SessionServices
from .past_report import charge_past_run, make_past_report

WORKERS_ENDED = "the worker processes of a child ended"
"""Why it is not known which files a run changed whose process was lost."""


async def end_past_run(services: SessionServices, grant: Grant, reason: Reason) -> Report[Any]:
    """Return the report of a run that was cancelled before it began or continued.

    If a child began in an earlier process, what it spent is charged, and its end is recorded,
    because its parent reads the report. A run without a parent can be resumed again.
    """
    run_id, past = grant.run_id, services.past_events
    events = past.get(run_id, ())
    recorded = find_report(events)
    report = recorded or make_past_report(services, past, run_id, reason)
    if not events and reason in LIMIT_REASONS:
        return replace(report, error=NOT_BEGUN)
    if not events or not find_parent_id(run_id):
        return report
    charge_past_run(services.meters.get(grant), past, report)
    if recorded is None:
        if has_effects(_list_unfinished_calls(events), services.toolbox):
            report = replace(report, unknown_changes=UNKNOWN_AFTER_CRASH)
        await record_past_end(services, past, report)
    return report


async def record_past_end(services: SessionServices, past: PastEvents, report: Report[Any]) -> None:
    """Record the end of a run that has begun and that no process continues.

    Each call without a result gets one, and each run below that has not ended gets an end.

    Arguments:
        past: recorded events of the run and of those below it.
    """
    now = services.clock.now()
    run_id = report.run_id
    closing = _list_closing_events(services, past, run_id, report.reason, now)
    closing.append(RunFinished(at=now, run=run_id, report=report))
    if report.reason is not Reason.LOST:
        # The time without a process does not count. For LOST the reason says that.
        closing.insert(0, RunResumed(at=now, run=run_id))
    await services.journal.append(*closing)
    for event in closing:
        services.teams.observe(event)
        for watch in services.watchers:
            watch(event)


def _list_closing_events(
    services: SessionServices, past: PastEvents, run_id: str, reason: Reason, now: float
) -> list[StoredEvent]:
    """Return the results of open calls, and the ends of the runs below, for the reason."""
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


def _list_unfinished_calls(events: Sequence[StoredEvent]) -> list[ToolCallStarted]:
    """Return the starts of the calls that have no result."""
    finished = {event.call_id for event in events if isinstance(event, ToolCallFinished)}
    return [
        event
        for event in events
        if isinstance(event, ToolCallStarted) and event.call.id not in finished
    ]
