"""The messages of one run, rebuilt from its events."""

from __future__ import annotations

from collections.abc import Iterable

from .._core.events import (
    NoteInjected,
    RunResumed,
    RunStarted,
    StoredEvent,
    ToolCallFinished,
    TurnFinished,
    TurnStarted,
)
from .._core.messages import Message, TextBlock, ToolCallBlock, ToolResultBlock, UserMessage


def build_transcript(events: Iterable[StoredEvent], run_id: str) -> tuple[Message, ...]:
    """The messages of one run as its model sees them, rebuilt from the record; empty if the run never began.

    First the history recorded with the brief, then the prompt as a user message; what a run `continues` is in the transcript of
    the run it names. After every answer follows at most one user message:
    the results of its calls in the order of the calls, then what was told before the next model call, a text block each.
    Words told before the first model call join the prompt. While a call of the last answer has no result, the list
    ends with that answer. Of two results of one call the first counts. Failed and repeated model calls leave no trace.
    """
    book = _TranscriptBuilder()
    for event in events:
        if event.run == run_id:
            book.apply(event)
    book.flush()
    return tuple(book.messages)


def to_result_block(event: ToolCallFinished) -> ToolResultBlock:
    """What the model reads of a finished call."""
    return ToolResultBlock(event.call_id, event.name, event.result.text, event.result.error)


class _TranscriptBuilder:
    """The messages so far, and what will join the next user message."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.started = False
        self.open_calls: tuple[ToolCallBlock, ...] = ()
        self.results: dict[str, ToolResultBlock] = {}
        self.pending_content: list[TextBlock | ToolResultBlock] = []
        self.is_unanswered = False

    def apply(self, event: StoredEvent) -> None:
        if isinstance(event, RunStarted) and not self.started:
            self.started = True
            self.messages.extend(event.brief.history)
            self.pending_content.append(TextBlock(event.brief.prompt))
        elif isinstance(event, NoteInjected):
            self.pending_content.append(TextBlock(event.text))
        elif isinstance(event, ToolCallFinished):
            self.results.setdefault(event.call_id, to_result_block(event))
        elif isinstance(event, TurnStarted):
            self.flush()
            self.is_unanswered = True
        elif isinstance(event, RunResumed):
            if (
                self.is_unanswered
                and self.messages
                and isinstance(last := self.messages[-1], UserMessage)
            ):  # it is asked again
                self.pending_content[:0] = last.content
                self.messages.pop()
            self.is_unanswered = False
        elif isinstance(event, TurnFinished):
            self.messages.append(event.message)
            self.is_unanswered = False
            self.open_calls = event.message.tool_calls

    def flush(self) -> None:
        if any(call.id not in self.results for call in self.open_calls):
            return
        if content := (*(self.results[call.id] for call in self.open_calls), *self.pending_content):
            self.messages.append(UserMessage(content))
        self.open_calls, self.results, self.pending_content = (), {}, []
