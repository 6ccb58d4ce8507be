"""Shortening of a conversation whose next request may be too long."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ..._core.events import Compacted, ResultsCleared
from ..._core.messages import Message
from ...errors import ContextOverflow
from ..context_policy import DEFAULT_THRESHOLDS, choose_next_check
from ..run_context import RunContext
from .clearing import apply_clearing, clear_old_results, cut_queued_results
from .compactor import (
    apply_compaction,
    call_compaction_hook,
    compact,
    record_user_compaction,
)
from .record_file import ConversationRecord
from .summary import make_summary_brief, request_summary

MAX_OVERFLOWS = 3
"""Refusals of one request as too long, after which the run ends."""
_FRACTIONS = (1.0, 1.0, 0.5, 0.2)
"""Sizes of the parts of a compaction, by the number of refusals."""
_REMEDY = "Use a model with a larger context window, or fewer tools and shorter instructions."


async def shorten_conversation(run: RunContext) -> None:
    """Shorten the conversation as far as the next request needs it.

    Raises ContextOverflow if a refused request cannot be made shorter.
    """
    refusal = run.conversation.shortening.overflow_error
    if run.services.recorded_edits is not None:
        is_shorter = await _repeat_edits(run)
    else:
        is_shorter = await _compact_on_request(run) or await _shorten(run)
    if refusal and not is_shorter and not run.meter.find_exceeded_limit(run.timer.age):
        raise ContextOverflow(f"its context cannot be made to fit: {refusal}", remedy=_REMEDY)


async def reopen_request(run: RunContext, error: ContextOverflow) -> None:
    """Take back a request that was refused as too long."""
    size = run.estimate_request_tokens()
    run.meter.add_turns(-1)
    run.recorder.turn -= 1
    context = await ConversationRecord(run).read_context()
    run.conversation.reopen_last_request(context.sent_messages, context.waiting_blocks)
    run.add_overflow(size, str(error))


async def _compact_on_request(run: RunContext) -> bool:
    """Compact the conversation if a tool requested that. Return whether it changed."""
    state = run.conversation.shortening
    focus = state.requested_focus
    state.requested_focus = None
    if focus is None or state.overflow_error or run.meter.find_exceeded_limit(run.timer.age):
        return False
    thresholds = run.find_thresholds(run.estimate_request_tokens()) or DEFAULT_THRESHOLDS
    return await compact(run, ConversationRecord(run), "model", thresholds, focus=focus)


async def _shorten(run: RunContext) -> bool:
    """Clear results, then compact the conversation, as far as needed. Return whether it changed."""
    state = run.conversation.shortening
    refusals = state.overflow_count
    is_allowed = run.services.context_policy.is_automatic or run.brief.is_compaction
    if not is_allowed or refusals > MAX_OVERFLOWS:
        return False
    if run.brief.is_compaction and not refusals:
        # A summary run reads the whole conversation; the reserve of the window is meant for it.
        return False
    size = run.estimate_request_tokens()
    await run.services.context_policy.load_window(run.brief.model, size)
    thresholds = run.find_thresholds(size)
    state.next_check = choose_next_check(size, thresholds)
    if thresholds is None or (size <= thresholds.clear_at and not refusals):
        return False
    if run.meter.find_exceeded_limit(run.timer.age):
        return False
    record = ConversationRecord(run)
    is_shorter = await clear_old_results(run, record, thresholds)
    if size > thresholds.compact_at or refusals:
        is_shorter = await cut_queued_results(run, record, thresholds) or is_shorter
    if run.estimate_request_tokens() <= thresholds.compact_at and (is_shorter or not refusals):
        return is_shorter
    cause = "overflow" if refusals else "size"
    fraction = _FRACTIONS[refusals]
    return await compact(run, record, cause, thresholds, fraction=fraction) or is_shorter


async def record_compaction(run: RunContext, notes: str) -> None:
    """Record the compaction that the user asked for."""
    if run.services.recorded_edits is not None:
        await _repeat_edits(run)
        return
    thresholds = run.find_thresholds(run.estimate_request_tokens())
    await record_user_compaction(run, notes, thresholds or DEFAULT_THRESHOLDS)


async def _repeat_edits(run: RunContext) -> bool:
    """Apply the edits that the record of a replay has here."""
    recorded_edits = run.services.recorded_edits
    assert recorded_edits is not None
    edits = recorded_edits(run.run_id, run.turn, run.conversation.shortening.overflow_count)
    record = ConversationRecord(run)
    for event, recorded_brief in edits:
        if recorded_brief is not None:
            messages = (await record.read_context()).sent_messages
            history = make_summary_brief(run, recorded_brief.run_id, "", messages).history
            await request_summary(run, replace(recorded_brief, history=history))
        if isinstance(event, Compacted):
            apply_compaction(run, event)  # first: the record may interrupt the run after the event
        await run.recorder.record(event)
        if isinstance(event, ResultsCleared):
            apply_clearing(run, event, (await record.read_context()).sent_messages)
        elif event.cause != "user":
            await call_compaction_hook(run)
    return bool(edits)


def apply_edit(
    run: RunContext, event: ResultsCleared | Compacted, messages: Iterable[Message]
) -> None:
    """Change the conversation of a run as a recorded event says. `messages`: those after it."""
    if isinstance(event, Compacted):
        apply_compaction(run, event)
    else:
        apply_clearing(run, event, messages)
