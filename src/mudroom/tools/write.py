"""The write tool: writes a whole file and keeps the line ends and the mode it had."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from .._core.counts import count_noun
from .._core.ports import ToolContext, Workspace
from .._core.tools import Effect, PreviewLine, Tool, ToolCategory, ToolResult
from ..errors import WorkspaceError
from ._schema import build_parser, build_schema, load_description
from ._text_files import (
    MAX_PROPOSED_BYTES,
    count_lines,
    decode_text,
    describe_binary,
    get_file_lock,
    make_error_result,
    uses_crlf,
)

_MAX_INSPECTED = 16 << 20  # bytes of the old file that are searched for line ends


class Arguments(Struct, frozen=True):
    """The arguments."""

    file_path: str
    content: str


async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
    """Write the file."""
    return await asyncio.to_thread(_write, ctx.workspace, arguments)


def _write(workspace: Workspace, arguments: Arguments) -> ToolResult:
    path = workspace.locate(arguments.file_path)
    text = arguments.content
    with get_file_lock(workspace, path):
        if _has_crlf(workspace, path):
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            return make_error_result(
                f"content: character {error.start} is half of a surrogate pair, "
                "which no file can hold. Write the whole character."
            )
        created = workspace.write(path, data)
    verb = "created" if created else "overwrote"
    lines = count_noun(count_lines(text), "line")
    return ToolResult(f"{verb} {path} ({lines})", changes=(path,))


def _has_crlf(workspace: Workspace, path: str) -> bool:
    try:
        return uses_crlf(workspace.read(path, 0, _MAX_INSPECTED).decode("latin-1"))
    except WorkspaceError:
        return False  # a new file; for any other problem `write` raises


def propose(workspace: Workspace, arguments: Mapping[str, Any]) -> list[PreviewLine]:
    """Return the difference between the file and the new content."""
    content = str(arguments.get("content", ""))
    try:
        data = workspace.read(workspace.locate(str(arguments["file_path"])), 0, MAX_PROPOSED_BYTES)
    except WorkspaceError:
        data = b""  # a new file
    before = "" if describe_binary(data[:8_192]) else decode_text(data).text
    from ..projections.differences import diff_texts  # after the first request

    return diff_texts(before, content)


def get_file_key(arguments: Arguments) -> str:
    """Return the file's path, normalised without looking at the workspace."""
    return os.path.normpath(arguments.file_path)


def preview(arguments: Mapping[str, Any], result: ToolResult) -> list[PreviewLine]:
    """Return the content as added lines."""
    return [("+", line) for line in str(arguments.get("content", "")).splitlines()]


WRITE = Tool(
    name="write",
    description=load_description(__file__),
    parameters=build_schema(Arguments),
    parse=build_parser(Arguments),
    run=run,
    view="content",
    effect=Effect.KEYED,
    category=ToolCategory.WRITE,
    path_argument="file_path",
    preview=preview,
    preview_lines=8,
    propose=propose,
    get_key=get_file_key,
    argument_aliases={
        "path": "file_path",
        "filePath": "file_path",
        "text": "content",
        "contents": "content",
    },
)
