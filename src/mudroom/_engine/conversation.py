"""Conversation of one run with its model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from .._core.events import Compacted
from .._core.messages import (
    AssistantBlock,
    AssistantMessage,
    Message,
    StopReason,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserBlock,
    UserMessage,
)
from .._core.ports import ModelConversation, RequestConfig, RetryNotice, StreamChunk
from .._core.token_counts import CHARACTERS_PER_TOKEN, estimate_block_tokens, estimate_tokens
from .normalize import make_wire_id, normalize_conversation

REQUESTED_FOCUS = "compaction_focus"
"""Key in the detail of a tool result that requests a compaction when the turn ends."""


class Shortening(Struct):
    """State of the edits that keep a conversation within the context window.

    Arguments:
        next_check: tokens of a request from which the engine compares it with the window.
        overflow_count: refusals of the next request because it was too long.
        overflow_error: the last of these refusals, "" if the request was changed since.
        fitting: size of a request that fits, by the estimate that refusals have shown to be wrong;
            0 if there was none since the provider last counted.
        compactions: the compactions so far, without their messages.
        requested_focus: what the notes of a requested compaction must keep; None for no request.
        awaits_hook: true if the hooks have not ended since the last compaction.
    """

    next_check: int = 0
    overflow_count: int = 0
    overflow_error: str = ""
    fitting: int = 0
    compactions: list[Compacted] = field(default_factory=list[Compacted])
    requested_focus: str | None = None
    awaits_hook: bool = False

    def add_overflow(self, error: str, fitting: int) -> None:
        """Count a refusal of the next request as too long."""
        self.overflow_count += 1
        self.overflow_error = error
        self.fitting = fitting


class CutAnswers(Struct):
    """Answers that the maximum of their request cut off.

    Arguments:
        is_last: true if the last answer was one, and the next one may be longer.
        required: tokens that an answer must be allowed since then.
    """

    is_last: bool = False
    required: int = 0


class InARow(Struct):
    """Counts that begin again as soon as something else happens.

    Arguments:
        stopped: answers that stopped before they were complete.
        empty: answers with neither text nor a call.
        asked: requests that nothing but the engine or a hook wanted. A call that acts and a message
            begin this count again.
    """

    stopped: int = 0
    empty: int = 0
    asked: int = 0


class Conversation:
    """Messages of one run: sent ones, and blocks that wait for the next request.

    Arguments:
        start_model: starts an empty conversation with the model.
        config: the part of a request that is the same in all turns.

    Attributes:
        queued: blocks of the next user message.
        restored_notes: queued notes of an earlier process, which must not be added again.
        answer_text: text of the last answer.
        last_text: text of the last answer that has text, complete or not.
        received: characters of the next answer that have arrived, None if none of its parts has.
        sent_tokens: tokens of the last request and its answer, which the next request repeats;
            0 before the first.
        new_tokens: about how many tokens the user blocks have that came since, queued or sent.
        is_unanswered: true if a request was sent and its answer has not arrived.
        in_a_row: counts of answers and requests one after another.
        cut: the answers so far that were cut off.
        shortening: edits that keep the conversation within the context window.
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
        """Replace the sent messages. `tokens`: about how many tokens a request with them has."""
        self.shortening.overflow_error = ""
        self.sent_tokens = max(0, tokens)
        self.new_tokens = estimate_block_tokens(self.queued)
        self.is_unanswered = False
        self._model = self._start_model(self.config)
        for message in messages:
            self._model.append(message)

    def reopen_last_request(self, messages: Iterable[Message], blocks: Iterable[UserBlock]) -> None:
        """Return to the state before a request without an answer.

        Arguments:
            messages: those before the request.
            blocks: those that wait, with those of the request.
        """
        self.queued = list(blocks)
        self.replace_messages(messages, self.sent_tokens)

    def queue_results(self, results: Sequence[ToolResultBlock]) -> None:
        """Put tool results at the head of the next user message."""
        self.queued[:0] = results
        self.new_tokens += estimate_block_tokens(results)

    def queue_text(self, text: str) -> None:
        """Add a text block to the next user message."""
        self.queued.append(TextBlock(text))
        self.new_tokens += estimate_tokens(text)

    def queue_again(self, blocks: Iterable[UserBlock]) -> None:
        """Put blocks of a request without an answer at the head of the next user message."""
        self.queued[:0] = blocks

    @property
    def queued_note(self) -> str | None:
        """The last text that waits for the next request, None if none does."""
        texts = [block.text for block in self.queued if isinstance(block, TextBlock)]
        return texts[-1] if texts else None

    def take_queued(self) -> list[UserBlock]:
        """Remove and return the queued blocks."""
        blocks = self.queued
        self.queued = []
        self.restored_notes = []
        return blocks

    def append_user_blocks(self, blocks: Iterable[UserBlock]) -> None:
        """Append blocks as one user message; nothing if there are none."""
        self.is_unanswered = True
        if content := tuple(blocks):
            self._model.append(UserMessage(content))

    def request_answer(
        self, *, tools: bool, max_tokens: int | None = None
    ) -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
        """Send the queued blocks and request an answer, which `append_answer` must append."""
        self.append_user_blocks(self.take_queued())
        self.discard_streamed()
        if max_tokens is None:
            return self._model.request_answer(tools=tools)
        return self._model.request_answer(tools=tools, max_tokens=max_tokens)

    def add_streamed(self, kind: str, text: str) -> None:
        """Add a piece of the answer that is arriving."""
        self.received = (self.received or 0) + len(text)
        if kind == "text":
            self._streamed.append(text)

    def discard_streamed(self) -> None:
        """Forget the answer that was arriving."""
        self._streamed = []
        self.received = None

    def count_streamed_tokens(self) -> int:
        """Return about how many tokens of the answer have arrived."""
        return (self.received or 0) // CHARACTERS_PER_TOKEN

    @property
    def streamed_text(self) -> str:
        """Text of the answer that is arriving, as far as it has."""
        return "".join(self._streamed).strip()

    def keep_partial_answer(self, text: str) -> str:
        """Set `last_text` to the text of an answer that was cut off, and return that text."""
        self.last_text = text or self.last_text
        return text

    def append_answer(self, message: AssistantMessage, tokens: int) -> None:
        """Append an answer of the model. `tokens`: those of the request and the answer."""
        self._model.append(message)
        self._add_call_ids(message)
        self.sent_tokens = tokens
        self.new_tokens = 0
        self.is_unanswered = False
        self.shortening.overflow_count = 0
        if message.usage.total_tokens:
            self.shortening.fitting = 0  # from here on the estimate has the provider's counts
        self.answer_text = message.text.strip()
        row = self.in_a_row
        row.stopped = row.stopped + 1 if message.stop_reason is StopReason.OTHER else 0
        row.empty = 0 if self.answer_text or message.tool_calls else row.empty + 1
        self.last_text = self.answer_text or self.last_text

    def _add_call_ids(self, message: AssistantMessage) -> None:
        self._used_call_ids.update([make_wire_id(call.id) for call in message.tool_calls])

    def ensure_unique_call_ids(self, message: AssistantMessage, turn: int) -> AssistantMessage:
        """Return the message with call ids that are not empty and not used in this conversation.

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
