"""Results of servers as results of tools: texts, images, and files for everything else."""

from __future__ import annotations

import mimetypes
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from ..._core.messages import ImageBlock
from ..._core.ports import ToolContext
from ..._core.tools import ToolResult
from ..._platform.private_files import write_private_file
from .listing import Content, ServerResult

ParseImage = Callable[[bytes], ImageBlock | None]
"""Function that returns the image of a file, None if models cannot get it."""


def make_tool_result(
    result: ServerResult, context: ToolContext, parse_image: ParseImage
) -> ToolResult:
    """Return the result of a call for the model.

    All bytes go into files, those of images too: the model may take none, and a later one neither.
    """
    parts: list[str] = []
    images: list[ImageBlock] = []
    for number, part in enumerate(result.content, start=1):
        if not part.data:
            parts.append(part.text)
            continue
        parts.append(_store(part, context, number))
        if part.media_type.startswith("image/") and (image := parse_image(part.data)):
            images.append(image)
    has_text = any(part.text for part in result.content)
    if not has_text and result.structured is not None:
        parts.insert(0, msgspec.json.encode(result.structured).decode())
    text = "\n".join(filter(None, parts)) or "(no output)"
    return ToolResult(text, error=result.is_error, images=tuple(images))


def join_text(parts: Iterable[Content]) -> str:
    """Return the texts of parts for a prompt; a line stands for bytes, which are left out."""
    texts = (
        f"[{part.media_type}, {len(part.data):,} bytes: left out]" if part.data else part.text
        for part in parts
    )
    return "\n\n".join(filter(None, texts))


def _store(part: Content, context: ToolContext, number: int) -> str:
    ending = mimetypes.guess_extension(part.media_type) or ".bin"
    created = Path(context.spill_path(f"content{number}"))
    path = created.with_suffix(ending)
    write_private_file(path, part.data)
    if path != created:
        created.unlink()
    return f"[{part.media_type}, {len(part.data):,} bytes, in {path}]"
