"""Runs of earlier processes: the ends of those that stop, the files of those that continue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from ..._core.agents import WorkspaceKind, WorkspaceSpec
from ..._core.budgets import Grant
from ..._core.events import (
    RunFinished,
    RunResumed,
    RunStarted,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFailed,
    TurnFinished,
)
from ..._core.messages import ToolCallBlock, Usage
from ..._core.runs import Brief, Reason, Report, find_parent_id
from ..._core.tool_names import normalize_tool_name
from ..._core.tools import ToolResult
from ..._engine.conversation import INTERRUPTED, UNKNOWN_AFTER_CRASH, CallOutcome
from ..._engine.evidence import Evidence
from ..._engine.finish import NOT_BEGUN
from ..._engine.meters.meter import Meter
from ..._engine.meters.run_timer import sum_worked_seconds
from ..._engine.phase import LIMIT_REASONS
from ..._engine.recorded_conversations import PastEvents, find_report, find_workspace, has_effects
from ..._engine.resume import sum_estimates
from ..._engine.session_context import SessionServices


def make_past_report(
    services: SessionServices, past: PastEvents, run_id: str, reason: Reason
) -> Report[dict[str, Any]]:
    """Make a report of what a run and those below it did in earlier processes.

    Emitted values are left out, because only the run itself can check them.
    """
    events = past.get(run_id, ())
    outputs: dict[str, Any] = {}
    if not events or not isinstance(events[0], RunStarted):
        return Report(text="", reason=reason, run_id=run_id, outputs=outputs)
    brief = events[0].brief
    below = [event for child in past.walk_below(run_id) for event in past[child]]
    models = {each.run: each.brief.model for each in below if isinstance(each, RunStarted)}
    models[run_id] = brief.model
    usage, usd = _sum_answers(services, [*events, *below], models)
    evidence = _collect_evidence(events)
    return Report(
        text=_find_last_text(events),
        reason=reason,
        run_id=run_id,
        outputs=outputs,
        usage=usage,
        usd=usd,
        turns=max((each.turn for each in events if isinstance(each, TurnFinished)), default=0),
        seconds=round(sum_worked_seconds(events, below), 3),
        calls=evidence.calls,
        failed=evidence.failed,
        files_read=evidence.files_read,
        files_changed=evidence.files_changed,
        observed_changes=evidence.observed_changes,
        unknown_changes=evidence.unknown_changes,
        parallel_runs=evidence.list_parallel_runs(run_id),
        has_unknown_usage=sum_estimates(past, run_id).total_tokens > 0,
        agent=brief.agent.name,
        model=brief.model,
    )


def charge_past_run(meter: Meter, past: PastEvents, report: Report[Any]) -> None:
    """Charge the meter of a run that does not continue for it and those below it."""
    below = (past[run][0] for run in past.walk_below(report.run_id))
    children = sum(
        isinstance(event, RunStarted) and not event.brief.is_compaction for event in below
    )
    meter.charge(report.usage, report.usd, sum_estimates(past, report.run_id))
    meter.add_usage(Usage(), 0.0, children)


def _sum_answers(
    services: SessionServices, events: list[StoredEvent], models: dict[str, str]
) -> tuple[Usage, float | None]:
    """Sum the tokens and US dollars of all answers; None if a price is unknown."""
    usage = Usage()
    prices: list[float | None] = []
    for event in events:
        if isinstance(event, TurnFinished):
            answer = event.message
            usage += answer.usage
            model = answer.answered_by or models.get(event.run, "")
            prices.append(
                services.compute_price(
                    model, answer.usage, uses_table=services.model_options.prices
                )
            )
    known = [price for price in prices if price is not None]
    return usage, round(sum(known), 6) if len(known) == len(prices) else None


def _collect_evidence(events: Sequence[StoredEvent]) -> Evidence:
    evidence = Evidence()
    for event in events:
        if isinstance(event, ToolCallFinished):
            evidence.add([CallOutcome(event.call_id, event.name, event.result, event.refused)])
    return evidence


def _find_last_text(events: Sequence[StoredEvent]) -> str:
    text = ""
    for event in events:
        if isinstance(event, TurnFinished):
            text = event.message.text.strip() or text
        elif isinstance(event, TurnFailed):
            text = event.text or text
    return text


WORKERS_ENDED = "the worker processes of a child ended"
"""Why a run's changed files are unknown after the loss of its process."""


async def end_past_run(services: SessionServices, grant: Grant, reason: Reason) -> Report[Any]:
    """Report a run that was cancelled before it began or continued.

    If a child began in an earlier process, its costs are charged and its end is recorded, because
    its parent reads the report; a child that never began does not count. A run without a parent can
    be resumed again.
    """
    run_id, past = grant.run_id, services.past_events
    events = past.get(run_id, ())
    recorded = find_report(events)
    report = recorded or make_past_report(services, past, run_id, reason)
    if recorded is None and not report.turns and reason in LIMIT_REASONS:
        report = replace(report, error=NOT_BEGUN)
    if not find_parent_id(run_id):
        return report
    meter = services.meters.get(grant)
    if not events:
        if not meter.member.is_part:
            meter.withdraw()
        return report
    charge_past_run(meter, past, report)
    if recorded is None:
        if has_effects(_list_unfinished_calls(events), services.toolbox):
            report = replace(report, unknown_changes=UNKNOWN_AFTER_CRASH)
        await record_past_end(services, past, report)
    return report


async def record_past_end(services: SessionServices, past: PastEvents, report: Report[Any]) -> None:
    """Record the end of a run that has begun but that no process continues.

    Each call without a result gets one, and each open run below it gets an end.
    """
    now = services.clock.now()
    run_id = report.run_id
    closing = _list_closing_events(services, past, run_id, report.reason, now)
    closing.append(RunFinished(at=now, run=run_id, report=report))
    if report.reason is not Reason.LOST:
        # The time without a process does not count. LOST already implies that.
        closing.insert(0, RunResumed(at=now, run=run_id))
    await services.journal.append(*closing)
    for event in closing:
        services.teams.observe(event)
        for watch in services.watchers:
            watch(event)


def _list_closing_events(
    services: SessionServices, past: PastEvents, run_id: str, reason: Reason, now: float
) -> list[StoredEvent]:
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
    """Yield results for the last answer's calls that have none."""
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
    finished = {event.call_id for event in events if isinstance(event, ToolCallFinished)}
    return [
        event
        for event in events
        if isinstance(event, ToolCallStarted) and event.call.id not in finished
    ]


def restore_workspace(
    brief: Brief, past: Sequence[StoredEvent], services: SessionServices
) -> WorkspaceSpec:
    """Choose the workspace of a resumed run, with the machine that has its files.

    A run that has changed nothing begins again here. If another machine has files the run may have
    changed, the workspace says so.
    """
    spec = brief.workspace
    if services.environments.sees_folder:  # otherwise the session's process has chosen the machine
        spec = find_workspace(past) or spec
    if spec.kind is not WorkspaceKind.ISOLATED or not spec.machine:
        return spec
    if has_effects(past, services.toolbox):
        return replace(spec, has_changes=True)
    return replace(spec, machine="") if services.environments.sees_folder else spec
