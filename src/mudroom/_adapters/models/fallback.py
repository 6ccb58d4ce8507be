"""Several models in place of one: if a model fails for good, the next one continues."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from ..._core.messages import AssistantMessage, Message
from ..._core.ports import Model, ModelConversation, RequestConfig, RetryNotice, StreamChunk
from ...errors import ModelError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

_AVOID_SECONDS = 60.0  # how long new conversations avoid a model that failed


class FallbackModel:
    """A Model made of several models, in order of preference.

    A conversation uses the first model until it fails for good: it refuses, cannot be reached, or
    the last retry fails. The next model then gets the same messages, and its wire leaves out
    anything it does not understand. If the last model fails, its error is raised.
    """

    def __init__(self, models: Sequence[Model], monotonic: Callable[[], float]) -> None:
        self.models = tuple(models)
        self.name = ",".join(model.name for model in models)
        self._monotonic = monotonic
        self._failed_at: dict[int, float] = {}

    def start_conversation(self, config: RequestConfig) -> FallbackConversation:
        return FallbackConversation(self, config)

    @property
    def context_window(self) -> int:
        return getattr(self.models[0], "context_window", 0)

    @property
    def provider_tools(self) -> tuple[str, ...]:
        return getattr(self.models[0], "provider_tools", ())

    async def close(self) -> None:
        """Do nothing: the registry closes the models."""

    def choose_first(self) -> int:
        """Choose the index of the first model that has not failed lately, 0 if all have."""
        now = self._monotonic()
        for index in range(len(self.models)):
            if now - self._failed_at.get(index, -_AVOID_SECONDS) >= _AVOID_SECONDS:
                return index
        return 0

    def mark_failed(self, index: int) -> None:
        self._failed_at[index] = self._monotonic()


class FallbackConversation:
    """A conversation that moves on to the next model, and never back."""

    def __init__(self, model: FallbackModel, config: RequestConfig) -> None:
        self._model = model
        self._config = config
        self._messages: list[Message] = []
        self._index = model.choose_first()
        self._current = self._start_current()

    def append(self, message: Message) -> None:
        self._messages.append(message)
        self._current.append(message)

    async def request_answer(
        self, *, tools: bool = True, max_tokens: int | None = None
    ) -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
        while True:
            name = self._model.models[self._index].name
            try:
                answer = self._current.request_answer(tools=tools, max_tokens=max_tokens)
                async with aclosing(cast("AsyncGenerator[object, None]", answer)) as items:
                    async for item in items:
                        if isinstance(item, AssistantMessage):
                            item = replace(item, answered_by=name)
                        yield cast("StreamChunk | RetryNotice | AssistantMessage", item)
                return
            except ModelError as error:
                self._model.mark_failed(self._index)
                if self._index + 1 == len(self._model.models):
                    raise
                self._index += 1
                self._current = self._start_current()
                following = self._model.models[self._index].name
                notice = RetryNotice(1, 0.0, 0, f"{following} continues: {error.message}")
            yield notice

    def _start_current(self) -> ModelConversation:
        conversation = self._model.models[self._index].start_conversation(self._config)
        for message in self._messages:
            conversation.append(message)
        return conversation
