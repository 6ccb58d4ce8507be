"""Prompts of the client: content blocks become text and images for the model."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from ..._core.messages import ImageBlock, TextBlock
from ...projections.engine_text import quote, wrap
from ...prompts import Prompt
from ..file_prompts import FilePrompt, fill_file_prompt
from .errors import INVALID_PARAMS, RequestError

Block = Mapping[str, Any]


def parse_prompt(blocks: Sequence[Block], prompts: Mapping[str, FilePrompt]) -> Prompt:
    """Return a prompt for the model.

    Arguments:
        prompts: prompts of files, by name. A prompt that begins with the slash and the name of
            one becomes its text.

    Raises RequestError for content that a model cannot get, UsageError for an empty file.
    """
    parsed = [_parse_block(block) for block in blocks]
    if parsed and isinstance(parsed[0], TextBlock):
        parsed[0] = TextBlock(fill_file_prompt(parsed[0].text, prompts))
    if all(isinstance(block, TextBlock) for block in parsed):
        return "\n\n".join(block.text for block in parsed if isinstance(block, TextBlock))
    return parsed


def _parse_block(block: Block) -> TextBlock | ImageBlock:
    match block.get("type"):
        case "text":
            return TextBlock(str(block.get("text", "")))
        case "image":
            return _parse_image(block)
        case "resource_link":
            return TextBlock(_describe_link(block))
        case "resource":
            return TextBlock(_format_resource(block))
        case kind:
            raise RequestError(INVALID_PARAMS, f"a model gets no content of type {kind} here")


def _parse_image(block: Block) -> ImageBlock:
    try:
        data = b64decode(str(block.get("data", "")), validate=True)
    except (Base64Error, ValueError):
        data = b""
    if not data:
        raise RequestError(INVALID_PARAMS, "an image of the prompt has no data in base64")
    return ImageBlock(str(block.get("mimeType", "")), data)


def _describe_link(block: Block) -> str:
    """Return the path or address of a resource, which the model can open with its tools."""
    return f"Attached: {_find_place(block)}"


def _format_resource(block: Block) -> str:
    value = block.get("resource")
    resource = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    place = _find_place(resource)
    text = resource.get("text")
    if not isinstance(text, str):
        return f"Attached, not as text: {place}"
    return wrap("resource", quote(text), sender=place)


def _find_place(block: Block) -> str:
    """Return the path of a file, else the address."""
    address = str(block.get("uri", ""))
    parts = urlsplit(address)
    if parts.scheme != "file":
        return address
    lines = f" ({parts.fragment})" if parts.fragment else ""
    return unquote(parts.path) + lines
