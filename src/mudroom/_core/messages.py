"""Messages between the engine and a model: their blocks, token usage, and token counts.

A long session holds very many of these values. None can be part of a cycle, so `gc=False` spares
the garbage collector from visiting them.

Tokens are counted without a provider. An estimate is a number near the truth, compared with a
context window. A range has a lower and an upper bound; meters reserve the upper bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .json_values import clean_json, clean_text, find_json_fault, is_clean_json
from .type_checks import NamedFields


class TextBlock(Struct, frozen=True, gc=False, tag="text", omit_defaults=True):
    """Plain text.

    Arguments:
        signature: opaque data of the provider, sent back unchanged to the same wire.
        is_continuation: the text continues the preceding text block on the same line.

    Example:
        UserMessage((TextBlock("Which testing framework?"),))
    """

    text: str
    signature: str = ""
    is_continuation: bool = False


class ImageBlock(
    Struct, metaclass=NamedFields, frozen=True, gc=False, tag="image", omit_defaults=True
):
    """An image.

    Arguments:
        media_type: "image/png", "image/jpeg", "image/gif" or "image/webp".
        data: the bytes of the image file; base64 in JSON.
        width, height: in pixels, 0 if unknown.

    Example:
        UserMessage((TextBlock("What is this?"), ImageBlock("image/png", b"...", 640, 480)))
    """

    media_type: str
    data: bytes
    width: int = 0
    height: int = 0

    @property
    def placeholder(self) -> str:
        """Text shown in place of the image, such as `[image: image/png, 640x480, 12 KB]`."""
        facts = [self.media_type]
        if self.width and self.height:
            facts.append(f"{self.width}x{self.height}")
        # Round up: no image has 0 KB.
        facts.append(f"{-(-len(self.data) // 1000)} KB")
        return f"[image: {', '.join(facts)}]"


def append_placeholders(text: str, images: Iterable[ImageBlock]) -> str:
    placeholders = [image.placeholder for image in images]
    return "\n".join([text, *placeholders] if text else placeholders)


class ThinkingBlock(Struct, frozen=True, gc=False, tag="thinking", omit_defaults=True):
    """Reasoning of a model.

    Arguments:
        signature: opaque data of the provider, sent back unchanged to the same wire.
        redacted: the provider's ciphertext where it withholds the text.

    Example:
        AssistantMessage((ThinkingBlock("Look first."), TextBlock("pytest."))).text == "pytest."
    """

    text: str
    signature: str = ""
    redacted: str = ""


class ToolCallBlock(Struct, frozen=True, gc=False, tag="tool_call", omit_defaults=True):
    """A tool call requested by a model.

    Arguments:
        malformed: raw text of the arguments if it was not a JSON object. Such a call never runs.
        signature: opaque data of the provider, sent back unchanged to the same wire.

    Example:
        message = AssistantMessage((ToolCallBlock("c1", "read", {"file_path": "paper.md"}),))
        message.tool_calls[0].name == "read"
    """

    id: str
    name: str
    arguments: dict[str, Any]
    malformed: str = ""
    signature: str = ""


class ProviderBlock(Struct, frozen=True, gc=False, tag="provider", omit_defaults=True):
    """A step the provider took itself, such as a web search.

    Arguments:
        kind: the provider's name for the block.
        data: the provider's block as JSON, sent back unchanged to the same wire.
        text: what users read: the query, or the sources.

    Example:
        ProviderBlock("web_search_call", '{"status":"completed"}', "searched the web: mud")
    """

    kind: str
    data: str
    text: str = ""


AssistantBlock = TextBlock | ThinkingBlock | ToolCallBlock | ProviderBlock
"""One block of an answer."""


class ToolResultBlock(Struct, frozen=True, gc=False, tag="tool_result", omit_defaults=True):
    """The result of one tool call, as the model reads it.

    Arguments:
        images: shown to the model after the text.

    Example:
        UserMessage((ToolResultBlock("c1", "read", "# On Mud"),))
    """

    call_id: str
    name: str
    text: str
    error: bool = False
    images: tuple[ImageBlock, ...] = ()


UserBlock = TextBlock | ImageBlock | ToolResultBlock
"""One block of a user message."""


class StopReason(StrEnum):
    """The reason why a model stopped writing."""

    END = "end"
    CALLS = "calls"
    LENGTH = "length"
    REFUSAL = "refusal"
    OTHER = "other"


class Usage(Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens of one or more model calls.

    Arguments:
        input_tokens: the whole prompt; includes `cache_read_tokens` and `cache_write_tokens`.
        output_tokens: the whole answer; includes `reasoning_tokens`.
        usd: price in US dollars as reported by the provider, None if it reports none. A sum has
            a price only if all its parts do.
        searches: number of web searches by the provider.
        cache_hour_tokens: the part of `cache_write_tokens` kept for an hour, which costs more.

    Example:
        (Usage(100, 20) + Usage(50, 5)).total_tokens == 175
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    usd: float | None = None
    searches: int = 0
    cache_hour_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            None if self.usd is None and other.usd is None else _add_prices(self, other),
            self.searches + other.searches,
            self.cache_hour_tokens + other.cache_hour_tokens,
        )

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens


NO_USAGE = Usage()


def _add_prices(first: Usage, second: Usage) -> float | None:
    # A usage without tokens costs nothing, even if no price is known.
    prices = [usage.usd for usage in (first, second) if usage.usd is not None or usage.total_tokens]
    return None if None in prices else sum(price for price in prices if price is not None)


class UserMessage(Struct, metaclass=NamedFields, frozen=True, gc=False, tag="user"):
    """Message to the model: a prompt, a note from the engine, or results of tool calls.

    Example:
        UserMessage((ToolResultBlock("c1", "read", "# On Mud"), TextBlock("Be brief.")))
    """

    content: tuple[UserBlock, ...]


class AssistantMessage(Struct, frozen=True, gc=False, tag="assistant", omit_defaults=True):
    """One complete answer of a model.

    Arguments:
        wire: the wire that received the answer. Thinking, signatures and provider blocks are sent
            back only over this wire.
        id: the provider's id for the answer.
        provider_stop_reason: the provider's word for it when `stop_reason` is LENGTH, REFUSAL or
            OTHER, or when it refused the calls.
        answered_by: model string of the model that answered, if the run has several.

    Example:
        AssistantMessage((TextBlock("pytest."),), usage=Usage(100, 3)).text == "pytest."
    """

    content: tuple[AssistantBlock, ...]
    stop_reason: StopReason = StopReason.END
    usage: Usage = Usage()
    model: str = ""
    wire: str = ""
    id: str = ""
    provider_stop_reason: str = ""
    answered_by: str = ""

    @property
    def text(self) -> str:
        """Text of all text blocks, one per line; without thinking and tool calls."""
        blocks = join_texts(self.content)
        return "\n".join([b.text for b in blocks if type(b) is TextBlock and b.text])

    @property
    def tool_calls(self) -> tuple[ToolCallBlock, ...]:
        """The tool calls in the order the model wrote them."""
        return tuple([b for b in self.content if type(b) is ToolCallBlock])


Message = UserMessage | AssistantMessage
"""One message of a conversation.

Example:
    messages: tuple[Message, ...] = (
        UserMessage((TextBlock("Hello."),)),
        AssistantMessage((TextBlock("Good evening."),)),
    )
"""


def join_texts(blocks: Iterable[UserBlock | AssistantBlock]) -> list[UserBlock | AssistantBlock]:
    """Join each text with its continuations; a joined text loses its signature."""
    joined: list[UserBlock | AssistantBlock] = []
    for block in blocks:
        last = joined[-1] if joined else None
        if type(block) is TextBlock and block.is_continuation and type(last) is TextBlock:
            joined[-1] = replace(last, text=last.text + block.text, signature="")
        else:
            joined.append(block)
    return joined


def clean_answer(answer: AssistantMessage) -> AssistantMessage:
    return replace(
        answer,
        content=tuple(map(_clean_block, answer.content)),
        id=clean_text(answer.id),
        model=clean_text(answer.model),
    )


def _clean_block(block: AssistantBlock) -> AssistantBlock:
    if isinstance(block, ToolCallBlock):
        return clean_call(block)
    if isinstance(block, TextBlock):
        if block.text.isascii() and block.signature.isascii():
            return block
        text = clean_text(block.text)
        return TextBlock(text, clean_text(block.signature), block.is_continuation)
    if isinstance(block, ProviderBlock):
        return ProviderBlock(block.kind, clean_text(block.data), clean_text(block.text))
    redacted = clean_text(block.redacted)
    return ThinkingBlock(clean_text(block.text), clean_text(block.signature), redacted)


def get_sendable_arguments(call: ToolCallBlock) -> dict[str, Any]:
    """Return the arguments for a request; malformed text is wrapped in an object."""
    return {"INVALID_JSON": call.malformed} if call.malformed else call.arguments


def clean_call(call: ToolCallBlock) -> ToolCallBlock:
    """Make a tool call recordable; `malformed` says why it cannot run."""
    is_clean = is_clean_json(call.arguments)
    others = (call.id, call.name, call.malformed, call.signature)
    is_object = type(call.arguments) is dict  # only a model in this process sends other values
    if is_clean and is_object and all(map(str.isascii, others)):
        return call
    fault = "" if is_clean else find_json_fault(call.arguments)
    if not isinstance(call.arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        fault = f"a value of type {type(call.arguments).__name__} is no object"
    arguments = call.arguments if is_clean else clean_json(call.arguments)
    return ToolCallBlock(
        clean_text(call.id),
        clean_text(call.name),
        {} if fault else cast("dict[str, Any]", arguments),
        fault or clean_text(call.malformed),
        clean_text(call.signature),
    )


class RecordedFailure(Struct, frozen=True):
    """A recorded model call without an answer.

    Arguments:
        error: the call's error, or the run's if the run was stopped during the call.
        is_transient: the same call may succeed later.
        stop: the run's reason if it was stopped during the call, else "".
    """

    error: str
    is_transient: bool = False
    partial_text: str = ""
    stop: str = ""
    is_overflow: bool = False


class RecordedConversation(Struct, frozen=True):
    """The messages of a recorded run in order, and its model calls without an answer."""

    run: str
    messages: tuple[Message, ...]
    failures: tuple[RecordedFailure, ...] = ()


def user_message(text: str) -> UserMessage:
    return UserMessage((TextBlock(text),))


def resolve_stop_reason(stop_reason: StopReason, content: Iterable[AssistantBlock]) -> StopReason:
    """Correct END to CALLS for an answer with tool calls."""
    # Some OpenAI-compatible servers report "stop" for answers that contain tool calls.
    if stop_reason is StopReason.END and ToolCallBlock in map(type, content):
        return StopReason.CALLS
    return stop_reason


# English text has 4 to 5 characters per token, code 3 to 4; for text that is not ASCII this
# counts bytes. Providers count exactly, but only whole requests: estimates cover what came since,
# and parts of a request.
CHARACTERS_PER_TOKEN = 4
# About the most that a provider counts for one image.
TOKENS_PER_IMAGE = 1_500
# Tokens a block may take beyond its text, such as roles, ids and markup.
_MAX_TOKENS_PER_BLOCK = 64

Block = UserBlock | AssistantBlock


def estimate_tokens(text: str) -> int:
    length = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-length // CHARACTERS_PER_TOKEN)


def estimate_block_tokens(blocks: Iterable[Block]) -> int:
    return sum(map(_estimate_one_block, blocks))


def _estimate_one_block(block: Block) -> int:
    if isinstance(block, ImageBlock):
        return TOKENS_PER_IMAGE
    if isinstance(block, ToolCallBlock):
        arguments = len(msgspec.json.encode(block.arguments)) // CHARACTERS_PER_TOKEN
        return estimate_tokens(block.name) + arguments
    if isinstance(block, ProviderBlock):
        return estimate_tokens(block.data)
    tokens = estimate_tokens(block.text)
    if isinstance(block, ToolResultBlock):
        tokens += len(block.images) * TOKENS_PER_IMAGE
    return tokens


def estimate_message_tokens(messages: Iterable[Message]) -> int:
    return sum(estimate_block_tokens(message.content) for message in messages)


class TokenRange(Struct, frozen=True):
    minimum: int = 0
    maximum: int = 0

    def __add__(self, other: TokenRange) -> TokenRange:
        return TokenRange(self.minimum + other.minimum, self.maximum + other.maximum)


def compute_text_range(characters: int) -> TokenRange:
    """Bound the tokens of a text of this length: each character may be a token."""
    return TokenRange(characters // CHARACTERS_PER_TOKEN, characters)


def compute_block_range(blocks: Iterable[Block]) -> TokenRange:
    """Bound the tokens of blocks. Providers may not count reasoning and their own blocks."""
    characters = 0
    optional_characters = 0
    image_count = 0
    count = 0
    for block in blocks:
        count += 1
        if isinstance(block, ImageBlock):
            image_count += 1
        elif isinstance(block, ToolCallBlock):
            characters += len(repr(block.arguments))
        elif isinstance(block, ThinkingBlock | ProviderBlock):
            optional_characters += len(repr(block))
        else:
            characters += len(block.text)
            image_count += len(block.images) if isinstance(block, ToolResultBlock) else 0
    images = image_count * TOKENS_PER_IMAGE
    extra = images + optional_characters + count * _MAX_TOKENS_PER_BLOCK
    return compute_text_range(characters) + TokenRange(images, extra)
