"""The messages of one run, rebuilt from its events."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from .._core.events import (
    MessageDelivered,
    NoteInjected,
    RunResumed,
    RunStarted,
    RunWaiting,
    StoredEvent,
    ToolCallFinished,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from .._core.messages import (
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserBlock,
    UserMessage,
)
from .._core.tool_names import choose_result_name
from .._core.tools import make_result_block


def build_transcript(events: Iterable[StoredEvent], run_id: str) -> tuple[Message, ...]:
    """Return the messages of one run as its model sees them; empty if the run never started.

    `TranscriptBuilder` says in which order they come.
    """
    builder = TranscriptBuilder()
    for event in events:
        if event.run == run_id:
            builder.apply(event)
    return builder.build()


class TranscriptBuilder:
    """Messages of one run, rebuilt while its events arrive.

    The transcript is whole: results that the engine cleared and messages before a compaction are in
    it. `ContextBuilder` has the messages that the model sees.

    First comes the history recorded with the brief, then the prompt as a user message. Messages of
    the run that this one `continues` are in the transcript of that run. Each answer is followed by
    at most one user message: the results of its tool calls in the order of the calls, then the
    notes injected before the next model call, one text block each. Notes injected before the first
    model call join the prompt. While a tool call of the last answer has no result, that answer
    stays the last message. If a call has two results, the first counts. Failed and repeated model
    calls leave no trace.
    """

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._has_started = False
        self._open_calls: tuple[ToolCallBlock, ...] = ()
        self._results: dict[str, ToolResultBlock] = {}
        self._pending_content: list[UserBlock] = []
        self._waits_for_answer = False

    def apply(self, event: StoredEvent) -> None:
        """Add the run's next event."""
        if type(event) is RunStarted and not self._has_started:
            self._has_started = True
            self._messages.extend(event.brief.history)
            self._pending_content.extend(event.brief.blocks)
        elif type(event) is NoteInjected or type(event) is MessageDelivered:
            self._pending_content.append(TextBlock(event.text))
        elif type(event) is ToolCallFinished:
            block = make_result_block(event.call_id, event.name, event.result)
            self._results.setdefault(event.call_id, block)
        elif type(event) is TurnStarted:
            self._flush()
            self._waits_for_answer = True
        elif type(event) is TurnFinished:
            self._messages.append(event.message)
            self._waits_for_answer = False
            self._open_calls = event.message.tool_calls
        elif _repeats_request(event):
            self._reopen_last_request()

    def build(self) -> tuple[Message, ...]:
        """Build the messages so far; more events may follow."""
        waiting = self._make_waiting_message()
        return (*self._messages, waiting) if waiting else tuple(self._messages)

    @property
    def sent_messages(self) -> tuple[Message, ...]:
        """The messages so far, without the next user message."""
        return tuple(self._messages)

    @property
    def waiting_blocks(self) -> tuple[UserBlock, ...]:
        """The blocks of the next user message."""
        waiting = self._make_waiting_message()
        return waiting.content if waiting else ()

    def _reopen_last_request(self) -> None:
        """Take back a request that got no answer: the run sends it again, with later notes."""
        waits = self._waits_for_answer
        self._waits_for_answer = False
        if not waits or not self._messages:
            return
        last = self._messages[-1]
        if isinstance(last, UserMessage):
            self._pending_content[:0] = last.content
            self._messages.pop()

    def _make_waiting_message(self) -> UserMessage | None:
        """Make the next user message; None while a call has no result, or if it would be empty."""
        if any(call.id not in self._results for call in self._open_calls):
            return None
        results = [_name_like_call(self._results[call.id], call) for call in self._open_calls]
        content = (*results, *self._pending_content)
        return UserMessage(content) if content else None

    def _flush(self) -> None:
        waiting = self._make_waiting_message()
        if waiting is None:
            return
        self._messages.append(waiting)
        self._open_calls = ()
        self._results = {}
        self._pending_content = []


def _name_like_call(result: ToolResultBlock, call: ToolCallBlock) -> ToolResultBlock:
    name = choose_result_name(call.name, result.name)
    return result if name == result.name else replace(result, name=name)


def _repeats_request(event: StoredEvent) -> bool:
    """Tell if the run repeats a request that got no answer."""
    if type(event) is TurnFailed:
        return event.overflow > 0
    return type(event) is RunResumed or (type(event) is RunWaiting and event.is_interrupted)
