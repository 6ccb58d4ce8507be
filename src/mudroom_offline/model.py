"""A Model that answers by rules. It sees what a model sees and touches nothing itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from msgspec import Struct, field

from mudroom import AssistantMessage, Message, TextBlock, Usage
from mudroom.errors import ModelRefused
from mudroom.ports import RequestConfig, RetryNotice, StopReason, StreamChunk

from .next_step import FinalAnswer, find_next_step
from .plans import CannotAnswer, Translator
from .requests import is_chinese

# Characters per piece of a streamed answer; smaller pieces look like typing.
_CHUNK = 400
_PACED_CHUNK = 24
Sleep = Callable[[float], Awaitable[None]]


class OfflineModel(Struct, kw_only=True):
    """A model without key or network, for a few kinds of question in English and Chinese."""

    name = "offline:rules"
    pace: float = 0.0  # tokens per second at which it writes texts; 0 for as fast as possible
    sleep: Sleep = asyncio.sleep  # waits for a number of seconds

    def start_conversation(self, config: RequestConfig) -> RuleConversation:
        return RuleConversation(config, self.pace, self.sleep)

    async def close(self) -> None:
        pass  # there is no connection


class RuleConversation(Struct):
    config: RequestConfig
    pace: float
    sleep: Sleep
    messages: list[Message] = field(default_factory=list[Message])

    def append(self, message: Message) -> None:
        self.messages.append(message)

    async def request_answer(
        self, *, tools: bool = True, max_tokens: int | None = None
    ) -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
        """Stream the next answer, whole. Raises ModelRefused for a request no rule covers."""
        try:
            step = find_next_step(self.config, self.messages, allow_calls=tools)
        except CannotAnswer as error:
            say = Translator(is_chinese(str(error)))
            raise ModelRefused(str(error), remedy=say("connect")) from None
        if isinstance(step, FinalAnswer):
            reason = StopReason.END if step.is_whole else StopReason.REFUSAL
            content = (TextBlock(step.text),)
            length = len(step.text)
            size = _PACED_CHUNK if self.pace else _CHUNK
            for start in range(0, length, size):
                piece = step.text[start : start + size]
                if self.pace:
                    await self.sleep(len(piece) / 4 / self.pace)
                yield StreamChunk("text", piece)
        else:
            reason = StopReason.CALLS
            content = step
            length = sum(len(call.name) + len(str(call.arguments)) for call in step)
        # About four characters per token, because budgets and screens need some figure.
        asked = len(self.config.system) + sum(len(str(x.content)) for x in self.messages)
        usage = Usage(input_tokens=-(-asked // 4), output_tokens=-(-length // 4))
        yield AssistantMessage(
            content, stop_reason=reason, model="rules", wire="offline", usage=usage
        )
