"""The one loop. Parent, child, scope and batch job all run it: ask, act, append, until the model asks for nothing more."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from .._core.agents import Reason, Report
from .._core.events import RunResumed, RunStarted
from ..errors import JournalError, ModelError
from . import finish
from .loop_detection import STOP_AFTER, WARN_AFTER, WARNING
from .model_call import call_model
from .resume import restore_run
from .run_context import RunContext
from .tool_calls import run_tool_calls


async def run(ctx: RunContext) -> Report:
    """Run a brief to its end. What happens inside becomes the report's reason; only a cancel meant for more than it is raised.

    A journal that cannot be written ends everything at once; any other fault of an adapter ends the run, and out of a root run is raised.
    """
    reason, error, fault = Reason.ERROR, "", None
    try:
        await start_or_resume(ctx)
        async with asyncio.timeout(ctx.time_left) as deadline:
            ctx.bind_deadline(deadline)
            reason, error = await run_turns(ctx)
    except TimeoutError as late:
        reason, error = Reason.TIMEOUT, str(late)
    except ModelError as failure:
        error = str(failure)
    except asyncio.CancelledError:
        reason = Reason.CANCELLED
    except JournalError:
        raise
    except Exception as unforeseen:  # noqa: BLE001  whatever it is, the run must have an end (S10)
        fault, error = unforeseen, f"{type(unforeseen).__name__}: {unforeseen}"
    report, cancelled = await finish.finish_run(ctx, reason, error)
    if (cancelled or reason is Reason.CANCELLED) and not ctx.is_stopping:
        raise asyncio.CancelledError
    if fault and not ctx.brief.parent:
        raise fault
    return report


async def start_or_resume(ctx: RunContext) -> None:
    """Record that the run begins; or, when a dead process began it, go on from where that left it."""
    past = ctx.services.past_events.get(ctx.run_id)
    if past:
        await restore_run(ctx, past)
        await ctx.record(ctx.event(RunResumed))
    else:
        brief = replace(ctx.brief, history=()) if ctx.brief.continues else ctx.brief
        await ctx.record(ctx.event(RunStarted, brief=brief))


async def run_turns(ctx: RunContext) -> tuple[Reason, str]:
    """Ask and heed, turn after turn, until a run is done or a limit is met; the reason, and what went wrong if it is ERROR."""
    while ctx.grace_reason is None:
        if ctx.pending_answer is None:
            if (limit := ctx.meter.exceeded_limit(ctx.age)) is not None:
                return finish.REASON_FOR_LIMIT[limit], ""
            ctx.warn_near_limit()
            await call_model(ctx)
        if (end := await handle_answer(ctx)) is not None:
            return end
    return ctx.grace_reason, ""


async def handle_answer(ctx: RunContext) -> tuple[Reason, str] | None:
    """Do what the last answer asks for; how the run ends, None if it goes on."""
    message = ctx.pending_answer
    assert message is not None
    if message.tool_calls:
        await run_tool_calls(ctx)
        if ctx.outputs.is_complete:
            return Reason.GOAL, ""
        if ctx.outputs.has_too_many_errors:
            return (
                Reason.ERROR,
                f"the outputs it emitted were wrong {ctx.outputs.error_count} times",
            )
    elif message.stop_reason in finish.INCOMPLETE_ANSWER:
        return Reason.ERROR, finish.INCOMPLETE_ANSWER[message.stop_reason]
    elif word := ctx.outputs.reminder:
        ctx.inject_note(word)
    elif not ctx.inbox:
        return Reason.GOAL, ""
    if (count := ctx.loop_detector.add_turn(message, ctx.results)) >= STOP_AFTER:
        return Reason.LOOP, ""
    if count % WARN_AFTER == 0:
        ctx.inject_note(WARNING.format(count=count))
    ctx.pending_answer = None
    return None
