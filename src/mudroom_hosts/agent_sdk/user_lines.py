"""Lines of the user: each is a prompt, or a message to the prompt that runs."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from mudroom import ImageBlock, TextBlock
from mudroom.errors import UsageError

from .json_fields import as_list, as_object, as_text


class UserLine(Struct, frozen=True, kw_only=True):
    """One line of the user.

    Arguments:
        uuid: id that the host gave it, or "".
        waits: the line waits for the end of the prompt that runs.
        starts_turn: false for context that the next line brings to the model.
        raw: the line as it came.
        error: why a model cannot get the line, or "".
    """

    blocks: tuple[TextBlock | ImageBlock, ...] = ()
    uuid: str = ""
    waits: bool = False
    starts_turn: bool = True
    raw: Mapping[str, Any]
    error: str = ""

    @property
    def text(self) -> str:
        """The text of the line; "" if it has an image."""
        texts = [block.text for block in self.blocks if isinstance(block, TextBlock)]
        return "\n\n".join(texts) if len(texts) == len(self.blocks) else ""

    @property
    def prompt(self) -> str | tuple[TextBlock | ImageBlock, ...]:
        """The line as a prompt."""
        return self.text or self.blocks


def parse_user_line(line: Mapping[str, Any]) -> UserLine:
    """Return the content of a line, or the reason why a model cannot get it."""
    uuid = str(line.get("uuid") or "")
    try:
        blocks = _parse_content(as_object(line.get("message")).get("content"))
    except UsageError as error:
        return UserLine(uuid=uuid, raw=line, error=str(error))
    return UserLine(
        blocks=blocks,
        uuid=uuid,
        waits=line.get("priority") == "later",
        starts_turn=line.get("shouldQuery") is not False,
        raw=line,
    )


def _parse_content(content: object) -> tuple[TextBlock | ImageBlock, ...]:
    text = as_text(content)
    blocks = [{"type": "text", "text": text}] if text else as_list(content)
    if not blocks:
        raise UsageError("the line of the user has no message with a content")
    return tuple(map(_parse_block, blocks))


def _parse_block(block: object) -> TextBlock | ImageBlock:
    value = as_object(block)
    kind = value.get("type")
    if kind == "text":
        return TextBlock(str(value.get("text", "")))
    if kind == "image":
        return _parse_image(as_object(value.get("source")))
    raise UsageError(
        f"a model gets no content of type {kind} here", remedy="Send text, or images as base64."
    )


def _parse_image(source: Mapping[str, Any]) -> ImageBlock:
    try:
        data = b64decode(str(source.get("data", "")), validate=True)
    except (Base64Error, ValueError):
        data = b""
    if source.get("type") != "base64" or not data:
        raise UsageError("an image is not in base64", remedy="Send its bytes as base64.")
    return ImageBlock(str(source.get("media_type", "")), data)
