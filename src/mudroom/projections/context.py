"""The messages that the model of a run sees: its transcript with the edits of the engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from .._core.events import Compacted, ResultsCleared, StoredEvent
from .._core.messages import AssistantMessage, Message, ToolResultBlock, UserBlock, UserMessage
from .transcript import TranscriptBuilder

B = TypeVar("B", bound=UserBlock)


class ContextBuilder(TranscriptBuilder):
    """Messages of one run as its model sees them, rebuilt while its events arrive.

    Attributes:
        cleared: new texts of cleared results, by call id; some may be in runs that this one
            continues.
        is_compacted: true if the messages replace those of the runs that this one continues.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cleared: dict[str, str] = {}
        self.is_compacted = False

    def apply(self, event: StoredEvent) -> None:
        """Add the next event of the run."""
        if isinstance(event, ResultsCleared):
            self.cleared |= event.texts
            self._messages = list(clear_results(self._messages, event.texts))
            self._pending_content = clear_blocks(self._pending_content, event.texts)
            for call_id in event.texts.keys() & self._results.keys():
                self._results[call_id] = clear_block(self._results[call_id], event.texts)
        elif isinstance(event, Compacted):
            self._messages = list(event.messages)
            self.is_compacted = True
        else:
            super().apply(event)


def clear_results(messages: Iterable[Message], texts: Mapping[str, str]) -> tuple[Message, ...]:
    """Return messages with short texts in place of results. `texts`: by call id."""
    return tuple(_clear_message(message, texts) for message in messages)


def _clear_message(message: Message, texts: Mapping[str, str]) -> Message:
    if isinstance(message, AssistantMessage) or not any(
        isinstance(block, ToolResultBlock) and block.call_id in texts for block in message.content
    ):
        return message
    return UserMessage(tuple(clear_blocks(message.content, texts)))


def clear_blocks(blocks: Iterable[B], texts: Mapping[str, str]) -> list[B]:
    """Return blocks with short texts in place of results. `texts`: by call id."""
    return [clear_block(block, texts) for block in blocks]


def clear_block(block: B, texts: Mapping[str, str]) -> B:
    """Return a block, with its new text if it is a result that has one."""
    if isinstance(block, ToolResultBlock) and block.call_id in texts:
        return replace(block, text=texts[block.call_id], images=())
    return block
