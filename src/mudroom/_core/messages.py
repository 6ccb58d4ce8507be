"""What a model reads and writes, in no provider's dialect: blocks, messages, usage."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct


class TextBlock(Struct, frozen=True, tag="text", omit_defaults=True):
    """Words. `signature` is a provider's opaque seal on them, sent back unchanged to the same wire.

    Example:
        User((Text("Which testing framework?"),))
    """

    text: str
    signature: str = ""


class ThinkingBlock(Struct, frozen=True, tag="thinking", omit_defaults=True):
    """A model's reasoning. `redacted` holds the provider's ciphertext where the words were withheld.

    Example:
        Assistant((Thinking("Look first."), Text("pytest."))).text == "pytest."
    """

    text: str
    signature: str = ""
    redacted: str = ""


class ToolCallBlock(Struct, frozen=True, tag="call", omit_defaults=True):
    """One tool call. `malformed` keeps the arguments' raw text when they were not a JSON object; it is then never run.

    Example:
        Assistant((Call("c1", "read", {"file_path": "paper.md"}),)).calls[0].name == "read"
    """

    id: str
    name: str
    arguments: dict[str, Any]
    malformed: str = ""
    signature: str = ""


class ToolResultBlock(Struct, frozen=True, tag="result", omit_defaults=True):
    """What one tool call gave back, as the model reads it.

    Example:
        User((Result("c1", "read", "# On Mud"),))
    """

    call_id: str
    name: str
    text: str
    error: bool = False


class StopReason(StrEnum):
    """Why a model stopped writing."""

    END = "end"
    CALLS = "calls"
    LENGTH = "length"
    REFUSAL = "refusal"
    OTHER = "other"


class Usage(Struct, frozen=True, omit_defaults=True):
    """Tokens of one or many model calls. `input_tokens` counts the whole prompt; the cache figures are parts of it.

    Example:
        (Usage(100, 20) + Usage(50, 5)).total_tokens == 175
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )

    @property
    def total_tokens(self) -> int:
        """Tokens read and written."""
        return self.input_tokens + self.output_tokens


class UserMessage(Struct, frozen=True, tag="user"):
    """What the model is told: a prompt, a note of the engine's, the results of its calls.

    Example:
        User((Result("c1", "read", "# On Mud"), Text("Be brief.")))
    """

    content: tuple[TextBlock | ToolResultBlock, ...]


class AssistantMessage(Struct, frozen=True, tag="assistant", omit_defaults=True):
    """One finished answer of a model. Thinking and signatures go back only to the `wire` that wrote them.

    Example:
        Assistant((Text("pytest."),), usage=Usage(100, 3)).text == "pytest."
    """

    content: tuple[TextBlock | ThinkingBlock | ToolCallBlock, ...]
    stop_reason: StopReason = StopReason.END
    usage: Usage = Usage()
    model: str = ""
    wire: str = ""
    id: str = ""

    @property
    def text(self) -> str:
        """The words, without thinking and calls."""
        return "\n".join(b.text for b in self.content if isinstance(b, TextBlock) and b.text)

    @property
    def tool_calls(self) -> tuple[ToolCallBlock, ...]:
        """The tool calls, in the order the model made them."""
        return tuple([b for b in self.content if isinstance(b, ToolCallBlock)])


Message = UserMessage | AssistantMessage
"""One of a conversation.

Example:
    said: tuple[Message, ...] = (User((Text("Hello."),)), Assistant((Text("Good evening."),)))
"""


class RecordedConversation(Struct, frozen=True):
    """A recorded run: its messages in order, and how it broke off after the last one, if it did.

    Arguments:
        failure: what its last model call failed with. broken: "TIMEOUT" or "CANCELLED" when it was cut off.
    """

    run: str
    messages: tuple[Message, ...]
    failure: str = ""
    broken: str = ""


def user_message(text: str) -> UserMessage:
    """A user message of one text block."""
    return UserMessage((TextBlock(text),))
