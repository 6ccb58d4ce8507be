"""The messages of one run, rebuilt from its events, and as its model sees them after edits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from .._core.events import (
    AnyEvent,
    Compacted,
    ConversationRewound,
    Delta,
    MessageDelivered,
    NoteInjected,
    ResultsCleared,
    RunFinished,
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
    AssistantBlock,
    AssistantMessage,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserBlock,
    UserMessage,
)
from .._core.runs import Brief, Reason, Report, has_summary
from .._core.tool_names import choose_result_name
from .._core.tools import make_result_block
from .._platform.patterns import compile_later


def build_transcript(events: Iterable[StoredEvent], run_id: str) -> tuple[Message, ...]:
    """Build the messages of one run as its model sees them; empty if the run never started.

    `TranscriptBuilder` explains their order.
    """
    builder = TranscriptBuilder()
    for event in events:
        if event.run == run_id:
            builder.apply(event)
    return builder.build()


class TranscriptBuilder:
    """Messages of one run, rebuilt while its events arrive.

    The transcript is complete: it includes results cleared by the engine and messages before a
    compaction. `ContextBuilder` has the messages that the model sees.

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
            self._waits_for_answer = self._flush()
        elif type(event) is TurnFinished:
            self._messages.append(event.message)
            self._waits_for_answer = False
            self._open_calls = event.message.tool_calls
        elif _repeats_request(event):
            self._reopen_last_request()

    def build(self) -> tuple[Message, ...]:
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

    def _flush(self) -> bool:
        """Append the next user message. Return False if there is none."""
        waiting = self._make_waiting_message()
        if waiting is None:
            return False
        self._messages.append(waiting)
        self._open_calls = ()
        self._results = {}
        self._pending_content = []
        return True


def _name_like_call(result: ToolResultBlock, call: ToolCallBlock) -> ToolResultBlock:
    name = choose_result_name(call.name, result.name)
    return result if name == result.name else replace(result, name=name)


def _repeats_request(event: StoredEvent) -> bool:
    """Return whether the run repeats a request that got no answer."""
    if type(event) is TurnFailed:
        return event.overflow > 0
    return type(event) is RunResumed or (type(event) is RunWaiting and event.is_interrupted)


B = TypeVar("B", bound=UserBlock | AssistantBlock)


class Cleared(Struct, frozen=True):
    """Cleared parts of a conversation: new texts of results and new arguments, by call id.

    Some may be in runs that this one continues.
    """

    texts: Mapping[str, str] = {}
    arguments: Mapping[str, dict[str, Any]] = {}

    def add(self, later: Cleared | ResultsCleared) -> Cleared:
        return Cleared({**self.texts, **later.texts}, {**self.arguments, **later.arguments})

    def clear_messages(self, messages: Iterable[Message]) -> tuple[Message, ...]:
        return tuple(map(self._clear_message, messages))

    def _clear_message(self, message: Message) -> Message:
        if isinstance(message, AssistantMessage):
            if self.arguments and any(call.id in self.arguments for call in message.tool_calls):
                return replace(message, content=tuple(self.clear_blocks(message.content)))
        elif any(
            isinstance(block, ToolResultBlock) and block.call_id in self.texts
            for block in message.content
        ):
            return UserMessage(tuple(self.clear_blocks(message.content)))
        return message

    def clear_blocks(self, blocks: Iterable[B]) -> list[B]:
        return [self.clear_block(block) for block in blocks]

    def clear_block(self, block: B) -> B:
        if isinstance(block, ToolResultBlock) and block.call_id in self.texts:
            return replace(block, text=self.texts[block.call_id], images=())
        if isinstance(block, ToolCallBlock) and block.id in self.arguments:
            return replace(block, arguments=self.arguments[block.id])
        return block


class ContextBuilder(TranscriptBuilder):
    """The messages of one run as its model sees them, rebuilt while its events arrive.

    If compacted, they replace those of the runs that this one continues.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cleared = Cleared()
        self.is_compacted = False

    def apply(self, event: StoredEvent) -> None:
        if type(event) is ResultsCleared:
            cleared = Cleared().add(event)
            self.cleared = self.cleared.add(event)
            self._messages = list(cleared.clear_messages(self._messages))
            self._pending_content = cleared.clear_blocks(self._pending_content)
            for call_id in event.texts.keys() & self._results.keys():
                self._results[call_id] = cleared.clear_block(self._results[call_id])
        elif type(event) is Compacted:
            self._messages = list(event.messages)
            self.is_compacted = True
        else:
            super().apply(event)


def is_left_out(brief: Brief, report: Report | None, messages: Sequence[Message]) -> bool:
    """Return whether a conversation's last run, which may be running, adds nothing to it.

    Such a run is a compaction that wrote no summary, or a prompt that no model has read, such as
    one that a hook refused.
    """
    if not messages or (brief.is_compaction and not has_summary(report)):
        return True
    return report is not None and report.reason is Reason.ERROR and not report.turns


class ConversationContext:
    """A conversation's messages as its model sees them, including a running prompt."""

    def __init__(self) -> None:
        self.latest_run = ""
        self._briefs: dict[str, Brief] = {}
        self._builders: dict[str, ContextBuilder] = {}

    def apply(self, event: AnyEvent) -> None:
        # `type(event) is ...` takes a fifth of the time of `isinstance`; sessions may be long.
        if type(event) is RunStarted and not event.brief.depth:
            self.latest_run = event.run
            self._briefs[event.run] = event.brief
            self._builders[event.run] = ContextBuilder()
        elif type(event) is ConversationRewound:
            self.latest_run = event.latest_run
        if (builder := self._builders.get(event.run)) and not isinstance(event, Delta):
            builder.apply(event)
            if type(event) is RunFinished and self.latest_run == event.run:
                brief = self._briefs[event.run]
                if is_left_out(brief, event.report, builder.build()):
                    self.latest_run = brief.continues

    def rewind(self, run_id: str) -> None:
        self.latest_run = self._briefs[run_id].continues

    def list_messages(self) -> tuple[Message, ...]:
        """List the messages, back to the last compaction."""
        known: list[tuple[Message, ...]] = []
        cleared = Cleared()
        run_id = self.latest_run
        while run_id in self._builders:
            builder = self._builders[run_id]
            known.append(builder.build())
            cleared = builder.cleared.add(cleared)
            if builder.is_compacted or self._briefs[run_id].is_compaction:
                break
            run_id = self._briefs[run_id].continues
        return cleared.clear_messages(chain.from_iterable(reversed(known)))


# Begins a line that is a rule.
ADDED_RULE = "Rule: "
# Begins a line that ends a rule.
REMOVED_RULE = "Rule removed: "

_LINE = compile_later(
    r"(?im)^[ \t]*(?:(?:[-*•]|\d+[.)])[ \t]*)?"
    r"(?:(rule(?: removed)?: )"
    r"|(?=(?:always|never|must|do not|don't)\b|不要|必须|禁止|始终|总是|绝不|不得))(.+)$"
)
_MAX_RULE_LENGTH = 500


def find_rules(texts: Iterable[str]) -> dict[str, str]:
    """Find the rules in the user's messages, oldest first: the text of each, and its line.

    A line that begins with `REMOVED_RULE` takes the place of the rule it ends.
    """
    lines: dict[str, str] = {}
    for text in texts:
        for match in _LINE.finditer(text):
            rule = match[2].strip()[:_MAX_RULE_LENGTH]
            is_removed = (match[1] or "").casefold() == REMOVED_RULE.casefold()
            lines[rule] = REMOVED_RULE + rule if is_removed else match[0].strip()
    return lines


def is_marked(line: str) -> bool:
    """Return whether the user wrote a line as a rule, or to end one."""
    marks = (ADDED_RULE.casefold(), REMOVED_RULE.casefold())
    return line.casefold().startswith(marks)


def list_rules(texts: Iterable[str]) -> list[str]:
    """List the texts of the rules in force after the user's messages."""
    lines = find_rules(texts)
    return [rule for rule, line in lines.items() if not line.startswith(REMOVED_RULE)]
