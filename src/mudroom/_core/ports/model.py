"""Model port: a conversation with a language model over some wire, and the pace of requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from msgspec import Struct

from ..messages import AssistantMessage, Message
from ..tools import Tool


class RequestConfig(Struct, frozen=True, kw_only=True):
    """The part of a request that stays the same in all turns of a run.

    Arguments:
        system: the system prompt.
        tools: tools in order. Equal configs give equal bytes, which providers can cache.
        temperature, top_p: None means the provider's default.
        max_tokens: maximum tokens of one answer, if the model allows that many; always sent.
        provider_tools: names of tools the provider runs, such as "web_search". A model without such
            a tool ignores its name.
        effort: how thoroughly the model thinks, "low" to "max"; None means the provider's default.
        cache_key: names the requests that start alike, those of one agent in a session. Providers
            that ask for it lead them to the same cache.
    """

    system: str
    tools: tuple[Tool, ...] = ()
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    provider_tools: tuple[str, ...] = ()
    effort: str | None = None
    cache_key: str = ""


class StreamChunk(Struct, frozen=True, tag=True):
    """A piece of a streamed answer, or a line about a web search by the provider.

    Arguments:
        kind: "text", "thinking", "call", "search_start", "search_end", or "" (no text yet).
    """

    kind: str
    text: str


class RetryNotice(Struct, frozen=True, tag=True):
    """A failed attempt, retried after `delay` seconds; this answer's earlier chunks are void."""

    attempt: int
    delay: float
    status: int
    error: str


class ModelConversation(Protocol):
    """A conversation with a model. Each message is encoded once, when it is appended."""

    def append(self, message: Message) -> None:
        """Append a message. Answers must be appended too: `request_answer` does not do it."""
        ...

    def request_answer(
        self, *, tools: bool = True, max_tokens: int | None = None
    ) -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
        """Request the next answer: yield chunks and retries, then exactly one AssistantMessage.

        An answer that is cut off is requested again from the start. The engine gives up after
        150 s without a chunk (450 s before the first chunk and after the delay of a retry).

        Arguments:
            tools: False forbids tool calls in this answer, without changing the bytes a provider
                has cached.
            max_tokens: maximum tokens of this answer; None uses the config's.

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
        """Start a conversation, without sending a request."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


class RateLimited(Exception):
    """The limiter stays closed for `seconds`, longer than a request may wait."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"closed for {seconds:.0f} s")
        self.seconds = seconds


class RequestSlot(Struct, eq=False):
    """Permission to send one request.

    Arguments:
        sent_at: when it was granted, on the monotonic clock.
        unanswered_when_sent: number of requests in flight at that time, including this one.
        number: id of the slot between processes, 0 within one process.
    """

    sent_at: float
    unanswered_when_sent: int
    is_answered: bool = False
    number: int = 0


class RateLimiter(Protocol):
    """A queue that all requests to one provider pass through."""

    def acquire_now(self) -> RequestSlot | None: ...

    async def acquire(self) -> RequestSlot:
        """Wait until a request may be sent, and return its slot.

        Pass each slot to `release` exactly once. Raises RateLimited.
        """
        ...

    def record_accepted(self, slot: RequestSlot, room: int | None = None) -> None:
        """Record that a request was accepted. `room`: how many more the provider says it takes."""
        ...

    def record_refused(self, slot: RequestSlot, retry_after: float) -> None:
        """Record that the provider refused a request and wants none for `retry_after` seconds."""
        ...

    def release(self, slot: RequestSlot) -> None:
        """Mark a request as ended, with or without a response."""
        ...
