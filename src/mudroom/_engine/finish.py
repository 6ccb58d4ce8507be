"""How a run ends: a grace turn for a summary, results for calls that were cut off, a reason that is true."""

from __future__ import annotations

import asyncio

from .._core.agents import Reason, Report
from .._core.budgets import Limit
from .._core.events import RunFinished, ToolCallFinished
from .._core.messages import StopReason, ToolResultBlock
from .._core.tools import ToolResult, canonical_tool_name
from ..errors import ModelError
from .model_call import call_model
from .resume import INTERRUPTED
from .run_context import RunContext

GRACE_SECONDS = 60.0
"""How long the grace turn may take."""

NOT_RUN = "Not run: no tool could be called any more."

REASON_FOR_LIMIT = {
    Limit.TURNS: Reason.MAX_TURNS,
    Limit.SECONDS: Reason.TIMEOUT,
    Limit.INPUT_TOKENS: Reason.BUDGET,
    Limit.OUTPUT_TOKENS: Reason.BUDGET,
    Limit.TOTAL_TOKENS: Reason.BUDGET,
    Limit.USD: Reason.BUDGET,
}

INCOMPLETE_ANSWER = {
    StopReason.LENGTH: "the answer was cut off at the model's output limit",
    StopReason.REFUSAL: "the model refused to answer",
}

_EXPLANATIONS = {
    Reason.MAX_TURNS: "You have used up your turns.",
    Reason.TIMEOUT: "Your time is up.",
    Reason.BUDGET: "You have used up your tokens, or your money.",
    Reason.LOOP: "You went on in circles and were stopped.",
    Reason.CANCELLED: "You are asked to wrap up.",
}


_SUMMARY_REASONS = _EXPLANATIONS.keys() - {Reason.CANCELLED}


async def finish_run(ctx: RunContext, reason: Reason, error: str) -> tuple[Report, bool]:
    """The report, recorded, and whether a cancel came meanwhile: that cuts the summary short, and nothing else (S10)."""
    settling, cancelled = asyncio.ensure_future(_finish(ctx, reason, error)), False
    while not settling.done():
        try:
            await asyncio.wait((settling,))
        except asyncio.CancelledError:
            cancelled = ctx.is_hurried = True
            if ctx.summary_timeout is not None:
                ctx.summary_timeout.reschedule(0)
    return settling.result(), cancelled


async def _finish(ctx: RunContext, reason: Reason, error: str) -> Report:
    """End what is under way; a limit grants one turn without tools, unless the model itself hangs."""
    await ctx.barrier.close()
    await _close_calls(ctx)
    summary = ctx.answer_text if ctx.grace_reason else ""
    if (
        not summary
        and not ctx.is_hurried
        and (ctx.is_wrapping_up or (reason in _SUMMARY_REASONS and not ctx.is_cut_off))
    ):
        summary = await _summary(ctx, reason)
        await _close_calls(ctx)
    text = summary or (ctx.answer_text if reason is Reason.GOAL else ctx.last_text)
    report = ctx.report(reason, text, recovered=bool(summary), error=error)
    await ctx.record(ctx.event(RunFinished, report=report))
    return report


async def _summary(ctx: RunContext, reason: Reason) -> str:
    if ctx.grace_reason is None:  # else it was told so before its process died
        ctx.grace_reason = reason
        ctx.inject_note(
            f"{_EXPLANATIONS[reason]} Call no more tools. Summarise now what you found and did, and what is left undone."
        )
    try:
        async with asyncio.timeout(GRACE_SECONDS) as ctx.summary_timeout:
            return (await call_model(ctx, grace=reason)).text.strip()
    except (TimeoutError, ModelError):
        return ""
    finally:
        ctx.summary_timeout = None


async def _close_calls(ctx: RunContext) -> None:
    """Give every call that was cut off, or made in the grace turn, a result, so that the conversation can go on (S7)."""
    never = ctx.grace_reason is not None
    for call in ctx.open_calls:
        if call.id not in ctx.results:
            name, result = (
                canonical_tool_name(call.name),
                ToolResult(NOT_RUN if never else INTERRUPTED, error=True),
            )
            ctx.results[call.id] = ToolResultBlock(call.id, name, result.text, error=True)
            await ctx.record(
                ctx.event(
                    ToolCallFinished, call_id=call.id, name=name, result=result, refused=never
                )
            )
    ctx.queue_results()
