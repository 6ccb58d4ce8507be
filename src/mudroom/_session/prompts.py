"""Prompts of callers: a text, or blocks of text and images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from msgspec import Struct

from .._adapters.tools._image_files import MAX_IMAGE_BYTES, MAX_PIXELS_PER_SIDE, parse_image
from .._core.json_values import clean_text
from .._core.messages import ImageBlock, TextBlock
from .._core.type_checks import check_type
from ..errors import UsageError

# A prompt: text, or blocks of text and images in their order.
Prompt = str | Sequence[TextBlock | ImageBlock]

_REMEDY = "Write what the agent should do."


class PromptContent(Struct, frozen=True):
    """A checked prompt.

    Arguments:
        text: the prompt as text; a placeholder stands for each image.
        blocks: its blocks; () if it is only text.
    """

    text: str
    blocks: tuple[TextBlock | ImageBlock, ...] = ()


def parse_prompt(prompt: object, where: str = "") -> PromptContent:
    """Check a prompt and its images; replace characters that cannot be stored.

    Raises UsageError.
    """
    if isinstance(prompt, str):
        content = PromptContent(clean_text(prompt))
    elif isinstance(prompt, Sequence) and not isinstance(prompt, bytes):
        items = cast("Sequence[object]", prompt)
        blocks = tuple(_parse_block(block, number, where) for number, block in enumerate(items, 1))
        texts = [
            block.text if isinstance(block, TextBlock) else block.placeholder for block in blocks
        ]
        content = PromptContent("\n\n".join(texts), blocks)
    else:
        kind = type(prompt).__name__
        raise UsageError(f"the prompt is not a text but a {kind}", where=where, remedy=_REMEDY)
    if not content.text.strip():
        raise UsageError("the prompt is empty", where=where, remedy=_REMEDY)
    return content


def check_prompts(prompts: Iterable[Prompt]) -> list[Prompt]:
    """Check the prompts of several tasks. Raises UsageError at the first that is not usable."""
    # A string is iterable, too: each character would become a task.
    if isinstance(prompts, str):
        raise UsageError("map takes several prompts, not one text", remedy="Use `task`.")
    check_type("prompts", prompts, Iterable, "map")
    listed = list(prompts)
    for number, prompt in enumerate(listed, 1):
        parse_prompt(prompt, f"prompt {number}")
    return listed


def _parse_block(block: object, number: int, where: str) -> TextBlock | ImageBlock:
    if isinstance(block, TextBlock):
        return TextBlock(clean_text(block.text))
    if not isinstance(block, ImageBlock):
        raise UsageError(
            f"block {number} of the prompt is a {type(block).__name__}",
            where=where,
            remedy="Use TextBlock and ImageBlock.",
        )
    image = parse_image(block.data)
    if image is None:
        raise UsageError(
            f"block {number} of the prompt is not a complete PNG, JPEG, GIF or WebP image",
            where=where,
            remedy="Pass the bytes of the whole image file.",
        )
    if len(image.data) > MAX_IMAGE_BYTES or max(image.width, image.height) > MAX_PIXELS_PER_SIDE:
        raise UsageError(
            f"block {number} of the prompt is too large: {image.placeholder}",
            where=where,
            remedy=f"Scale it down to {MAX_IMAGE_BYTES:,} bytes and {MAX_PIXELS_PER_SIDE:,} pixels "
            "per side.",
        )
    return image
