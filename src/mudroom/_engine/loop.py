"""The one loop. Parent, child, scope and batch job all run it: ask, act, append, until the model asks for nothing more."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from .._core.agents import Reason, Report
from .._core.events import RunFinished, RunStarted
from ..errors import ModelError
from . import ending
from .calls import act
from .context import RunContext
from .guard import STOP, WARN, WORD
from .turn import ask


async def run(ctx: RunContext) -> Report:
    """Run a brief to its end. What happens inside becomes the report's reason; only a cancel not meant for this very run is raised on."""
    brief = replace(ctx.brief, history=()) if ctx.brief.continues else ctx.brief
    await ctx.record(ctx.event(RunStarted, brief=brief))
    reason, error = Reason.ERROR, ""
    try:
        async with asyncio.timeout(ctx.meter.budget.seconds):
            reason, error = await converse(ctx)
    except TimeoutError:
        reason = Reason.TIMEOUT
    except ModelError as failure:
        error = str(failure)
    except asyncio.CancelledError:
        reason = Reason.CANCELLED
    report = await ending.settle(ctx, reason, error)
    await ctx.record(ctx.event(RunFinished, report=report))
    if reason is Reason.CANCELLED and not ctx.stopping:
        raise asyncio.CancelledError
    return report


async def converse(ctx: RunContext) -> tuple[Reason, str]:
    """Turn after turn until the model calls nothing or a limit is met; the reason, and what went wrong if it is ERROR."""
    while (limit := ctx.meter.exceeded(ctx.age)) is None:
        message = await ask(ctx)
        if message.calls:
            await act(ctx)
            if ctx.answers.complete:
                return Reason.GOAL, ""
            if ctx.answers.hopeless:
                return Reason.ERROR, f"the outputs it emitted were wrong {ctx.answers.wrong} times"
        elif message.stop in ending.BROKEN_OFF:
            return Reason.ERROR, ending.BROKEN_OFF[message.stop]
        elif word := ctx.answers.nudge:
            ctx.tell(word)
        else:
            return Reason.GOAL, ""
        if (count := ctx.guard.see(message, ctx.results)) >= STOP:
            return Reason.LOOP, ""
        if count % WARN == 0:
            ctx.tell(WORD.format(count=count))
    return ending.REASONS[limit], ""
