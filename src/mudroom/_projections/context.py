"""The messages that a model sees: a run's transcript, with the engine's edits."""

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
    ResultsCleared,
    RunFinished,
    RunStarted,
    StoredEvent,
)
from .._core.messages import (
    AssistantBlock,
    AssistantMessage,
    Message,
    ToolCallBlock,
    ToolResultBlock,
    UserBlock,
    UserMessage,
)
from .._core.runs import Brief, Reason, Report, has_summary
from .transcript import TranscriptBuilder

B = TypeVar("B", bound=UserBlock | AssistantBlock)


class Cleared(Struct, frozen=True):
    """Cleared parts of a conversation: new texts of results and new arguments, by call id.

    Some may be in runs that this one continues.
    """

    texts: Mapping[str, str] = {}
    arguments: Mapping[str, dict[str, Any]] = {}

    def add(self, later: Cleared | ResultsCleared) -> Cleared:
        """Combine these parts with later ones."""
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

    Attributes:
        cleared: the cleared parts.
        is_compacted: true if the messages replace those of the runs that this one continues.
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
    """Tell if the last run of a conversation adds nothing to it.

    Such a run is a compaction that wrote no summary, or a prompt that no model has read, such as
    one that a hook refused.

    Arguments:
        report: None if the run has not ended.
    """
    if not messages or (brief.is_compaction and not has_summary(report)):
        return True
    return report is not None and report.reason is Reason.ERROR and not report.turns


class ConversationContext:
    """The messages of a conversation as its model sees them, updated with each event of all runs.

    Those of a prompt that is still at work are among them.

    Attributes:
        latest_run: id of the conversation's last root run; "" before the first.
    """

    def __init__(self) -> None:
        self.latest_run = ""
        self._briefs: dict[str, Brief] = {}
        self._builders: dict[str, ContextBuilder] = {}

    def apply(self, event: AnyEvent) -> None:
        # `type(event) is ...` takes a fifth of the time of `isinstance`; long sessions are read.
        if type(event) is RunStarted and not event.brief.depth:
            self.latest_run = event.run
            self._briefs[event.run] = event.brief
            self._builders[event.run] = ContextBuilder()
        elif type(event) is ConversationRewound:
            self.latest_run = event.latest_run
        if (builder := self._builders.get(event.run)) and not isinstance(event, Delta):
            builder.apply(event)
            if type(event) is RunFinished:
                self._end_run(self._briefs[event.run], event.report, builder)

    def _end_run(self, brief: Brief, report: Report, builder: ContextBuilder) -> None:
        if self.latest_run == brief.run_id and is_left_out(brief, report, builder.build()):
            self.latest_run = brief.continues

    def rewind(self, run_id: str) -> None:
        """Go back to the state before a root run."""
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
