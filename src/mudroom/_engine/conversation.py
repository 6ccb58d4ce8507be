"""A run's conversation with its model, and the turn it has reached.

It is always one that every provider accepts (S7): one result per call, unique call ids, no empty
block. The model adapters clean the text in blocks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from .._core.events import Compacted, FileWriteIntended
from .._core.messages import (
    CHARACTERS_PER_TOKEN,
    AssistantBlock,
    AssistantMessage,
    ImageBlock,
    Message,
    ProviderBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserBlock,
    UserMessage,
    estimate_block_tokens,
    estimate_tokens,
    user_message,
)
from .._core.ports import ModelConversation, RequestConfig, RetryNotice, StreamChunk
from .._core.tool_names import choose_result_name
from .._core.tools import ToolResult
from .._platform.patterns import compile_later

REQUESTED_FOCUS = "compaction_focus"
"""Key in a tool result's detail that requests a compaction at the end of the turn."""


class Shortening(Struct):
    """State of the edits that keep a conversation within the context window."""

    next_check: int = 0  # request size, in tokens, at which to compare with the window again
    overflow_count: int = 0  # how often the next request has been refused as too long
    overflow_error: str = ""  # the last of these refusals, "" once the request has changed
    fitting: int = (
        0  # size that fits, by the estimate that refusals corrected; 0 once the provider counted
    )
    compactions: list[Compacted] = field(default_factory=list[Compacted])  # without their messages
    requested_focus: str | None = None  # what the notes of a requested compaction must keep
    awaits_hook: bool = False  # the hooks are still running since the last compaction

    def add_overflow(self, error: str, fitting: int) -> None:
        self.overflow_count += 1
        self.overflow_error = error
        self.fitting = fitting


class CutAnswers(Struct):
    """Answers cut off at the maximum that their request allowed."""

    may_be_longer: bool = False  # the last answer was cut off, but the next one may be longer
    required: int = 0  # tokens that every answer since then must be allowed


class InARow(Struct):
    """Counts of consecutive events, reset as soon as something else happens.

    `stopped` answers were incomplete, `empty` ones had neither text nor a call; `asked` counts
    requests made only for the engine or a hook, until a call acts or a message arrives.
    """

    stopped: int = 0
    empty: int = 0
    asked: int = 0


class Conversation:
    """A run's messages: those sent, and the blocks queued for the next request.

    `config` is the part of a request that stays the same in all turns.

    Attributes:
        restored_notes: notes queued by an earlier process, which must not be added again.
        last_text: text of the last answer that had any, complete or not.
        received: characters of the next answer received so far, None before its first part.
        sent_tokens: tokens of the last request and its answer, which the next request repeats;
            0 before the first.
        new_tokens: estimated tokens of the user blocks added since, queued or sent.
    """

    def __init__(
        self,
        start_model: Callable[[RequestConfig], ModelConversation],
        config: RequestConfig,
        history: Iterable[Message],
        prompt: Iterable[UserBlock],
    ) -> None:
        self.config = config
        self._start_model = start_model
        self._model = start_model(config)
        self._used_call_ids: set[str] = set()
        self.queued: list[UserBlock] = list(prompt)
        self.new_tokens = estimate_block_tokens(self.queued)
        self.restored_notes: list[str] = []
        self.answer_text = ""
        self.last_text = ""
        self.is_unanswered = False
        self.sent_tokens = 0
        self.in_a_row = InARow()
        self.cut = CutAnswers()
        self.shortening = Shortening()
        self.received: int | None = None
        self._streamed: list[str] = []
        for message in normalize_conversation(history):
            self._model.append(message)
            if isinstance(message, AssistantMessage):
                self._add_call_ids(message)

    def replace_messages(self, messages: Iterable[Message], tokens: int) -> None:
        """Replace the sent messages. `tokens`: estimated size of a request with them."""
        self.shortening.overflow_error = ""
        self.sent_tokens = max(0, tokens)
        self.new_tokens = estimate_block_tokens(self.queued)
        self.is_unanswered = False
        self._model = self._start_model(self.config)
        for message in messages:
            self._model.append(message)

    def reopen_last_request(self, messages: Iterable[Message], blocks: Iterable[UserBlock]) -> None:
        """Go back to the messages before an unanswered request, and queue its blocks again."""
        self.queued = list(blocks)
        self.replace_messages(messages, self.sent_tokens)

    def queue_results(self, results: Sequence[ToolResultBlock]) -> None:
        """Put tool results at the head of the next user message."""
        self.queued[:0] = results
        self.new_tokens += estimate_block_tokens(results)

    def queue_text(self, text: str) -> None:
        self.queued.append(TextBlock(text))
        self.new_tokens += estimate_tokens(text)

    def queue_again(self, blocks: Iterable[UserBlock]) -> None:
        """Put the blocks of an unanswered request at the head of the next user message."""
        self.queued[:0] = blocks

    @property
    def queued_note(self) -> str | None:
        texts = [block.text for block in self.queued if isinstance(block, TextBlock)]
        return texts[-1] if texts else None

    def take_queued(self) -> list[UserBlock]:
        blocks = self.queued
        self.queued = []
        self.restored_notes = []
        return blocks

    def append_user_blocks(self, blocks: Iterable[UserBlock]) -> None:
        """Append blocks, if there are any, as one user message."""
        self.is_unanswered = True
        if content := tuple(blocks):
            self._model.append(UserMessage(content))

    def request_answer(
        self, *, tools: bool, max_tokens: int | None = None
    ) -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
        """Send the queued blocks and request an answer; pass it to `append_answer`."""
        self.append_user_blocks(self.take_queued())
        self.discard_streamed()
        if max_tokens is None:
            return self._model.request_answer(tools=tools)
        return self._model.request_answer(tools=tools, max_tokens=max_tokens)

    def add_streamed(self, kind: str, text: str) -> None:
        self.received = (self.received or 0) + len(text)
        if kind == "text":
            self._streamed.append(text)

    def discard_streamed(self) -> None:
        self._streamed = []
        self.received = None

    def count_streamed_tokens(self) -> int:
        return (self.received or 0) // CHARACTERS_PER_TOKEN

    @property
    def streamed_text(self) -> str:
        return "".join(self._streamed).strip()

    def keep_partial_answer(self, text: str) -> str:
        """Keep the text of a cut-off answer as `last_text`, and return it."""
        self.last_text = text or self.last_text
        return text

    def append_answer(self, message: AssistantMessage, tokens: int) -> None:
        """Append the model's answer. `tokens`: request and answer together."""
        self._model.append(message)
        self._add_call_ids(message)
        self.sent_tokens = tokens
        self.new_tokens = 0
        self.is_unanswered = False
        self.shortening.overflow_count = 0
        if message.usage.total_tokens:
            self.shortening.fitting = 0  # from now on the estimate builds on the provider's count
        self.answer_text = message.text.strip()
        row = self.in_a_row
        row.stopped = row.stopped + 1 if message.stop_reason is StopReason.OTHER else 0
        row.empty = 0 if self.answer_text or message.tool_calls else row.empty + 1
        self.last_text = self.answer_text or self.last_text

    def _add_call_ids(self, message: AssistantMessage) -> None:
        self._used_call_ids.update([make_wire_id(call.id) for call in message.tool_calls])

    def ensure_unique_call_ids(self, message: AssistantMessage, turn: int) -> AssistantMessage:
        """Return the message with call ids that are new in this conversation.

        Some providers send empty or repeated ids.
        """
        ids = [make_wire_id(call.id) for call in message.tool_calls]
        if all(ids) and len(set(ids)) == len(ids) and self._used_call_ids.isdisjoint(ids):
            return message
        used = set(self._used_call_ids)
        content: list[AssistantBlock] = []
        for index, block in enumerate(message.content):
            if isinstance(block, ToolCallBlock):
                block = _ensure_unused_id(block, used, turn, index)
                used.add(make_wire_id(block.id))
            content.append(block)
        return replace(message, content=tuple(content))


def _ensure_unused_id(call: ToolCallBlock, used: set[str], turn: int, index: int) -> ToolCallBlock:
    if not call.id:
        call = replace(call, id=f"call_{turn}_{index}")
    while make_wire_id(call.id) in used:
        call = replace(call, id=f"{call.id}_{turn}")
    return call


_ILLEGAL_CHARACTERS = compile_later("[^A-Za-z0-9_-]")
NO_RESULT = "No result of this call was recorded."
EMPTY_MESSAGE = user_message("(Nothing was recorded here.)")


def normalize_conversation(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Repair whatever a provider would refuse; a valid conversation is returned unchanged.

    User and assistant messages alternate, beginning with the user's. Consecutive user messages
    become one, with the results first, in the order of their calls. A result without a call is
    dropped; a call without a result gets NO_RESULT.
    """
    normalized: list[Message] = []
    user_blocks: list[UserBlock] = []
    open_calls: list[tuple[str, ToolCallBlock]] = []
    ids: set[str] = set()
    for message in messages:
        if isinstance(message, UserMessage):
            user_blocks += message.content
            continue
        content = [block for block in message.content if _has_content(block)]
        if not content:
            continue
        merged = _merge_user_blocks(user_blocks, open_calls)
        if merged:
            normalized.append(merged)
        elif not normalized or isinstance(normalized[-1], AssistantMessage):
            normalized.append(EMPTY_MESSAGE)
        blocks, open_calls = _ensure_unique_ids(content, ids)
        user_blocks = []
        normalized.append(replace(message, content=blocks))
    if merged := _merge_user_blocks(user_blocks, open_calls):
        normalized.append(merged)
    return tuple(normalized)


def _has_content(block: AssistantBlock) -> bool:
    if isinstance(block, ToolCallBlock | ProviderBlock) or block.text.strip("\0 \t\r\n"):
        return True
    return isinstance(block, ThinkingBlock) and bool(block.redacted or block.signature)


def _merge_user_blocks(
    blocks: Sequence[UserBlock], open_calls: Sequence[tuple[str, ToolCallBlock]]
) -> UserMessage | None:
    """Return the next user message; None if it would be empty.

    Each of `open_calls` needs a result. It is paired with its old id, which its result still has.
    """
    results_by_id: dict[str, list[ToolResultBlock]] = {}
    for block in reversed(blocks):
        if isinstance(block, ToolResultBlock):
            results_by_id.setdefault(block.call_id, []).append(block)
    content: list[UserBlock] = []
    for old_id, call in open_calls:
        results = results_by_id.get(old_id)
        if results:
            content.append(replace(results.pop(), call_id=call.id))
        else:
            content.append(ToolResultBlock(call.id, call.name, NO_RESULT, error=True))
    for block in blocks:
        if isinstance(block, ImageBlock) or (isinstance(block, TextBlock) and _has_content(block)):
            content.append(block)
    return UserMessage(tuple(content)) if content else None


def _ensure_unique_ids(
    content: Sequence[AssistantBlock], ids: set[str]
) -> tuple[tuple[AssistantBlock, ...], list[tuple[str, ToolCallBlock]]]:
    """Return the blocks with unused call ids, and pairs of old id and renamed call."""
    blocks: list[AssistantBlock] = []
    calls: list[tuple[str, ToolCallBlock]] = []
    for block in content:
        if isinstance(block, ToolCallBlock):
            old_id = block.id
            block = replace(block, id=_reserve_id(old_id or "call", ids))
            calls.append((old_id, block))
        blocks.append(block)
    return tuple(blocks), calls


def _reserve_id(call_id: str, ids: set[str]) -> str:
    """Return an id that stays unique in the characters wires accept; add it to `ids`."""
    while (wire_id := make_wire_id(call_id)) in ids:
        call_id += "_"
    ids.add(wire_id)
    return call_id


def make_wire_id(call_id: str) -> str:
    return _ILLEGAL_CHARACTERS.sub("_", call_id)


INTERRUPTED = (
    "Interrupted before it gave a result; whether it had an effect is unknown. "
    "Check before you repeat it."
)


PARTIAL_OUTPUT = "\nPartial output until then:\n"


def is_cut_off_result(text: str) -> bool:
    """Return whether a result reports a cut-off call, with or without partial output."""
    return text == INTERRUPTED or text.startswith(INTERRUPTED + PARTIAL_OUTPUT)


class CallOutcome(Struct, frozen=True, gc=False):
    """The outcome of a tool call. `refused`: the call never acted."""

    call_id: str
    name: str
    result: ToolResult
    refused: bool = False


class RunTurn:
    """One turn of a run: its number, its answer's tool calls, and what has become of them.

    Outcomes stay here when the run is cut off between two calls. How a run is stopped is not part
    of its turn: see `RunControl`.

    Attributes:
        number: from 1; 0 before the first turn.
        calls: the calls in order, by id; none before the answer or after `RunContext.close_turn`.
        restored_names: the model's own names for restored calls, by id.
        started: ids of calls started by an earlier process, each with its recorded file write, or
            None.
        working: tool and start of the running calls, by id; seconds of a monotonic clock.
        outputs: what calls have printed so far, by id.
    """

    def __init__(self, number: int = 0, calls: Sequence[ToolCallBlock] = ()) -> None:
        self.number = number
        self.calls = {call.id: call for call in calls}
        self.restored_names: dict[str, str] = {}
        self.started: dict[str, FileWriteIntended | None] = {}
        self.working: dict[str, tuple[str, float]] = {}
        self.outputs: dict[str, str] = {}
        self._outcomes: dict[str, CallOutcome] = {}

    def restore_start(self, call: ToolCallBlock) -> None:
        """Mark a call as started, with its recorded arguments, which a hook may have changed."""
        self.started.setdefault(call.id)
        if call.id in self.calls:
            self.restored_names[call.id] = self.calls[call.id].name
            self.calls[call.id] = call

    def choose_result_name(self, outcome: CallOutcome) -> str:
        call_id = outcome.call_id
        called = self.restored_names.get(call_id) or self.calls[call_id].name
        return choose_result_name(called, outcome.name)

    def add(self, outcome: CallOutcome) -> None:
        self._outcomes[outcome.call_id] = outcome
        self.working.pop(outcome.call_id, None)

    def list_open_calls(self) -> list[tuple[int, ToolCallBlock]]:
        """List the calls without an outcome, each with its position, from 1."""
        return [
            (position, call)
            for position, call in enumerate(self.calls.values(), 1)
            if call.id not in self._outcomes
        ]

    def list_outcomes(self) -> list[CallOutcome]:
        return [self._outcomes[call_id] for call_id in self.calls if call_id in self._outcomes]


UNKNOWN_AFTER_CRASH = "a call was interrupted"  # the reason why its changes are unknown
