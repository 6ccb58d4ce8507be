"""A model that says what a test or an example tells it to: everything around it is real."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from .._core.messages import (
    AssistantMessage,
    Message,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
    UserMessage,
)
from .._core.ports import RequestConfig, RetryNotice, StreamChunk

_PIECE = 40


class Request(Struct, frozen=True):
    """What the model is asked.

    Arguments:
        system: the system prompt. tools: names of the tools it may call now. messages: the conversation so far.
        n: number of this request to the model, over all its conversations, from 1.
    """

    system: str
    tools: tuple[str, ...]
    messages: tuple[Message, ...]
    number: int

    @property
    def prompt(self) -> str:
        """The first words of the user."""
        return next(
            (
                b.text
                for m in self.messages
                if isinstance(m, UserMessage)
                for b in m.content
                if isinstance(b, TextBlock)
            ),
            "",
        )

    @property
    def turn(self) -> int:
        """How many answers the conversation holds."""
        return sum(isinstance(message, AssistantMessage) for message in self.messages)

    @property
    def results(self) -> tuple[ToolResultBlock, ...]:
        """The results in the last message; none if it holds words only."""
        last = self.messages[-1].content if self.messages else ()
        return tuple(block for block in last if isinstance(block, ToolResultBlock))


Block = str | TextBlock | ThinkingBlock | ToolCallBlock
Answer = Block | Sequence[Block] | AssistantMessage | BaseException
Script = Callable[[Request], "Answer | Awaitable[Answer]"] | Sequence[Answer]


def call(name: str, /, **arguments: Any) -> ToolCallBlock:
    """A call with an id of its own making; the model makes the id."""
    return ToolCallBlock("", name, arguments)


class ScriptedModel:
    """Implements the port Model.

    Arguments:
        answer: the answers one after the other, or what makes one from a Request (may be async). An answer is words,
            a block, several of them, a whole Assistant, or an exception to raise. A list that is used up raises AssertionError.
        name: the model string.

    `requests` lists what was asked. Tokens are counted as characters / 4.

    Example:
        ScriptedModel([[call("read", path="a.py")], "It is a module."])
    """

    def __init__(self, script: Script, name: str = "scripted:model") -> None:
        self.name = name
        self.requests: list[Request] = []
        self._answer = script

    def start_conversation(self, setup: RequestConfig) -> ScriptedConversation:
        """Begin a conversation."""
        return ScriptedConversation(self, setup)

    async def close(self) -> None:
        """Nothing to let go of."""

    async def next_answer(self, request: Request) -> Answer:
        """The script's answer to a request."""
        self.requests.append(request)
        if callable(self._answer):
            said = self._answer(request)
            return await said if isinstance(said, Awaitable) else said
        if request.number > len(self._answer):
            raise AssertionError(
                f"the script has {len(self._answer)} answers, and this is request {request.number}: {request.prompt!r}"
            )
        return self._answer[request.number - 1]


class ScriptedConversation:
    """One conversation with a scripted model."""

    def __init__(self, model: ScriptedModel, setup: RequestConfig) -> None:
        self._model, self._setup = model, setup
        self._messages: list[Message] = []

    def append(self, message: Message) -> None:
        """Append a message."""
        self._messages.append(message)

    async def request_answer(
        self, *, tools: bool = True
    ) -> AsyncIterator[StreamChunk | RetryNotice | AssistantMessage]:
        """The next answer, in pieces and whole."""
        model, offered = (
            self._model,
            tuple(tool.name for tool in self._setup.tools) if tools else (),
        )
        request = Request(
            self._setup.system, offered, tuple(self._messages), len(model.requests) + 1
        )
        answer = await model.next_answer(request)
        if isinstance(answer, BaseException):
            raise answer
        message = answer if isinstance(answer, AssistantMessage) else self._whole(request, answer)
        for block in message.content:
            kind, text = (
                ("call", "")
                if isinstance(block, ToolCallBlock)
                else (type(block).__name__.lower(), block.text)
            )
            for at in range(0, len(text), _PIECE):
                yield StreamChunk(kind, text[at : at + _PIECE])
        yield message

    def _whole(self, request: Request, answer: Block | Sequence[Block]) -> AssistantMessage:
        several = (
            answer if isinstance(answer, Sequence) and not isinstance(answer, str) else (answer,)
        )
        blocks = tuple(
            _block(block, f"call_{request.number}_{at}") for at, block in enumerate(several, 1)
        )
        stop = (
            StopReason.CALLS
            if any(isinstance(block, ToolCallBlock) for block in blocks)
            else StopReason.END
        )
        read = len(request.system) + sum(
            _size(block) for message in request.messages for block in message.content
        )
        usage = Usage(read // 4, max(1, sum(map(_size, blocks)) // 4))
        return AssistantMessage(
            blocks, stop, usage, self._model.name, "scripted", f"answer_{request.number}"
        )


def _block(block: Block, call_id: str) -> TextBlock | ThinkingBlock | ToolCallBlock:
    if isinstance(block, str):
        return TextBlock(block)
    return (
        msgspec.structs.replace(block, id=call_id)
        if isinstance(block, ToolCallBlock) and not block.id
        else block
    )


def _size(block: TextBlock | ThinkingBlock | ToolCallBlock | ToolResultBlock) -> int:
    return (
        len(str(block.arguments)) + len(block.name)
        if isinstance(block, ToolCallBlock)
        else len(block.text)
    )
