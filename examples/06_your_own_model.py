"""A model of your own: anything with a name that can begin a conversation. Here one that only counts words."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from mudroom import AssistantMessage, Message, Session, TextBlock, Usage, UserMessage


class WordCounter:
    """The port Model: `chat` begins a conversation and costs nothing, `close` lets go of connections."""

    name = "mine:word-counter"

    def start_conversation(self, setup: Any) -> "Conversation":
        """`setup` has the system prompt, the tools and the sampling."""
        return Conversation()

    async def close(self) -> None:
        """Nothing to let go of."""


class Conversation:
    """The port Chat: messages are added as they come, and asked for an answer. The last thing `ask` yields is the whole answer."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def append(self, message: Message) -> None:
        """Append a message."""
        self.messages.append(message)

    async def request_answer(self, *, tools: bool = True) -> AsyncIterator[AssistantMessage]:
        """Answer. `tools` is False when the run must sum up."""
        last = next(
            message for message in reversed(self.messages) if isinstance(message, UserMessage)
        )
        words = sum(len(block.text.split()) for block in last.content)
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
