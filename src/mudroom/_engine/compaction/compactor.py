"""Compaction of one run: a summary run, the new conversation, its record and its use."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..._core.budgets import Limit
from ..._core.events import Compacted
from ..._core.messages import Message, TextBlock
from ..._core.ports.hooks import check_hook_result
from ..._core.runs import has_summary
from ..._core.token_counts import estimate_message_tokens
from ..context_policy import Thresholds
from ..run_context import RunContext
from .new_context import build_new_context, choose_sizes, select_last_turns
from .record_file import ConversationRecord
from .summary import make_summary_brief, make_summary_id, request_summary

MAX_FAILED_SUMMARIES = 3
"""Summary runs without notes, after which a run starts no more."""
CROWDED_TURNS = 6
MAX_CROWDED = 3
"""Compactions within CROWDED_TURNS turns, from which on none has notes."""
_MIN_FREE = 0.25
"""Part of the window that a compaction must free, or the next after two in a row has no notes."""
_MIN_GAIN = 0.05
"""Part of the window that a compaction must free at least."""


async def compact(
    run: RunContext,
    record: ConversationRecord,
    cause: str,
    thresholds: Thresholds,
    *,
    focus: str = "",
    fraction: float = 1.0,
) -> bool:
    """Compact the conversation. Return False if that would not make it smaller.

    Arguments:
        cause: see `Compacted`.
        focus: what the notes must keep.
        fraction: below 1 if an earlier compaction left too much.
    """
    before = run.estimate_request_tokens()
    min_gain = thresholds.window * _MIN_GAIN
    if before - run.conversation.new_tokens < min_gain:
        return False  # all sent messages are too short; the record may be long
    sizes = choose_sizes(thresholds.window, fraction)
    messages = (await record.read_context()).sent_messages
    if before - _estimate_rest(run, messages, sizes.turns) < min_gain:
        return False
    notes = ""
    summary_run = ""
    if fraction == 1.0 and may_request_notes(run, thresholds, before):
        summary_run = _choose_summary_id(run)
        report = await request_summary(run, make_summary_brief(run, summary_run, focus, messages))
        notes = report.text if has_summary(report) else ""
    event = await _make_compacted(run, record, cause, notes, thresholds, fraction)
    event = replace(event, summary_run=summary_run, before=before)
    apply_compaction(run, event)  # first: an interrupt of the record does not keep it from disk
    await run.recorder.record(event)
    await call_compaction_hook(run)
    return True


async def _make_compacted(
    run: RunContext,
    record: ConversationRecord,
    cause: str,
    notes: str,
    thresholds: Thresholds,
    fraction: float = 1.0,
) -> Compacted:
    """Write the record of a run to its file and return the event of a compaction."""
    await record.write_file()
    sizes = choose_sizes(thresholds.window, fraction)
    messages = (await record.read_context()).sent_messages
    if cause == "user":
        messages = _remove_prompt(run, messages)
    context = build_new_context(run, record, notes, sizes, messages)
    after = run.estimate_head_tokens() + estimate_message_tokens(context.messages)
    return run.recorder.make_event(
        Compacted, messages=context.messages, cause=cause, after=after, parts=context.parts
    )


async def record_user_compaction(run: RunContext, notes: str, thresholds: Thresholds) -> None:
    """Record the compaction of a root run that the user started: the next run continues from it.

    Arguments:
        notes: the answer of the run.
    """
    if any(event.cause == "user" for event in run.conversation.shortening.compactions):
        return  # by an earlier process
    before = run.estimate_request_tokens()
    event = await _make_compacted(run, ConversationRecord(run), "user", notes, thresholds)
    await run.recorder.record(replace(event, before=before))


def _remove_prompt(run: RunContext, messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages before the prompt of a run."""
    for index in range(len(messages) - 1, -1, -1):
        texts = (block.text for block in messages[index].content if isinstance(block, TextBlock))
        if run.brief.prompt in texts:
            return messages[:index]
    return messages


def apply_compaction(run: RunContext, event: Compacted) -> None:
    """Continue the conversation of a run as an event says."""
    if event.cause != "user":  # that one is for the run that continues this one
        run.conversation.replace_messages(event.messages, event.after)
        run.conversation.shortening.awaits_hook = True
    run.conversation.shortening.requested_focus = None
    run.conversation.shortening.compactions.append(replace(event, messages=()))


async def call_compaction_hook(run: RunContext) -> None:
    """Add the text of hooks to the next request of a run whose conversation was compacted.

    An interrupt, or the end of the process, leaves the hooks to `prepare_request`.

    Raises StoppedByHook.
    """
    hooks = run.services.hooks
    if hooks is None or run.brief.is_compaction:
        return
    note = check_hook_result("after_compaction", await hooks.after_compaction(run.brief), str)
    run.conversation.shortening.awaits_hook = False
    if note:
        run.add_note(note, origin="hook")


def _estimate_rest(run: RunContext, messages: Sequence[Message], turn_tokens: int) -> int:
    """Return about how many tokens the next request has after a compaction, without its words."""
    turns = select_last_turns(messages, turn_tokens)
    tokens = run.estimate_head_tokens() + estimate_message_tokens(turns)
    return tokens + run.conversation.new_tokens


def _choose_summary_id(run: RunContext) -> str:
    number = 1 + sum(event.turn == run.turn for event in run.conversation.shortening.compactions)
    return make_summary_id(run.run_id, run.turn, number)


def may_request_notes(run: RunContext, thresholds: Thresholds, size: int) -> bool:
    """Return whether a summary run is worth its price, and the budget suffices for it."""
    if run.brief.is_compaction:
        return False
    for limit in (Limit.INPUT_TOKENS, Limit.TOTAL_TOKENS):
        left = run.meter.compute_amount_left(limit)
        if left is not None and left < 2 * size:
            return False
    earlier = run.conversation.shortening.compactions
    failed = [event for event in earlier if event.summary_run and not event.parts["notes_tokens"]]
    if len(failed) >= MAX_FAILED_SUMMARIES:
        return False
    if failed and run.turn - failed[-1].turn < CROWDED_TURNS:
        return False
    last_two = earlier[-2:]
    largest = thresholds.window * (1 - _MIN_FREE)
    if len(last_two) == 2 and all(event.after > largest for event in last_two):
        return False
    crowded = [event for event in earlier if run.turn - event.turn < CROWDED_TURNS]
    return len(crowded) < MAX_CROWDED - 1
