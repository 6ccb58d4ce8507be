"""The write tool: replaces a whole file, keeping its encoding, line ends and mode."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ..._core.ports import ToolContext, Workspace
from ..._core.tools import Effect, PreviewLine, Tool, ToolCategory, ToolResult
from ._schema import build_parser, build_schema, load_description


class Arguments(Struct, frozen=True):
    file_path: str
    content: str

    def __post_init__(self) -> None:
        if self.file_path.endswith("/"):
            raise ValueError(
                "file_path: ends with '/', as a folder's path does; name a file. "
                "Folders are made together with the files in them"
            )


def adapt(called: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Refuse to append, as other programs' tools can: this one replaces the file."""
    mode = arguments.pop("mode", "overwrite")
    if mode != "overwrite":
        raise ValueError(
            f"mode: {mode!r} is not known, write replaces the whole file. "
            "Add to a file with edit, or with >> in bash."
        )
    return arguments


async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
    from .text.file_changes import write_file  # after the first request

    return await asyncio.to_thread(
        write_file, ctx.workspace, arguments.file_path, arguments.content
    )


def propose(workspace: Workspace, arguments: Mapping[str, Any]) -> list[PreviewLine]:
    from .text.file_changes import propose_write

    content = str(arguments.get("content", ""))
    return propose_write(workspace, str(arguments["file_path"]), content)


def preview(arguments: Mapping[str, Any], result: ToolResult) -> list[PreviewLine]:
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
    get_key=lambda arguments: os.path.normpath(arguments.file_path),
    adapt=adapt,
    argument_aliases={
        "path": "file_path",
        "filePath": "file_path",
        "absolute_path": "file_path",
        "text": "content",
        "file_text": "content",
        "contents": "content",
    },
)
