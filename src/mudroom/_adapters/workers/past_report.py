"""Report of a run that did not end itself: cancelled before it continued, or lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..._core.events import (
    RunStarted,
    StoredEvent,
    ToolCallFinished,
    TurnFailed,
    TurnFinished,
)
from ..._core.messages import Usage
from ..._core.runs import Reason, Report
from ..._engine.conversation import CallOutcome
from ..._engine.evidence import Evidence
from ..._engine.meters.meter import Meter
from ..._engine.meters.run_timer import sum_worked_seconds
from ..._engine.recorded_conversations import PastEvents
from ..._engine.resume import sum_estimates
from ..._engine.session_context import SessionServices


def make_past_report(
    services: SessionServices, past: PastEvents, run_id: str, reason: Reason
) -> Report[dict[str, Any]]:
    """Return a report with what a run did in earlier processes.

    Emitted values are left out: only the run itself can check them.

    Arguments:
        past: events of the run and of those below it.
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
    """Charge the meter of a run that does not continue with what the run and those below it spent.

    Arguments:
        past: events of the run and of those below it.
    """
    below = (past[run][0] for run in past.walk_below(report.run_id))
    children = sum(
        isinstance(event, RunStarted) and not event.brief.is_compaction for event in below
    )
    meter.charge(report.usage, report.usd, sum_estimates(past, report.run_id))
    meter.add_usage(Usage(), 0.0, children)


def _sum_answers(
    services: SessionServices, events: list[StoredEvent], models: dict[str, str]
) -> tuple[Usage, float | None]:
    """Return the tokens and the US dollars of all answers; None if a price is not known."""
    usage = Usage()
    prices: list[float | None] = []
    for event in events:
        if isinstance(event, TurnFinished):
            answer = event.message
            usage += answer.usage
            model = answer.answered_by or models.get(event.run, "")
            prices.append(
                services.compute_price(model, answer.usage, uses_table=services.reports_costs)
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
