"""The messages that the model of a run sees: its transcript with the edits of the engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from .._core.events import Compacted, ResultsCleared, StoredEvent
from .._core.messages import (
    AssistantBlock,
    AssistantMessage,
    Message,
    ToolCallBlock,
    ToolResultBlock,
    UserBlock,
    UserMessage,
)
from .transcript import TranscriptBuilder

B = TypeVar("B", bound=UserBlock | AssistantBlock)


class Cleared(Struct, frozen=True):
    """Cleared parts of a conversation: new texts of results and new arguments, by call id.

    Some may be in runs that the cleared one continues.
    """

    texts: Mapping[str, str] = {}
    arguments: Mapping[str, dict[str, Any]] = {}

    def add(self, later: Cleared | ResultsCleared) -> Cleared:
        """Return these parts and later ones."""
        return Cleared({**self.texts, **later.texts}, {**self.arguments, **later.arguments})

    def clear_messages(self, messages: Iterable[Message]) -> tuple[Message, ...]:
        """Return messages without the cleared parts."""
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
        """Return blocks without the cleared parts."""
        return [self.clear_block(block) for block in blocks]

    def clear_block(self, block: B) -> B:
        """Return a block without the cleared part, if it has one."""
        if isinstance(block, ToolResultBlock) and block.call_id in self.texts:
            return replace(block, text=self.texts[block.call_id], images=())
        if isinstance(block, ToolCallBlock) and block.id in self.arguments:
            return replace(block, arguments=self.arguments[block.id])
        return block


class ContextBuilder(TranscriptBuilder):
    """Messages of one run as its model sees them, rebuilt while its events arrive.

    Attributes:
        cleared: the cleared parts.
        is_compacted: true if the messages replace those of the runs that this one continues.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cleared = Cleared()
        self.is_compacted = False

    def apply(self, event: StoredEvent) -> None:
        """Add the next event of the run."""
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
