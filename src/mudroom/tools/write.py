"""write: a whole file at once, in the line ends and the mode it had."""

from __future__ import annotations

import asyncio
import os

from msgspec import Struct

from .._core.ports import ToolContext, Workspace
from .._core.tools import Effect, Tool, ToolResult
from ..errors import WorkspaceError
from ._schema import build_parser, build_schema, load_description
from ._text_files import count_lines, error_result, file_lock, format_count, read_start, uses_crlf

_LOOKED_AT = 16 << 20


class Arguments(Struct, frozen=True):
    """What the model sends."""

    file_path: str
    content: str


async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
    """Write the file."""
    return await asyncio.to_thread(_write, ctx.workspace, arguments)


def _write(workspace: Workspace, arguments: Arguments) -> ToolResult:
    path, text = workspace.locate(arguments.file_path), arguments.content
    with file_lock(workspace, path):
        if _has_crlf(workspace, path):
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            return error_result(
                f"content: character {error.start} is half of a surrogate pair, which no file can hold. Write the whole character."
            )
        new = workspace.replace(path, data)
    verb = "created" if new else "overwrote"
    return ToolResult(f"{verb} {path} ({format_count(count_lines(text), 'line')})", changes=(path,))


def _has_crlf(workspace: Workspace, path: str) -> bool:
    try:
        return uses_crlf(read_start(workspace, path, _LOOKED_AT).decode("latin-1"))
    except WorkspaceError:
        return False  # it is new, or `replace` will say what is wrong with it


def key(arguments: Arguments) -> str:
    """The file, as far as it can be told without the workspace."""
    return os.path.normpath(arguments.file_path)


WRITE = Tool(
    name="write",
    description=load_description(__file__),
    parameters=build_schema(Arguments),
    parse=build_parser(Arguments),
    run=run,
    effect=Effect.KEYED,
    key=key,
    argument_aliases={
        "path": "file_path",
        "filePath": "file_path",
        "text": "content",
        "contents": "content",
    },
)
