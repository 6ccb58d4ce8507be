"""A model of your own: any object with a name that can start a conversation.

This one only counts words.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from mudroom import AssistantMessage, Message, Session, TextBlock, Usage, UserMessage


class WordCounter:
    """Implementation of the port Model."""

    name = "mine:word-counter"

    def start_conversation(self, config: Any) -> "Conversation":
        """Start a conversation. `config` has the system prompt, the tools and the sampling."""
        return Conversation()

    async def close(self) -> None:
        """Close connections; there are none here."""


class Conversation:
    """Implementation of the port ModelConversation: it receives messages and yields answers."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def append(self, message: Message) -> None:
        """Append a message."""
        self.messages.append(message)

    async def request_answer(self, *, tools: bool = True) -> AsyncIterator[AssistantMessage]:
        """Yield the answer as the last item.

        `tools` is False when the run must finish with a summary.
        """
        last = next(
            message for message in reversed(self.messages) if isinstance(message, UserMessage)
        )
        texts = [block.text for block in last.content if isinstance(block, TextBlock)]
        words = sum(len(text.split()) for text in texts)
        yield AssistantMessage(
            (TextBlock(f"You said {words} words."),),
            usage=Usage(input_tokens=words, output_tokens=4),
        )


async def main() -> None:
    async with Session(model=WordCounter()) as session:
        first = await session.run("Good morning, mudroom.")
        second = await session.run("And good night.")
    print(
        first.text,
        second.text,
        f"[{first.model}, {(first.usage + second.usage).total_tokens} tokens]",
    )


if __name__ == "__main__":
    asyncio.run(main())
