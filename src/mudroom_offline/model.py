"""The port Model, answered by rules: sees what a model sees, touches nothing, says only what the tools returned."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from mudroom._core.messages import AssistantMessage, Message, StopReason, TextBlock, Usage
from mudroom._core.ports import RequestConfig, RetryNotice, StreamChunk
from mudroom.errors import ModelRefused

from .conversation import Reply, reply, size
from .plan import Beyond
from .replies import REMEDY

_PIECE = 400
_FLOWING = 24
"""Characters of a piece at a pace, so that it is seen to flow."""


class OfflineModel:
    """A model that needs no key and no network.

    It knows a handful of questions about a folder of source files, in English and Chinese. Asked for anything else, it says
    what it can do by raising ModelRefused.

    Arguments:
        pace: tokens a second at which it writes, as a real model does; 0 is as fast as it can. sleep: waits so many seconds.
    """

    name = "offline:rules"

    def __init__(
        self, *, pace: float = 0.0, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._pace, self._sleep = pace, sleep

    def start_conversation(self, config: RequestConfig) -> RulesChat:
        """Begin a conversation."""
        return RulesChat(config, _FLOWING if self._pace else _PIECE, self._wrote)

    async def _wrote(self, characters: int) -> None:
        """Take the time that so many characters take."""
        if self._pace:
            await self._sleep(characters / 4 / self._pace)

    async def close(self) -> None:
        """Nothing to let go of."""


class RulesChat:
    """One conversation with the rules. `step`: characters of a piece. `wrote` is awaited with their number before each."""

    def __init__(
        self, setup: RequestConfig, step: int, wrote: Callable[[int], Awaitable[None]]
    ) -> None:
        self._setup, self._step, self._wrote = setup, step, wrote
        self._messages: list[Message] = []
        self._characters = len(setup.system)

    def append(self, message: Message) -> None:
        """Append a message."""
        self._messages.append(message)
        self._characters += size(message)

    async def request_answer(
        self, *, tools: bool = True
    ) -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
        """The next answer, its words in pieces first. Raises ModelRefused for a question the rules do not know."""
        try:
            answer = reply(self._setup, self._messages, calls=tools)
        except Beyond as beyond:
            raise ModelRefused(str(beyond), remedy=REMEDY) from None
        for start in range(0, len(answer.text), self._step):
            piece = answer.text[start : start + self._step]
            await self._wrote(len(piece))
            yield StreamChunk("text", piece)
        whole = self._assistant(answer)
        if answer.calls:
            await self._wrote(size(whole))
        yield whole

    def _assistant(self, answer: Reply) -> AssistantMessage:
        content = answer.calls or (TextBlock(answer.text),)
        stop = StopReason.CALLS if answer.calls else StopReason.END
        draft = AssistantMessage(content, stop_reason=stop, model="rules", wire="offline")
        usage = Usage(input_tokens=-(-self._characters // 4), output_tokens=-(-size(draft) // 4))
        return AssistantMessage(
            content, stop_reason=stop, usage=usage, model="rules", wire="offline"
        )
