"""Images in requests: placeholders for models without vision, labels for the others."""

from __future__ import annotations

import logging
from base64 import b64encode

from msgspec.structs import replace

from ..._core.messages import (
    ImageBlock,
    TextBlock,
    ToolResultBlock,
    UserBlock,
    UserMessage,
    append_placeholders,
)

log = logging.getLogger("mudroom")


def has_images(message: UserMessage) -> bool:
    return any(
        isinstance(block, ImageBlock) or (isinstance(block, ToolResultBlock) and block.images)
        for block in message.content
    )


def replace_unsent_images(message: UserMessage, model: str, unsent: set[str]) -> UserMessage:
    """Replace images with placeholders; log that, unless `unsent` shows it was already logged."""
    if not has_images(message):
        return message
    if "images" not in unsent:
        unsent.add("images")
        log.warning(
            "%s: images are sent as a text with their type and size, because it is not known that "
            "the model takes images. If it does, use --takes-images.",
            model,
        )
    return UserMessage(tuple(map(_replace_image, message.content)))


def _replace_image(block: UserBlock) -> UserBlock:
    if isinstance(block, ImageBlock):
        return TextBlock(block.placeholder)
    if isinstance(block, ToolResultBlock) and block.images:
        return replace(block, text=append_placeholders(block.text, block.images), images=())
    return block


def make_image_label(result: ToolResultBlock) -> str:
    """Make the text before a result's images, for wires that send them separately."""
    return f"Images of the result of {result.name} ({result.call_id}):"


def make_data_url(image: ImageBlock) -> str:
    return f"data:{image.media_type};base64,{b64encode(image.data).decode()}"
