"""A model for tests and examples that answers from a script."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec
from msgspec import Struct

from ..._core.json_values import clean_json
from ..._core.messages import (
    AssistantBlock,
    AssistantMessage,
    ImageBlock,
    Message,
    StopReason,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
    UserBlock,
    UserMessage,
    resolve_stop_reason,
)
from ..._core.ports import RequestConfig, RetryNotice, StreamChunk

# Characters; short enough that tests see an answer in several chunks.
_CHUNK_LENGTH = 40


class Request(Struct, frozen=True):
    """A request to a scripted model.

    Arguments:
        system: the system prompt.
        tools: names of the tools the model may call in this turn.
        messages: the conversation so far.
        number: number of this request among all conversations of the model, from 1.
        max_tokens: longest answer the budgets allow, in tokens; None for no limit.
    """

    system: str
    tools: tuple[str, ...]
    messages: tuple[Message, ...]
    number: int
    max_tokens: int | None = None

    @property
    def prompt(self) -> str:
        """The user's first text, "" if there is none."""
        for message in self.messages:
            if not isinstance(message, UserMessage):
                continue
            for block in message.content:
                if isinstance(block, TextBlock):
                    return block.text
        return ""

    @property
    def turn(self) -> int:
        """Number of answers so far in the conversation."""
        return sum(isinstance(message, AssistantMessage) for message in self.messages)

    @property
    def results(self) -> tuple[ToolResultBlock, ...]:
        """The tool results in the last message."""
        last = self.messages[-1].content if self.messages else ()
        return tuple(block for block in last if isinstance(block, ToolResultBlock))


Block = str | AssistantBlock
Answer = Block | Sequence[Block] | AssistantMessage | BaseException
"""A scripted answer: a text, blocks, a whole message, or an exception to raise."""
Script = Callable[[Request], "Answer | Awaitable[Answer]"] | Sequence[Answer]


def call(name: str, /, **arguments: object) -> ToolCallBlock:
    """Make a tool call for a script; the model gives it an id."""
    return ToolCallBlock("", name, arguments)


class ScriptedModel:
    """A Model that answers from a script.

    `requests` lists the requests so far. Usage counts 4 characters as one token.

    Arguments:
        script: a list of answers, or a function (may be async) from a Request to an answer. An
            answer is a text, a block, several of them, a whole AssistantMessage, or an exception
            to raise. A request after the end of the list raises AssertionError.
        name: the model string.

    Example:
        ScriptedModel([[call("read", path="a.py")], "It is a module."])
    """

    def __init__(self, script: Script, name: str = "scripted:model") -> None:
        self.name = name
        self.requests: list[Request] = []
        self._script = script

    def start_conversation(self, config: RequestConfig) -> ScriptedConversation:
        """Start a conversation."""
        return ScriptedConversation(self, config)

    async def close(self) -> None:
        """Do nothing; there are no connections."""

    async def choose_answer(self, request: Request) -> Answer:
        """Return the script's answer to a request."""
        self.requests.append(request)
        if callable(self._script):
            answer = self._script(request)
            return await answer if isinstance(answer, Awaitable) else answer
        if request.number > len(self._script):
            raise AssertionError(
                f"the script has {len(self._script)} answers, "
                f"and this is request {request.number}: {request.prompt!r}"
            )
        return self._script[request.number - 1]


class ScriptedConversation:
    def __init__(self, model: ScriptedModel, config: RequestConfig) -> None:
        self._model = model
        self._config = config
        self._messages: list[Message] = []

    def append(self, message: Message) -> None:
        self._messages.append(message)

    async def request_answer(
        self, *, tools: bool = True, max_tokens: int | None = None
    ) -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
        model = self._model
        tool_names = tuple(tool.name for tool in self._config.tools) if tools else ()
        number = len(model.requests) + 1
        messages = tuple(self._messages)
        request = Request(self._config.system, tool_names, messages, number, max_tokens)
        answer = await model.choose_answer(request)
        if isinstance(answer, BaseException):
            raise answer
        message = answer
        if not isinstance(message, AssistantMessage):
            message = self._build_message(request, message)
        for block in message.content:
            if isinstance(block, ToolCallBlock):
                continue
            kind = "text" if isinstance(block, TextBlock) else "thinking"
            for start in range(0, len(block.text), _CHUNK_LENGTH):
                yield StreamChunk(kind, block.text[start : start + _CHUNK_LENGTH])
        yield message

    def _build_message(self, request: Request, answer: Block | Sequence[Block]) -> AssistantMessage:
        if isinstance(answer, str) or not isinstance(answer, Sequence):
            answer = (answer,)
        blocks = tuple(
            _to_block(block, f"call_{request.number}_{position}")
            for position, block in enumerate(answer, 1)
        )
        input_length = len(request.system) + sum(
            _count_characters(block) for message in request.messages for block in message.content
        )
        output_length = sum(map(_count_characters, blocks))
        return AssistantMessage(
            blocks,
            stop_reason=resolve_stop_reason(StopReason.END, blocks),
            usage=Usage(input_length // 4, max(1, output_length // 4)),
            model=self._model.name,
            wire="scripted",
            id=f"answer_{request.number}",
        )


def _to_block(block: Block, call_id: str) -> AssistantBlock:
    if isinstance(block, str):
        return TextBlock(block)
    if isinstance(block, ToolCallBlock) and not block.id:
        return msgspec.structs.replace(block, id=call_id)
    return block


def _count_characters(block: UserBlock | AssistantBlock) -> int:
    if isinstance(block, ImageBlock):
        return len(block.placeholder)
    if isinstance(block, ToolCallBlock):
        return len(str(clean_json(block.arguments))) + len(block.name)
    return len(block.text)
