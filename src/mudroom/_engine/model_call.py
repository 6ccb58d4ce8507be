"""One model call: stream, whole message, meter."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from .._core.agents import Reason
from .._core.events import ModelCallRetried, TurnFailed, TurnFinished, TurnStarted
from .._core.messages import AssistantMessage, TextBlock, ThinkingBlock, ToolCallBlock
from .._core.ports import RetryNotice, StreamChunk
from ..errors import ModelError, ModelGarbled, ModelUnavailable
from .run_context import RunContext, wire_safe_id

SILENCE_SECONDS = 150.0
"""Seconds without a piece after which an answer is given up; wires give up a silent connection sooner, and try again."""

FIRST_CHUNK_SECONDS = 300.0
"""Seconds more for the first piece: a request may have to wait its turn."""


async def call_model(ctx: RunContext, *, grace: Reason | None = None) -> AssistantMessage:
    """Ask for the next answer and append it. It is noted for the journal: the next `record` stores it before any act.

    Arguments:
        grace: the reason the run ends for, if it does: this turn then has no tools.

    Raises ModelError after recording the failure; TimeoutError when the model has fallen silent.
    """
    ctx.turn += 1
    ctx.meter.turns += 1
    ctx.record_later(ctx.event(TurnStarted, grace=grace), show=True)
    ctx.send_inbox()
    began = ctx.services.clock.monotonic()
    try:
        message = _distinct(await _stream_answer(ctx, tools=grace is None), ctx)
    except ModelError as error:
        await ctx.record(
            ctx.event(TurnFailed, error=str(error), transient=isinstance(error, ModelUnavailable))
        )
        raise
    except BaseException as cut:  # a limit, a cancel, silence, or a fault of the adapter
        ctx.is_cut_off = True
        ctx.record_later(
            ctx.event(TurnFailed, error=str(cut) or "cut off before the answer was whole")
        )
        raise
    ctx.charge(message)
    ctx.record_later(
        ctx.event(
            TurnFinished, message=message, seconds=round(ctx.services.clock.monotonic() - began, 3)
        )
    )
    ctx.append_answer(message)
    return message


async def _stream_answer(ctx: RunContext, *, tools: bool) -> AssistantMessage:
    whole: AssistantMessage | None = None
    limit = asyncio.timeout(SILENCE_SECONDS + FIRST_CHUNK_SECONDS)
    try:
        async with limit:
            async for part in ctx.chat.request_answer(tools=tools):
                if isinstance(part, StreamChunk):
                    _extend(limit, SILENCE_SECONDS)
                    if part.kind:
                        ctx.show_delta(part.kind, part.text)
                elif isinstance(part, RetryNotice):
                    _extend(limit, part.delay + FIRST_CHUNK_SECONDS + SILENCE_SECONDS)
                    await ctx.record(
                        ctx.event(
                            ModelCallRetried,
                            attempt=part.attempt,
                            delay=part.delay,
                            status=part.status,
                            error=part.error,
                        )
                    )
                else:
                    whole = part
    except TimeoutError as error:
        raise TimeoutError("the model fell silent") if limit.expired() else error from None
    if whole is not None:
        return whole
    raise ModelGarbled("the model's answer ended before it was whole", where=ctx.brief.model)


def _extend(limit: asyncio.Timeout, seconds: float) -> None:
    """Move the deadline to about that far from now; pieces that come close together leave it where it is."""
    due, now = asyncio.get_running_loop().time() + seconds, limit.when()
    if now is None or abs(due - now) > seconds / 30:
        limit.reschedule(due)


def _distinct(message: AssistantMessage, ctx: RunContext) -> AssistantMessage:
    """The message with call ids that are there and new in this conversation: providers have sent empty and repeated ones (F3)."""
    ids = [wire_safe_id(call) for call in message.tool_calls]
    if all(ids) and len(set(ids)) == len(ids) and ctx.used_call_ids.isdisjoint(ids):
        return message
    seen, content = set(ctx.used_call_ids), list[TextBlock | ThinkingBlock | ToolCallBlock]()
    for n, block in enumerate(message.content):
        if isinstance(block, ToolCallBlock):
            block = block if block.id else replace(block, id=f"call_{ctx.turn}_{n}")
            while wire_safe_id(block) in seen:
                block = replace(block, id=f"{block.id}_{ctx.turn}")
            seen.add(wire_safe_id(block))
        content.append(block)
    return replace(message, content=tuple(content))
