"""A model that gives the recorded answers of recorded conversations again, as long as it is asked the recorded questions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from difflib import unified_diff

from .._core.messages import (
    AssistantMessage,
    Message,
    RecordedConversation,
    TextBlock,
    ToolResultBlock,
    UserMessage,
)
from .._core.ports import RequestConfig, RetryNotice, StreamChunk
from ..errors import ModelError, ModelRefused

_SECONDS = re.compile(r"\b\d+(?:\.\d+)? s\b")
_SPILL = re.compile(r"/[^\s\"]*/(\d[\d.]*-\d+\.\d+-\w+\.txt)")
_CONTEXT = 2_000


class ReplayModel:
    """Implements the port Model, from a record. Whoever asks something else than was asked then gets ModelRefused with the difference.

    Arguments:
        conversations: the recorded ones; each is given once, so equal siblings get one each.
        name: the model string. cut_off: called with a run's id where the run was cancelled when it was recorded; it must do that again.
    """

    def __init__(
        self,
        conversations: Sequence[RecordedConversation],
        name: str = "replay:record",
        *,
        cancel_run: Callable[[str], object] | None = None,
    ) -> None:
        self.name, self.cut_off = name, cancel_run
        self._free = list(conversations)

    def start_conversation(self, setup: RequestConfig) -> ReplayConversation:
        """Begin a conversation; which one it is shows when it is asked."""
        return ReplayConversation(self)

    async def close(self) -> None:
        """Nothing to let go of."""

    def claim_conversation(self, asked: Sequence[Message]) -> RecordedConversation:
        """The recorded conversation that begins like this. Raises ModelRefused when there is none left."""
        for found in self._free:
            if len(found.messages) >= len(asked) and all(map(is_same, found.messages, asked)):
                self._free.remove(found)
                return found
        recorded = self._free[0].messages[: len(asked)] if self._free else ()
        raise build_difference_error("a conversation that was not recorded", recorded, asked)


class ReplayConversation:
    """One conversation with it."""

    def __init__(self, model: ReplayModel) -> None:
        self._model = model
        self._asked: list[Message] = []
        self._found: RecordedConversation | None = None

    def append(self, message: Message) -> None:
        """Append a message."""
        self._asked.append(message)

    async def request_answer(
        self, *, tools: bool = True
    ) -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
        """The recorded answer to this."""
        asked = self._asked
        found = self._found = self._found or self._model.claim_conversation(asked)
        recorded = found.messages[: len(asked)]
        if len(recorded) < len(asked) or not all(map(is_same, recorded, asked)):
            raise build_difference_error(
                f"run {found.run}, request {sum(isinstance(m, UserMessage) for m in asked)}",
                recorded,
                asked,
            )
        if len(found.messages) == len(asked):
            await self._broken(found)
        answer = found.messages[len(asked)]
        if not isinstance(answer, AssistantMessage):
            raise build_difference_error(f"run {found.run}", recorded, asked)
        if answer.text:
            yield StreamChunk("text", answer.text)
        yield answer

    async def _broken(self, found: RecordedConversation) -> None:
        if found.broken == "TIMEOUT":
            raise TimeoutError(found.failure)
        if found.broken == "CANCELLED" and self._model.cut_off:
            self._model.cut_off(found.run)
            await asyncio.sleep(0)
        raise ModelError(found.failure or f"the record of run {found.run} ends here")


def is_same(recorded: Message, asked: Message) -> bool:
    """Whether two messages are the same but for measured times and for what only providers use."""
    return recorded == asked or _plain(recorded) == _plain(asked)


def remove_varying_text(text: str) -> str:
    """The text without what differs from one session to the next: measured seconds, the folder of long outputs."""
    return _SPILL.sub(r"\1", _SECONDS.sub("_ s", text))


def build_difference_error(
    where: str, recorded: Sequence[Message], asked: Sequence[Message]
) -> ModelRefused:
    """The error that shows the first difference."""
    pairs = zip([*recorded, *[None] * (len(asked) - len(recorded))], asked, strict=False)
    was, now = next(((a, b) for a, b in pairs if a is None or not is_same(a, b)), (None, None))
    lines = unified_diff(
        _plain(was).splitlines(),
        _plain(now).splitlines(),
        "recorded",
        "asked now",
        lineterm="",
        n=1,
    )
    return ModelRefused(f"the replay met {where}:\n" + "\n".join(lines)[:_CONTEXT])


def _plain(message: Message | None) -> str:
    if message is None:
        return ""
    rows: list[str] = []
    for block in message.content:
        if isinstance(block, TextBlock):
            rows.append(remove_varying_text(block.text))
        elif isinstance(block, ToolResultBlock):
            rows.append(
                f"{block.name} {'failed' if block.error else 'gave'}: {remove_varying_text(block.text)}"
            )
        else:
            rows.append(repr(block))
    return "\n".join(rows)
