"""Shortens a conversation whose next request may be too long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..._core.events import Compacted, ResultsCleared
from ..._core.messages import (
    AssistantMessage,
    Message,
    ToolCallBlock,
    ToolResultBlock,
    UserBlock,
    UserMessage,
    estimate_block_tokens,
    estimate_tokens,
)
from ..._core.tools import Effect, Tool, ToolCategory
from ..._projections.safe_text import describe_call, make_call_title
from ..._projections.transcript import Cleared
from ...errors import ContextOverflow
from ..context_policy import DEFAULT_THRESHOLDS, Thresholds, choose_next_check
from ..run_context import RunContext
from .compactor import (
    apply_compaction,
    call_compaction_hook,
    compact,
    record_user_compaction,
)
from .record_file import ConversationRecord, find_record_path
from .summary import make_summary_brief, request_summary

MAX_OVERFLOWS = 3  # refusals of a request as too long until the run ends
_FRACTIONS = (1.0, 1.0, 0.5, 0.2)  # of the sizes of a compaction's parts, by refusals so far
_REMEDY = "Use a model with a larger context window, or fewer tools and shorter instructions."


async def shorten_conversation(run: RunContext) -> None:
    """Shorten the conversation as far as the next request requires.

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
    size = run.estimate_request_tokens()
    context = await ConversationRecord(run).read_context()
    run.conversation.reopen_last_request(context.sent_messages, context.waiting_blocks)
    run.add_overflow(size, str(error))


async def _compact_on_request(run: RunContext) -> bool:
    """Compact the conversation if a tool requested it. Return whether it changed."""
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
    size = run.estimate_request_tokens()
    if refusals:
        await run.services.context_policy.load_window(run.brief.model, size)
    thresholds = run.find_thresholds(size)
    state.next_check = choose_next_check(size, thresholds)
    if thresholds is None:
        return False
    if not refusals and (run.brief.is_compaction or size <= thresholds.clear_at):
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
    if run.services.recorded_edits is not None:
        await _repeat_edits(run)
        return
    thresholds = run.find_thresholds(run.estimate_request_tokens())
    await record_user_compaction(run, notes, thresholds or DEFAULT_THRESHOLDS)


async def _repeat_edits(run: RunContext) -> bool:
    recorded_edits = run.services.recorded_edits
    assert recorded_edits is not None
    edits = await recorded_edits(
        run.run_id, run.turn.number, run.conversation.shortening.overflow_count
    )
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
    """Apply a recorded edit to a run's conversation. `messages`: those after the edit."""
    if isinstance(event, Compacted):
        apply_compaction(run, event)
    else:
        apply_clearing(run, event, messages)


KEPT_TURNS = 3  # the last ones, which keep results and arguments
KEPT_ERROR_TURNS = 10  # the last ones, which keep errors
MAX_KEPT_TOKENS = 40_000  # of the newest calls and results, which are kept
MIN_CLEARED_TOKENS = 20_000
"""Tokens to clear at a time, because the provider's cache only serves an equal prefix."""
MIN_LENGTH = 200  # characters; shorter results are not cleared

CLEARED = "[cleared to save space: "
_CLEARED_TEXT = CLEARED + "{title}. The whole result is in {path}; search it for {call_id}]"
_CUT_TEXT = "\n[… cut to save space: the whole result is in {path}; search it for {call_id} …]\n"


class _Part(Struct, frozen=True):
    """A result or a call in the conversation."""

    block: ToolResultBlock | ToolCallBlock
    age: int  # in turns
    newer_tokens: int  # of the parts from this one on
    is_repeated: bool = False  # a later call of a pure tool has the same arguments

    @property
    def tokens(self) -> int:
        return estimate_block_tokens([self.block])


async def clear_old_results(
    run: RunContext, record: ConversationRecord, thresholds: Thresholds
) -> bool:
    """Clear old results and cut old arguments, if that frees enough.

    Starts with results of calls that were repeated later. Return False if nothing was cleared.
    """
    if run.turn.number <= KEPT_TURNS and not run.brief.history:
        return False  # nothing is old enough, however long the record is
    path = find_record_path(run)
    messages = (await record.read_context()).sent_messages
    parts = _list_clearable(run, messages, thresholds)
    needed = min(MIN_CLEARED_TOKENS, thresholds.window // 8)
    for chosen in ([part for part in parts if part.is_repeated], parts):
        edit = _make_edit(run, chosen, find_calls(messages), path)
        if edit.tokens >= needed:
            await _clear(run, record, edit)
            return True
    return False


def _make_edit(
    run: RunContext, parts: Iterable[_Part], calls: Mapping[str, ToolCallBlock], path: str
) -> ResultsCleared:
    texts: dict[str, str] = {}
    arguments: dict[str, dict[str, Any]] = {}
    tokens = 0
    for part in parts:
        if isinstance(part.block, ToolCallBlock):
            call_id = part.block.id
            arguments[call_id] = cut_arguments(part.block, run.tools)
            left = estimate_block_tokens([replace(part.block, arguments=arguments[call_id])])
        else:
            call_id = part.block.call_id
            title = _describe(calls.get(call_id), part.block, run.tools)
            texts[call_id] = _CLEARED_TEXT.format(title=title, path=path, call_id=call_id)
            left = estimate_tokens(texts[call_id])
        tokens += max(0, part.tokens - left)
    return run.recorder.make_event(ResultsCleared, texts=texts, tokens=tokens, arguments=arguments)


async def cut_queued_results(
    run: RunContext, record: ConversationRecord, thresholds: Thresholds
) -> bool:
    """Cut those results of the last turn that do not fit. Return False if all fit."""
    results = [block for block in run.conversation.queued if isinstance(block, ToolResultBlock)]
    allowed = thresholds.compact_at // 4
    if estimate_block_tokens(results) <= allowed:
        return False
    share = max(MIN_LENGTH, allowed * 2 // len(results))
    path = find_record_path(run)
    texts: dict[str, str] = {}
    tokens = 0
    for block in results:
        if estimate_block_tokens([block]) * 2 <= share:
            continue
        notice = _CUT_TEXT.format(path=path, call_id=block.call_id)
        texts[block.call_id] = block.text[: share // 2] + notice + block.text[-share // 2 :]
        tokens += estimate_block_tokens([block]) - estimate_tokens(texts[block.call_id])
    if tokens <= 0:
        return False
    edit = run.recorder.make_event(ResultsCleared, texts=texts, tokens=tokens)
    await _clear(run, record, edit)
    return True


async def _clear(run: RunContext, record: ConversationRecord, event: ResultsCleared) -> None:
    await record.write_file()
    await run.recorder.record(event)
    apply_clearing(run, event, (await record.read_context()).sent_messages)


def apply_clearing(run: RunContext, event: ResultsCleared, messages: Iterable[Message]) -> None:
    """Apply a clearing to a run's conversation. `messages`: the sent ones after it."""
    conversation = run.conversation
    conversation.queued = Cleared().add(event).clear_blocks(conversation.queued)
    freed_later = conversation.new_tokens - estimate_block_tokens(conversation.queued)
    tokens = conversation.sent_tokens
    if tokens:
        tokens = max(1, tokens - event.tokens + freed_later)
    conversation.replace_messages(messages, tokens)


def find_calls(messages: Iterable[Message]) -> dict[str, ToolCallBlock]:
    return {
        call.id: call
        for message in messages
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls
    }


def _list_clearable(
    run: RunContext, messages: Iterable[Message], thresholds: Thresholds
) -> list[_Part]:
    """List the results that may be cleared and the calls with long arguments, newest first."""
    kept = min(MAX_KEPT_TOKENS, thresholds.window // 4)
    clearable: list[_Part] = []
    for part in _walk_parts(messages, run.conversation.queued, run.tools):
        if part.age < KEPT_TURNS or not (part.newer_tokens > kept or part.is_repeated):
            continue
        if isinstance(part.block, ToolCallBlock):
            is_clearable = cut_arguments(part.block, run.tools) != part.block.arguments
        else:
            is_clearable = _is_clearable(part.block, part.age, run.tools)
        if is_clearable:
            clearable.append(part)
    return clearable


def _is_clearable(block: ToolResultBlock, age: int, tools: Mapping[str, Tool]) -> bool:
    tool = tools.get(block.name)
    keeps = tool is not None and tool.keeps_results
    is_late_error = block.error and age < KEPT_ERROR_TURNS
    is_short = len(block.text) < MIN_LENGTH and not block.images
    return not (keeps or is_late_error or is_short or block.text.startswith(CLEARED))


def _walk_parts(
    messages: Iterable[Message], queued: Iterable[UserBlock], tools: Mapping[str, Tool]
) -> Iterator[_Part]:
    """Yield the calls and results of a conversation, newest first."""
    messages = [*messages, UserMessage(tuple(queued))]
    calls = find_calls(messages)
    later_calls: set[str] = set()
    age = 0
    tokens = 0
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                tokens += estimate_block_tokens([call])
                yield _Part(call, age, tokens)
            age += 1
            continue
        for block in message.content:
            if not isinstance(block, ToolResultBlock):
                continue
            tokens += estimate_block_tokens([block])
            key = _make_call_key(calls.get(block.call_id), tools) or block.call_id
            yield _Part(block, age, tokens, key in later_calls)
            if not block.error:
                later_calls.add(key)


def _make_call_key(call: ToolCallBlock | None, tools: Mapping[str, Tool]) -> str:
    """Return a key shared by a pure tool's calls with equal arguments; "" for other calls."""
    tool = tools.get(call.name) if call else None
    if call is None or tool is None or tool.effect is not Effect.PURE:
        return ""
    arguments = tool.rename_arguments(call.arguments)
    return f"{call.name} {msgspec.json.encode(arguments, order='sorted').decode()}"


def _describe(call: ToolCallBlock | None, block: ToolResultBlock, tools: Mapping[str, Tool]) -> str:
    size = f"{len(block.text):,} characters"
    if call is None:
        return f"{block.name}, {size}"
    tool = tools.get(call.name)
    arguments = tool.rename_arguments(call.arguments) if tool else call.arguments
    return f"{describe_call(call, make_call_title(arguments, tool))}, {size}"


MAX_LENGTH = 2_000  # characters; longer texts in arguments are cut
_KEPT_LENGTH = 500  # characters kept of head and tail
_CUT = "[… {length:,} characters were cut to save space; the call had the whole text …]"


def cut_arguments(call: ToolCallBlock, tools: Mapping[str, Tool]) -> dict[str, Any]:
    """Cut long texts in a call's arguments, if its tool writes files.

    A call signed by the provider stays as it is.
    """
    tool = tools.get(call.name)
    if tool is None or not tool.has_category(ToolCategory.WRITE) or call.signature:
        return call.arguments
    return {
        name: _cut(value) if isinstance(value, str) and len(value) > MAX_LENGTH else value
        for name, value in call.arguments.items()
    }


def _cut(text: str) -> str:
    notice = _CUT.format(length=len(text) - 2 * _KEPT_LENGTH)
    return f"{text[:_KEPT_LENGTH]}\n{notice}\n{text[-_KEPT_LENGTH:]}"
