"""Ends of children that an earlier process left unfinished and that did not continue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from ..._core.agents import WorkspaceSpec
from ..._core.events import RunFinished, RunResumed, RunStarted
from ..._core.run_ids import find_parent_id
from ..phase import RunControl
from ..recorded_conversations import find_report
from ..resume import charge_past_child, restore_run
from ..run_context import RunContext


async def end_past_children(
    run: RunContext, finish: Callable[[RunContext], Awaitable[object]]
) -> None:
    """End each such child of a run that ends (S10). What it spent is charged (S9).

    A run that is stopped right after it is resumed has not continued its children. A run that was
    killed while its conversation was summarised may go on without the summary.

    Arguments:
        finish: ends a run that was cancelled.
    """
    services = run.services
    past = services.past_events
    unfinished: list[str] = []
    for child in past.walk_below(run.run_id):
        if find_parent_id(child) != run.run_id:
            continue
        if not find_report(past[child]):
            unfinished.append(child)
        elif child not in services.meters.charged:
            _charge_finished(run, child)
    if not unfinished:
        return
    ends = services.journal.read(types=(RunFinished,))
    ended = {event.run async for event in ends}
    for child in unfinished:
        if child not in ended:
            await _end_child(run, child, finish)


def _charge_finished(run: RunContext, child: str) -> None:
    """Charge a child that ended in an earlier process, but whose result the run never got (S9)."""
    past = run.services.past_events
    starts = [past[each][0] for each in (child, *past.walk_below(child))]
    counted = sum(isinstance(each, RunStarted) and not each.brief.is_compaction for each in starts)
    charge_past_child(run, child, counted)


async def _end_child(
    run: RunContext, child: str, finish: Callable[[RunContext], Awaitable[object]]
) -> None:
    services = run.services
    events = services.past_events[child]
    first = events[0]
    if not isinstance(first, RunStarted):
        return
    # It does nothing any more, and has no files of its own to store.
    brief = replace(first.brief, workspace=WorkspaceSpec())
    control = RunControl()
    control.cancel(run.control.stop_reason)
    grant = services.meters.open(child, brief.budget, run.meter)
    try:
        meter = services.meters.get(grant)
        context = RunContext(
            brief, meter, services, run.background.worker, control, run.environment
        )
        await restore_run(context, events)
        await context.recorder.record(
            context.recorder.make_event(RunResumed, head=context.describe_head())
        )
        await finish(context)
    finally:
        services.meters.close(grant)
