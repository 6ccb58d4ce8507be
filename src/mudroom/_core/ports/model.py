"""Model port: a conversation with a language model over some wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from msgspec import Struct

from ..messages import AssistantMessage, Message
from ..tools import Tool


class RequestConfig(Struct, frozen=True, kw_only=True):
    """The part of a request that is the same in all turns of a run.

    Arguments:
        system: the system prompt.
        tools: tools in order; runs with equal configs send equal bytes.
        temperature, top_p: None means the provider's default.
        max_tokens: maximum tokens of one answer, if the model allows as many; always sent.
        server_tools: names of tools that the provider runs, such as "web_search". A model without
            such a tool ignores its name.
    """

    system: str
    tools: tuple[Tool, ...] = ()
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    server_tools: tuple[str, ...] = ()


class StreamChunk(Struct, frozen=True, tag=True):
    """A part of a streamed answer, or one line about a web search of the provider.

    Arguments:
        kind: "text", "thinking", "call", "search_start", "search_end", or "" (no text yet).
    """

    kind: str
    text: str


class RetryNotice(Struct, frozen=True, tag=True):
    """A failed attempt, repeated after `delay` seconds; earlier chunks of this answer are void."""

    attempt: int
    delay: float
    status: int
    error: str


class ModelConversation(Protocol):
    """One conversation with a model. Messages are encoded once, when they are appended."""

    def append(self, message: Message) -> None:
        """Append a message. `request_answer` does not append its answer."""
        ...

    def request_answer(
        self, *, tools: bool = True, max_tokens: int | None = None
    ) -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
        """Request the next answer: yield chunks and retries, then exactly one AssistantMessage.

        An answer that is cut off is requested again as a whole. The engine gives up after 150 s
        without a chunk (450 s before the first chunk and after the delay of a retry).

        Arguments:
            tools: False forbids tool calls in this answer; the bytes before it stay the same.
            max_tokens: maximum tokens of this answer; None: that of the config.

        Raises ModelError.
        """
        ...


class Model(Protocol):
    """A model behind some wire.

    Example:
        class Silent:
            name = "mine:silent"

            def start_conversation(self, config): ...  # returns append() and request_answer()

            async def close(self): ...

        model: Model = Silent()
        Session(model=model)
    """

    @property
    def name(self) -> str:
        """The model string, "provider:model"."""
        ...

    def start_conversation(self, config: RequestConfig, /) -> ModelConversation:
        """Start a conversation; sends no request."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...
