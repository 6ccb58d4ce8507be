"""Requests that fit into the context window: the entry points of the loop.

The code that shortens a conversation is imported when one is too long.
"""

from __future__ import annotations

from ..._core.messages import AssistantMessage
from ...errors import ContextOverflow
from ..context_policy import choose_next_check
from ..model_call import call_model
from ..run_context import RunContext


async def prepare_request(run: RunContext) -> None:
    """Show new messages of the user to the hooks, and shorten the conversation if it is necessary.

    It is if the next request may be too long, or was refused as too long.

    Raises ContextOverflow if a refused request cannot be made shorter, and StoppedByHook.
    """
    if run.services.hooks:
        if run.conversation.shortening.awaits_hook:
            from .compactor import call_compaction_hook

            await call_compaction_hook(run)
        await run.judge_messages()
    if not await _must_shorten(run):
        return
    from .shortening import shorten_conversation

    await shorten_conversation(run)


async def _must_shorten(run: RunContext) -> bool:
    """Return whether the conversation has to be shortened; most turns need no more than this."""
    state = run.conversation.shortening
    if state.overflow_error or run.services.recorded_edits is not None:
        return True
    if state.requested_focus is not None:
        return True
    is_first = not run.recorder.turn and not run.brief.history
    size = 0 if is_first else run.estimate_request_tokens()
    if is_first or size < state.next_check:
        return False
    policy = run.services.context_policy
    # A summary run reads the whole conversation; the reserve of the window is meant for it.
    if run.brief.is_compaction or not policy.is_automatic:
        return False
    await policy.load_window(run.brief.model, size)
    thresholds = run.find_thresholds(size)
    state.next_check = choose_next_check(size, thresholds)
    return thresholds is not None and size > thresholds.clear_at


async def call_within_window(run: RunContext) -> AssistantMessage | None:
    """Call the model; return None if it refused the request as too long.

    `prepare_request` then shortens the conversation.
    """
    try:
        return await call_model(run)
    except ContextOverflow as error:
        from .shortening import reopen_request

        await reopen_request(run, error)
        return None


async def finish_compaction(run: RunContext, notes: str) -> None:
    """Record the compaction that the user asked for, when its run ends with notes."""
    if not run.brief.is_compaction or run.brief.parent or not notes:
        return
    from .shortening import record_compaction

    await record_compaction(run, notes)
