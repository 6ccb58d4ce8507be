"""The one loop. Parent, child, scope and batch job all run it: ask, act, append, until the model asks for nothing more."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from .._core.agents import Reason, Report
from .._core.events import Resumed, RunStarted
from ..errors import JournalError, ModelError
from . import finish
from .loop_detection import STOP, WARN, WORD
from .model_call import ask
from .resume import recall
from .run_context import RunContext
from .tool_calls import act


async def run(ctx: RunContext) -> Report:
    """Run a brief to its end. What happens inside becomes the report's reason; only a cancel meant for more than it is raised.

    A journal that cannot be written ends everything at once; any other fault of an adapter ends the run, and out of a root run is raised.
    """
    reason, error, fault = Reason.ERROR, "", None
    try:
        await begin(ctx)
        async with asyncio.timeout(ctx.time_left) as deadline:
            ctx.runs_until(deadline)
            reason, error = await converse(ctx)
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
    report, cancelled = await finish.conclude(ctx, reason, error)
    if (cancelled or reason is Reason.CANCELLED) and not ctx.stopping:
        raise asyncio.CancelledError
    if fault and not ctx.brief.parent:
        raise fault
    return report


async def begin(ctx: RunContext) -> None:
    """Record that the run begins; or, when a dead process began it, go on from where that left it."""
    past = ctx.parts.past.get(ctx.run_id)
    if past:
        await recall(ctx, past)
        await ctx.record(ctx.event(Resumed))
    else:
        brief = replace(ctx.brief, history=()) if ctx.brief.continues else ctx.brief
        await ctx.record(ctx.event(RunStarted, brief=brief))


async def converse(ctx: RunContext) -> tuple[Reason, str]:
    """Ask and heed, turn after turn, until a run is done or a limit is met; the reason, and what went wrong if it is ERROR."""
    while ctx.grace is None:
        if ctx.unheeded is None:
            if (limit := ctx.meter.exceeded(ctx.age)) is not None:
                return finish.REASONS[limit], ""
            ctx.warn()
            await ask(ctx)
        if (end := await heed(ctx)) is not None:
            return end
    return ctx.grace, ""


async def heed(ctx: RunContext) -> tuple[Reason, str] | None:
    """Do what the last answer asks for; how the run ends, None if it goes on."""
    message = ctx.unheeded
    assert message is not None
    if message.calls:
        await act(ctx)
        if ctx.answers.complete:
            return Reason.GOAL, ""
        if ctx.answers.hopeless:
            return Reason.ERROR, f"the outputs it emitted were wrong {ctx.answers.wrong} times"
    elif message.stop in finish.BROKEN_OFF:
        return Reason.ERROR, finish.BROKEN_OFF[message.stop]
    elif word := ctx.answers.nudge:
        ctx.tell(word)
    elif not ctx.inbox:
        return Reason.GOAL, ""
    if (count := ctx.guard.see(message, ctx.results)) >= STOP:
        return Reason.LOOP, ""
    if count % WARN == 0:
        ctx.tell(WORD.format(count=count))
    ctx.unheeded = None
    return None
