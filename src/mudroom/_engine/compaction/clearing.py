"""Clearing: short texts in place of old tool results. It needs no model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from ..._core.events import ResultsCleared
from ..._core.messages import (
    AssistantMessage,
    Message,
    ToolCallBlock,
    ToolResultBlock,
    UserBlock,
)
from ..._core.token_counts import estimate_block_tokens, estimate_tokens
from ..._core.tools import Tool
from ...projections.context import clear_blocks
from ...projections.safe_text import describe_call, make_call_title
from ..context_policy import Thresholds
from ..run_context import RunContext
from .record_file import find_record_path, read_context, write_record

KEPT_TURNS = 3
"""Turns at the end whose results stay."""
KEPT_ERROR_TURNS = 10
"""Turns at the end in which errors stay."""
MAX_KEPT_TOKENS = 40_000
"""Tokens of the newest results that stay."""
MIN_CLEARED_TOKENS = 20_000
"""Tokens that are cleared at once, because the provider's cache holds only an equal beginning."""
MIN_LENGTH = 200
"""Characters from which a result is cleared."""

CLEARED = "[cleared to save space: "
_CLEARED_TEXT = CLEARED + "{title}. The whole result is in {path}; search it for {call_id}]"
_CUT_TEXT = "\n[… cut to save space: the whole result is in {path}; search it for {call_id} …]\n"


class _Result(Struct, frozen=True):
    """A result in the conversation. `age`: turns since then."""

    block: ToolResultBlock
    age: int
    tokens: int


async def clear_old_results(run: RunContext, thresholds: Thresholds) -> bool:
    """Clear old results, if that frees enough. Return False if nothing was cleared."""
    path = find_record_path(run)
    messages = (await read_context(run)).sent_messages
    calls = find_calls(messages)
    texts: dict[str, str] = {}
    tokens = 0
    for result in _list_clearable(run, messages, thresholds):
        call_id = result.block.call_id
        title = _describe(calls.get(call_id), result.block, run.tools)
        text = _CLEARED_TEXT.format(title=title, path=path, call_id=call_id)
        texts[call_id] = text
        tokens += max(0, result.tokens - estimate_tokens(text))
    if tokens < min(MIN_CLEARED_TOKENS, thresholds.window // 8):
        return False
    await _clear(run, texts, tokens)
    return True


async def cut_queued_results(run: RunContext, thresholds: Thresholds) -> bool:
    """Cut the results of the last turn that do not fit. Return False if all fit."""
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
    await _clear(run, texts, tokens)
    return True


async def _clear(run: RunContext, texts: dict[str, str], tokens: int) -> None:
    await write_record(run)
    event = run.recorder.make_event(ResultsCleared, texts=texts, tokens=tokens)
    await run.recorder.record(event)
    apply_clearing(run, event, (await read_context(run)).sent_messages)


def apply_clearing(run: RunContext, event: ResultsCleared, messages: Iterable[Message]) -> None:
    """Change the conversation of a run as an event says. `messages`: the sent ones after it."""
    conversation = run.conversation
    conversation.queued = clear_blocks(conversation.queued, event.texts)
    freed_later = conversation.new_tokens - estimate_block_tokens(conversation.queued)
    tokens = conversation.sent_tokens
    if tokens:
        tokens = max(1, tokens - event.tokens + freed_later)
    conversation.replace_messages(messages, tokens)


def find_calls(messages: Iterable[Message]) -> dict[str, ToolCallBlock]:
    """Return the tool calls in messages by id."""
    return {
        call.id: call
        for message in messages
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls
    }


def _list_clearable(
    run: RunContext, messages: Iterable[Message], thresholds: Thresholds
) -> list[_Result]:
    """Return the results that may be cleared, newest first."""
    kept = min(MAX_KEPT_TOKENS, thresholds.window // 4)
    seen = 0
    clearable: list[_Result] = []
    for result in _walk_results(messages, run.conversation.queued):
        seen += result.tokens
        tool = run.tools.get(result.block.name)
        is_old = result.age >= KEPT_TURNS and seen > kept
        keeps = tool is not None and tool.keeps_results
        is_late_error = result.block.error and result.age < KEPT_ERROR_TURNS
        is_short = len(result.block.text) < MIN_LENGTH and not result.block.images
        is_cleared = result.block.text.startswith(CLEARED)
        if is_old and not (keeps or is_late_error or is_short or is_cleared):
            clearable.append(result)
    return clearable


def _walk_results(messages: Iterable[Message], queued: Iterable[UserBlock]) -> Iterator[_Result]:
    """Yield the results of a conversation, newest first."""
    for block in queued:
        if isinstance(block, ToolResultBlock):
            yield _Result(block, 0, estimate_block_tokens([block]))
    age = 0
    for message in reversed(list(messages)):
        if isinstance(message, AssistantMessage):
            age += 1
            continue
        for block in message.content:
            if isinstance(block, ToolResultBlock):
                yield _Result(block, age, estimate_block_tokens([block]))


def _describe(call: ToolCallBlock | None, block: ToolResultBlock, tools: Mapping[str, Tool]) -> str:
    size = f"{len(block.text):,} characters"
    if call is None:
        return f"{block.name}, {size}"
    tool = tools.get(call.name)
    arguments = tool.rename_arguments(call.arguments) if tool else call.arguments
    return f"{describe_call(call, make_call_title(arguments, tool))}, {size}"
