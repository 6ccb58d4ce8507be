"""Clearing: short texts in place of old tool results. It needs no model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..._core.events import ResultsCleared
from ..._core.messages import (
    AssistantMessage,
    Message,
    ToolCallBlock,
    ToolResultBlock,
    UserBlock,
    UserMessage,
)
from ..._core.token_counts import estimate_block_tokens, estimate_tokens
from ..._core.tools import Effect, Tool
from ...projections.context import Cleared
from ...projections.safe_text import describe_call, make_call_title
from ..context_policy import Thresholds
from ..run_context import RunContext
from .long_arguments import cut_arguments
from .record_file import ConversationRecord, find_record_path

KEPT_TURNS = 3
"""Turns at the end whose results and arguments stay."""
KEPT_ERROR_TURNS = 10
"""Turns at the end in which errors stay."""
MAX_KEPT_TOKENS = 40_000
"""Tokens of the newest calls and results that stay."""
MIN_CLEARED_TOKENS = 20_000
"""Tokens that are cleared at once, because the provider's cache holds only an equal beginning."""
MIN_LENGTH = 200
"""Characters from which a result is cleared."""

CLEARED = "[cleared to save space: "
_CLEARED_TEXT = CLEARED + "{title}. The whole result is in {path}; search it for {call_id}]"
_CUT_TEXT = "\n[… cut to save space: the whole result is in {path}; search it for {call_id} …]\n"


class _Part(Struct, frozen=True):
    """A result or a call in the conversation.

    Arguments:
        age: turns since then.
        newer_tokens: those of the parts from this one on.
        is_repeated: true if a later call of a pure tool has the same arguments.
    """

    block: ToolResultBlock | ToolCallBlock
    age: int
    newer_tokens: int
    is_repeated: bool = False

    @property
    def tokens(self) -> int:
        """About how many tokens the part has."""
        return estimate_block_tokens([self.block])


async def clear_old_results(
    run: RunContext, record: ConversationRecord, thresholds: Thresholds
) -> bool:
    """Clear old results and cut old arguments, if that frees enough.

    Results of calls that were repeated later come first. Return False if nothing was cleared.
    """
    if run.turn <= KEPT_TURNS and not run.brief.history:
        return False  # nothing is old enough; the record may be long
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
    """Return the event that clears parts. `calls`: by id."""
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
    edit = run.recorder.make_event(ResultsCleared, texts=texts, tokens=tokens)
    await _clear(run, record, edit)
    return True


async def _clear(run: RunContext, record: ConversationRecord, event: ResultsCleared) -> None:
    await record.write_file()
    await run.recorder.record(event)
    apply_clearing(run, event, (await record.read_context()).sent_messages)


def apply_clearing(run: RunContext, event: ResultsCleared, messages: Iterable[Message]) -> None:
    """Change the conversation of a run as an event says. `messages`: the sent ones after it."""
    conversation = run.conversation
    conversation.queued = Cleared().add(event).clear_blocks(conversation.queued)
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
) -> list[_Part]:
    """Return the results that may be cleared, and the calls with long arguments, newest first."""
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
    """Return whether an old result may be cleared."""
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
    """Return a text that calls of a pure tool with the same arguments share; "" for others."""
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
