"""Tool calls of one answer: intent, action and result, each stored before the next."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from msgspec.structs import replace

from ..._core.events import ToolCallFinished, ToolCallStarted
from ..._core.messages import ToolCallBlock
from ..._core.ports import Hooks
from ..._core.ports.hooks import check_hook_result
from ..._core.tools import Effect, ToolResult, clean_result, join_reasons
from ...projections.engine_text import quote_appended, quote_hook
from ...projections.safe_text import make_call_title
from ..call_batch import CallOutcome
from ..call_context import CallContext
from ..evidence import keep_evidence
from ..resume import collect_reminders, resolve_interrupted
from ..run_context import RunContext
from .execution import act_and_observe, cap_result, redact_result, warn_of_overlaps
from .permission_check import add_context, call_before_hook, check_permission
from .prepared_call import PreparedCall, prepare_call
from .schedule import CallScheduler, Slot, choose_lane

QUICK_SECONDS = 1.0
"""Duration up to which a pure call is quick: its result is stored with the next record.

Slower results are stored at once. After a crash a quick call may run again (S3).
"""

STARTS_AT_ONCE = 32
"""Calls of one answer that start in one iteration of the event loop.

The first of thousands of children work while the others start, and timers come in between.
"""

ALL_FAILED = (
    "All tool calls of this turn failed. Read the errors, find the cause, and try another way."
)


async def run_tool_calls(run: RunContext) -> list[CallOutcome]:
    """Run the calls of the batch that have no outcome yet, and queue all results for the model.

    Returns the outcomes in the order of the calls.
    """
    if not run.batch.calls:
        return []
    open_calls = run.batch.list_open_calls()
    if len(open_calls) == 1:
        [(position, call)] = open_calls
        await _run_call(run, position, prepare_call(run, call))
    elif open_calls:
        scheduler = CallScheduler()
        await _run_all(_start_call(run, scheduler, *each) for each in open_calls)
    outcomes = run.close_batch()
    for note in collect_reminders(run):
        run.add_note(note)
    failed = [outcome for outcome in outcomes if outcome.result.error]
    if len(failed) == len(outcomes):
        run.add_note(ALL_FAILED)
    return outcomes


def _start_call(
    run: RunContext, scheduler: CallScheduler, position: int, call: ToolCallBlock
) -> Coroutine[Any, Any, None]:
    """Return the work of a call, with its place in the order of the calls."""
    prepared = prepare_call(run, call)
    lane = choose_lane(prepared)
    if lane is None:
        return _run_call(run, position, prepared)
    return _run_in_order(run, position, prepared, scheduler.reserve(lane))


async def _run_all(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run calls at the same time; `calls` makes each of them when it starts."""
    try:
        async with asyncio.TaskGroup() as group:
            for count, call in enumerate(calls, 1):
                group.create_task(call)
                if count % STARTS_AT_ONCE == 0:
                    await asyncio.sleep(0)
    except BaseExceptionGroup as failures:
        # Only a failed journal or a fault of the engine arrives here: it ends the session.
        raise failures.exceptions[0] from None


async def _run_in_order(run: RunContext, position: int, prepared: PreparedCall, slot: Slot) -> None:
    try:
        for event in slot.before:
            await event.wait()
        await _run_call(run, position, prepared)
    finally:
        slot.done.set()


async def _run_call(run: RunContext, position: int, prepared: PreparedCall) -> None:
    """Run one call: intent, act, result, each stored before the next (S1)."""
    if run.services.hooks and not prepared.refusal and prepared.call.id not in run.batch.started:
        prepared = await call_before_hook(run, run.services.hooks, prepared)
    prepared = await check_permission(run, prepared)
    refusal = prepared.refusal
    context = CallContext(run, prepared.call, position)
    started_at = run.services.clock.monotonic()
    result = refusal
    if prepared.call.id not in run.batch.started:
        await _record_start(run, prepared, is_refused=refusal is not None)
    elif prepared.tool and not refusal:
        result = resolve_interrupted(run, prepared.call, prepared.tool)
    if result is None:
        run.batch.working[prepared.call.id] = prepared.name, started_at
        result = await act_and_observe(context, prepared)
        if run.services.recorded_work is None:  # recorded results have the engine's lines already
            result = replace(result, text=quote_appended(result.text))
        result = warn_of_overlaps(run, prepared, result)
        if run.services.hooks:
            changed = await run.services.hooks.after_tool(run.brief, prepared.call, result)
            check_hook_result("after_tool", changed, ToolResult)
            result = keep_evidence(changed, result) if changed else result
            result = await _add_changes_of_hooks(run, run.services.hooks, result)
        result = cap_result(context, redact_result(run, result))
    seconds = round(run.services.clock.monotonic() - started_at, 3)
    if prepared.hook and prepared.hook.context:
        result = add_context(run, prepared.hook, result)
    if result.context:
        result = replace(result, context=quote_hook(result.context))
    result = clean_result(result)
    outcome = CallOutcome(prepared.call.id, prepared.name, result, refusal is not None)
    await _record_outcome(run, prepared, outcome, seconds)


async def _add_changes_of_hooks(run: RunContext, hooks: Hooks, result: ToolResult) -> ToolResult:
    """Return the result with the reason why hooks of the call may have changed files."""
    if run.services.recorded_work is not None:
        return result  # a recorded result has it already
    if not (why := await hooks.explain_changes(run.brief)):
        return result
    return replace(result, unknown_changes=join_reasons(result.unknown_changes, why))


async def _record_start(run: RunContext, prepared: PreparedCall, *, is_refused: bool) -> None:
    """Store the start of a call; that of a refused call is stored together with its outcome."""
    tool = prepared.tool
    started = run.recorder.make_event(
        ToolCallStarted,
        call=prepared.call,
        title=make_call_title(prepared.call.arguments, tool),
        view=tool.view if tool else "",
    )
    if is_refused:
        run.recorder.record_later(started, show=True)
    else:
        await run.recorder.record(started)


async def _record_outcome(
    run: RunContext, prepared: PreparedCall, outcome: CallOutcome, seconds: float
) -> None:
    run.batch.add(outcome)
    finished = run.recorder.make_event(
        ToolCallFinished,
        call_id=outcome.call_id,
        name=outcome.name,
        result=outcome.result,
        seconds=seconds,
        refused=outcome.refused,
    )
    is_pure = prepared.tool is not None and prepared.tool.effect is Effect.PURE
    if is_pure and seconds <= QUICK_SECONDS:
        run.recorder.record_later(finished, show=True)
    else:
        await run.recorder.record(finished)
