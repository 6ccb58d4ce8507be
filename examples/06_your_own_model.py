"""A model of your own: any object with a name that can start a conversation.

This one only counts words.
"""

import asyncio
from collections.abc import AsyncIterator

from mudroom import AssistantMessage, Message, Session, TextBlock, Usage, UserMessage
from mudroom.ports import RequestConfig


class WordCounter:
    """The port Model."""

    name = "mine:word-counter"

    def start_conversation(self, config: RequestConfig) -> "Conversation":
        """Start a conversation. `config` has the system prompt, the tools and the sampling."""
        return Conversation()

    async def close(self) -> None:
        """Close connections; there are none."""


class Conversation:
    """The port ModelConversation: messages are appended, and answers are requested."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def append(self, message: Message) -> None:
        """Add a message."""
        self.messages.append(message)

    async def request_answer(
        self, *, tools: bool = True, max_tokens: int | None = None
    ) -> AsyncIterator[AssistantMessage]:
        """Yield the complete answer last.

        `tools` is False when the run must summarise. `max_tokens`: what budgets leave for it.
        """
        last = next(msg for msg in reversed(self.messages) if isinstance(msg, UserMessage))
        texts = [block.text for block in last.content if isinstance(block, TextBlock)]
        words = sum(len(text.split()) for text in texts)
        answer = TextBlock(f"You said {words} words.")
        yield AssistantMessage((answer,), usage=Usage(input_tokens=words, output_tokens=4))


async def main() -> None:
    async with Session(model=WordCounter()) as session:
        first = await session.run("Good morning, mudroom.")
        second = await session.run("And good night.")
    tokens = (first.usage + second.usage).total_tokens
    print(first.text, second.text, f"[{first.model}, {tokens} tokens]")


if __name__ == "__main__":
    asyncio.run(main())
